"""Signals at bad moments: the daemon as a process ends well whenever it is told to."""

import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nodetopo.deviceplugin.fake_kubelet import FakeKubelet
from tests.generous_deadlines import use_generous_deadlines
from tests.kernel.test_app import TIMEOUT_S, running
from tests.kubeapi.fake_api_server import kubeconfig

__all__ = ["use_generous_deadlines"]

MACHINE = ("--machine", "dgx-1v")

STORM = 100_000
"""Signals without a pause: many times as many as Python nests calls."""


@contextmanager
def silent_api(directory: Path) -> Iterator[tuple[Path, socket.socket]]:
    """Yield a kubeconfig of an API server that never answers, and where it listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(TIMEOUT_S)
        path = directory / "kubeconfig"
        path.write_text(kubeconfig(f"http://127.0.0.1:{server.getsockname()[1]}"))
        yield path, server


def test_a_start_that_still_waits_ends_when_told_and_well(tmp_path: Path) -> None:
    configs = tmp_path / "configs"
    configs.mkdir()
    (configs / "default").touch()
    with silent_api(tmp_path) as (path, server):
        words = ("--config-dir", str(configs), "--kubeconfig", str(path), "--node-name", "n")
        with running(*MACHINE, *words) as process:
            asked, _ = server.accept()  # now it waits for the label of its Node
            with asked:
                process.send_signal(signal.SIGHUP)
                process.send_signal(signal.SIGTERM)
                _, said = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0
    assert "snapshot published" not in said
    assert "Traceback" not in said


def test_a_storm_of_hang_ups_neither_stops_the_daemon_nor_its_end(tmp_path: Path) -> None:
    arguments = ("--device-plugin-dir", str(tmp_path), "--log-level", "warning")
    with FakeKubelet(tmp_path) as kubelet, running(*MACHINE, *arguments) as process:
        devices = kubelet.wait_registered(TIMEOUT_S).devices
        for _ in range(STORM):
            process.send_signal(signal.SIGHUP)
        assert len(kubelet.preferred(2, [device.id for device in devices])) == 2
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, said[-2000:]
