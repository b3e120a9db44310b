"""A daemon whose standard error stalls, ends or is full serves the kubelet all the same."""

import fcntl
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nodetopo.deviceplugin.fake_kubelet import FakeKubelet
from tests.generous_deadlines import use_generous_deadlines
from tests.kernel.test_app import COMMAND, TIMEOUT_S, environment

__all__ = ["use_generous_deadlines"]

SMALLEST_PIPE = 4096
"""Bytes: ten lines of the log, fewer than a start writes."""

ALLOCATIONS = 150
"""More than there may wait for their reasons, and more lines than a pipe holds."""


@contextmanager
def writing_to(stderr: int, directory: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a daemon that writes its log to *stderr*, which is closed here."""
    flags = ("--machine=dgx-1v", f"--device-plugin-dir={directory}", "--log-format=json")
    process = subprocess.Popen(
        [*COMMAND, *flags], stdout=subprocess.DEVNULL, stderr=stderr, env=environment()
    )
    os.close(stderr)
    try:
        yield process
    finally:
        process.kill()
        process.wait(TIMEOUT_S)


def check_serves(directory: Path, process: "subprocess.Popen[bytes]", kubelet: FakeKubelet) -> None:
    """Check that *process* allocates, registers with the next kubelet, and ends at SIGTERM."""
    gpus = [device.id for device in kubelet.wait_registered(TIMEOUT_S).devices]
    for number in range(ALLOCATIONS):
        kubelet.allocate([gpus[number % len(gpus)]])
    kubelet.stop()
    with FakeKubelet(directory) as after:
        assert len(after.wait_registered(TIMEOUT_S).devices) == len(gpus)
        after.allocate(gpus[:1])
    process.send_signal(signal.SIGTERM)
    assert process.wait(TIMEOUT_S) == 0


def test_a_reader_that_stalls_stops_nothing(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, SMALLEST_PIPE)
    with FakeKubelet(tmp_path) as kubelet, writing_to(writing, tmp_path) as process:
        check_serves(tmp_path, process, kubelet)
    os.close(reading)


def test_a_reader_that_goes_stops_nothing(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    with FakeKubelet(tmp_path) as kubelet, writing_to(writing, tmp_path) as process:
        kubelet.wait_registered(TIMEOUT_S)
        os.close(reading)
        check_serves(tmp_path, process, kubelet)


def test_a_full_disk_stops_nothing(tmp_path: Path) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    with FakeKubelet(tmp_path) as kubelet, writing_to(full, tmp_path) as process:
        check_serves(tmp_path, process, kubelet)


@pytest.mark.parametrize("arguments", [("--scan-interval=x",), ("--bandwidth-table=/none",)])
def test_bad_settings_end_with_their_status_where_nothing_can_be_written(
    arguments: tuple[str, ...],
) -> None:
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, SMALLEST_PIPE)
    os.write(writing, b"x" * SMALLEST_PIPE)
    done = subprocess.run(
        [*COMMAND, "--machine=dgx-1v", *arguments],
        stdout=subprocess.DEVNULL,
        stderr=writing,
        timeout=TIMEOUT_S,
        env=environment(),
        check=False,
    )
    os.close(reading)
    os.close(writing)
    assert done.returncode == 2
