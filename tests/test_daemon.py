"""The daemon as a process: it shows the main job, serves, and stops when told."""

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agent.kubelet.stand_in import StandInKubelet
from agent.machines.bundled import machine

TIMEOUT_S = 60
COMMAND = (sys.executable, "-m", "agent", "run", "--metrics-address", "127.0.0.1:0")


def environment(**extra: str) -> dict[str, str]:
    """Return this process's environment without settings of its own."""
    kept = {name: v for name, v in os.environ.items() if not name.startswith("NODETOPO_")}
    return {**kept, **extra}


@contextmanager
def running(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run the daemon and end it afterwards, whatever happened."""
    process = subprocess.Popen(
        [*COMMAND, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=TIMEOUT_S)


def scrape(url: str) -> list[str]:
    with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:
        lines: list[str] = answer.read().decode().splitlines()
    return lines


def once(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, "--once", *arguments],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        env=environment(),
        check=False,
    )


def test_once_shows_the_whole_job_on_a_simulated_machine_and_ends_well() -> None:
    shown = once("--machine", "dgx-h100")
    assert shown.returncode == 0, shown.stderr
    for word in ("SIMULATED", "NV18", "gpu.topology/interconnect", "nvidia.com/gpu", "450", "http"):
        assert word in shown.stdout, word


def test_once_on_a_node_without_nvml_says_so_and_could_not_tell(tmp_path: Path) -> None:
    shown = once("--nvml-library", "/nonexistent", "--device-plugin-dir", str(tmp_path))
    assert (shown.returncode, shown.stderr.splitlines()[-1].split(":")[0]) == (3, "error")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_it_cleanly_and_leaves_no_socket(
    number: signal.Signals, tmp_path: Path
) -> None:
    with StandInKubelet(tmp_path) as kubelet:
        arguments = ("--machine", "dgx-1v", "--device-plugin-dir", str(tmp_path))
        with running(*arguments) as process:
            kubelet.wait_registered(TIMEOUT_S)
            process.send_signal(number)
            assert process.wait(timeout=TIMEOUT_S) == 0
        assert [path.name for path in tmp_path.iterdir()] == ["kubelet.sock"]


def test_the_kubelet_gets_every_gpu_with_its_numa_node(tmp_path: Path) -> None:
    with (
        StandInKubelet(tmp_path) as kubelet,
        running("--machine", "dgx-1v", "--device-plugin-dir", str(tmp_path)),
    ):
        view = kubelet.wait_registered(TIMEOUT_S)
        assert [(d.id, d.is_healthy, d.numa_nodes) for d in view.devices] == [
            (gpu.id, True, (gpu.numa_node,)) for gpu in machine("dgx-1v").gpus
        ]


def test_the_kubelet_is_told_the_best_pair_of_what_is_free(tmp_path: Path) -> None:
    gpus = [gpu.id for gpu in machine("dgx-1v").gpus]
    with (
        StandInKubelet(tmp_path) as kubelet,
        running("--machine", "dgx-1v", "--device-plugin-dir", str(tmp_path)),
    ):
        kubelet.wait_registered(TIMEOUT_S)
        free = [gpus[index] for index in (4, 2, 0, 5)]
        # 0-4 have two NVLinks, 4-5 and all others one or none.
        assert set(kubelet.preferred(2, free)) == {gpus[0], gpus[4]}


def test_the_policy_of_the_settings_decides_and_one_line_says_why(tmp_path: Path) -> None:
    gpus = [gpu.id for gpu in machine("dgx-1v").gpus]
    arguments = ("--machine", "dgx-1v", "--device-plugin-dir", str(tmp_path))
    policy = ("--placement-policy", "nvidia.com/gpu=numa-first", "--log-format", "json")
    with StandInKubelet(tmp_path) as kubelet, running(*arguments, *policy) as process:
        kubelet.wait_registered(TIMEOUT_S)
        chosen = kubelet.preferred(2, [gpus[index] for index in (4, 1, 0, 5)])
        kubelet.allocate(chosen)
        process.send_signal(signal.SIGTERM)
        _, logged = process.communicate(timeout=TIMEOUT_S)
    lines = [json.loads(line) for line in logged.splitlines()]
    (line,) = [line for line in lines if line["event"] == "devices allocated"]
    assert {key: line[key] for key in ("chosen", "bandwidth_gb_s", "chosen_by", "resource")} == {
        "chosen": gpus[:2],
        "bandwidth_gb_s": 25.0,
        "chosen_by": "us",
        "resource": "nvidia.com/gpu",
    }
    assert line["said"].startswith("GPU0 GPU1: 25 GB/s by ring, ")


def test_a_bandwidth_table_that_cannot_be_read_stops_the_start(tmp_path: Path) -> None:
    shown = once("--machine", "dgx-1v", "--bandwidth-table", str(tmp_path / "none.yaml"))
    assert shown.returncode == 2
    assert "none.yaml is not a file" in shown.stderr.splitlines()[-1]


def test_metrics_tell_that_the_resource_is_registered(tmp_path: Path) -> None:
    log_line = ""
    with StandInKubelet(tmp_path) as kubelet:
        arguments = ("--machine", "dgx-h100", "--device-plugin-dir", str(tmp_path))
        with running(*arguments, "--log-format", "json") as process:
            kubelet.wait_registered(TIMEOUT_S)
            assert process.stderr is not None
            for log_line in process.stderr:
                if "metrics served" in log_line:
                    break
            url = json.loads(log_line)["url"]
            # The kubelet has the list a moment before the plugin has the kubelet's answer.
            is_registered = any(
                'nodetopo_registered{resource="nvidia.com/gpu"} 1.0' in scrape(url)
                for _ in range(100)
            )
    assert is_registered
