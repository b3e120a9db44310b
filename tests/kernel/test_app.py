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
from typing import Any

import pytest

from nodetopo.deviceplugin.fake_kubelet import FakeKubelet
from nodetopo.machines.bundled import machine
from tests.deviceplugin.eventually import eventually
from tests.deviceplugin.machines import GPUS
from tests.deviceplugin.other_plugin import OtherPlugin
from tests.generous_deadlines import use_generous_deadlines

__all__ = ["use_generous_deadlines"]

TIMEOUT_S = 240
MIG = Path(__file__).parents[1] / "nodes" / "h100x8-nvswitch-2numa-mig" / "snapshot.json"
GPU2 = "GPU-00000d16-0000-4000-8000-000000000002"
COMMAND = (
    sys.executable,
    "-m",
    "nodetopo",
    "run",
    "--metrics-address=127.0.0.1:0",
    "--health-file=none",
)


def environment(**extra: str) -> dict[str, str]:
    """Return this process's environment without settings of its own."""
    kept = {name: v for name, v in os.environ.items() if not name.startswith("NODETOPO_")}
    return {**kept, **extra}


@contextmanager
def running(*arguments: str, umask: int = -1) -> Iterator[subprocess.Popen[str]]:
    """Run the daemon and end it afterwards, whatever happened; ``-1`` leaves the umask."""
    process = subprocess.Popen(
        [*COMMAND, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
        umask=umask,
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
    """Run the daemon once, and again where a busy machine kept a choice waiting too long."""
    for _ in range(3):
        shown = subprocess.run(
            [*COMMAND, "--once", *arguments],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            env=environment(),
            check=False,
        )
        if "came too late" not in shown.stderr:
            break
    return shown


def test_once_shows_the_whole_job_on_a_simulated_machine_and_ends_well() -> None:
    shown = once("--machine", "dgx-h100")
    assert shown.returncode == 0, shown.stderr
    for word in ("SIMULATED", "NV18", "gpu.topology/interconnect", "nvidia.com/gpu", "450", "http"):
        assert word in shown.stdout, word


def test_once_shows_the_rest_where_another_plugin_offers_the_gpus() -> None:
    shown = once("--machine", "dgx-h100", "--offer-gpus", "never", "--no-publish-gfd-labels")
    assert shown.returncode == 0, shown.stderr
    assert "no GPUs are offered: offer-gpus is never" in shown.stdout
    assert "devices registered" not in shown.stdout
    assert "gpu.topology/interconnect" in shown.stdout
    assert "nvidia.com/gpu.product" not in shown.stdout


def test_once_says_why_a_pool_has_hcas_that_are_usually_left_out(tmp_path: Path) -> None:
    pools = [
        {"resourceName": "every", "rdmaHcaMax": 1, "selectors": {"vendors": ["15b3"]}},
        {"resourceName": "storage", "rdmaHcaMax": 4, "selectors": {"deviceIDs": ["a2dc"]}},
    ]
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"configList": pools}), "utf-8")
    shown = once("--machine", "hgx-h200", "--rdma-config", str(path))
    assert shown.returncode == 0, shown.stderr
    for text in (
        "rdma/every: 1 devices of 8 HCAs (shared) registered",
        "rdma/storage: 4 devices of 1 HCAs (shared) registered",
        "rdma/storage: its selectors match only HCAs that are left out of other pools: mlx5_2: ",
        "not offered: mlx5_2 is not in rdma/every: ",
    ):
        assert text in shown.stdout, text
    assert "rdma/every: its selectors" not in shown.stdout
    assert "HCAs advertised that are excluded by default" in shown.stderr


def test_once_shows_every_resource_and_what_is_not_offered() -> None:
    slicing = ("--time-slicing", "nvidia.com/gpu=4,renameByDefault")
    shown = once("--snapshot", str(MIG), "--mig-strategy", "mixed", *slicing)
    assert shown.returncode == 0, shown.stderr
    who = "devices registered with an embedded stand-in for the kubelet"
    for text in (
        f"nvidia.com/gpu.shared: 20 {who}",
        f"nvidia.com/mig-1g.10gb: 7 {who}",
        f"nvidia.com/mig-3g.40gb: 2 {who}",
        f"not offered: GPU2 ({GPU2}) is in MIG mode and has no MIG device",
        "4 of 20: GetPreferredAllocation answered 1 of GPU4, 1 of GPU5, 1 of GPU6, 1 of GPU7",
        "2 of 2: GetPreferredAllocation answered 2 of GPU1",
    ):
        assert text in shown.stdout, text


def test_a_request_of_the_page_is_for_one_replica_where_no_more_may_be_asked_for() -> None:
    slicing = ("--time-slicing", "nvidia.com/gpu=4,failRequestsGreaterThanOne")
    assert "1 of 32: GetPreferredAllocation answered" in once(*slicing, "--machine=dgx-1v").stdout


def test_once_names_the_gpus_that_keep_all_from_being_offered() -> None:
    shown = once("--snapshot", str(MIG), "--mig-strategy", "single")
    last = shown.stderr.splitlines()[-1]
    assert (shown.returncode, last.split(":")[:2]) == (3, ["error", " nothing is offered"])
    assert f"in MIG mode without a MIG device: GPU2 ({GPU2})" in last


def test_a_daemon_that_may_offer_nothing_waits_instead_of_ending(tmp_path: Path) -> None:
    arguments = ("--snapshot", str(MIG), "--mig-strategy", "single", "--log-format", "json")
    with running(*arguments, "--device-plugin-dir", str(tmp_path)) as process:
        assert process.stderr is not None
        events = (json.loads(line)["event"] for line in process.stderr)
        expected = {"snapshot published", "resource not offered"}
        while expected:  # a line that never comes is ended by the time limit of the test
            expected.discard(next(events))
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=TIMEOUT_S) == 0


def test_once_on_a_node_without_nvml_says_so_and_could_not_tell(tmp_path: Path) -> None:
    shown = once("--nvml-library", "/nonexistent", "--device-plugin-dir", str(tmp_path))
    assert (shown.returncode, shown.stderr.splitlines()[-1].split(":")[0]) == (3, "error")


def test_once_registers_nothing_where_another_instance_serves(tmp_path: Path) -> None:
    where = ("--machine", "dgx-1v", "--device-plugin-dir", str(tmp_path))
    with FakeKubelet(tmp_path) as kubelet, running(*where):
        before = kubelet.wait_registered(TIMEOUT_S)
        shown = once(*where)
        assert shown.returncode == 0, shown.stderr
        said = f"another nodetopo serves this node on {tmp_path}/{before.endpoint}: nothing is"
        assert said in shown.stdout
        assert "GetPreferredAllocation answered GPU0" in shown.stdout
        assert kubelet.view() == before
        assert len(kubelet.allocate(kubelet.preferred(1)).cdi_devices) == 1


def test_once_registers_nothing_where_nvidias_plugin_serves(tmp_path: Path) -> None:
    with FakeKubelet(tmp_path) as kubelet:
        other = OtherPlugin(tmp_path, "nvidia-gpu.sock", GPUS)
        other.register("nvidia.com/gpu")
        before = kubelet.wait_registered(TIMEOUT_S)
        shown = once("--machine", "dgx-1v", "--device-plugin-dir", str(tmp_path))
        assert shown.returncode == 0, shown.stderr
        assert "NVIDIA's device plugin serves this node on" in shown.stdout
        assert kubelet.view() == before
        assert other.watched == 1
        other.stop()


def test_nobody_else_may_connect_to_its_socket_or_write_its_files(tmp_path: Path) -> None:
    with FakeKubelet(tmp_path) as kubelet:
        arguments = ("--machine", "dgx-1v", "--device-plugin-dir", str(tmp_path))
        with running(*arguments, umask=0) as process:
            endpoint = kubelet.wait_registered(TIMEOUT_S).endpoint
            assert (tmp_path / endpoint).stat().st_mode & 0o777 == 0o600
            status = Path(f"/proc/{process.pid}/status").read_text("ascii")
            assert "Umask:\t0022\n" in status


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_it_cleanly_and_leaves_no_socket(
    number: signal.Signals, tmp_path: Path
) -> None:
    with FakeKubelet(tmp_path) as kubelet:
        arguments = ("--machine", "dgx-1v", "--device-plugin-dir", str(tmp_path))
        with running(*arguments) as process:
            kubelet.wait_registered(TIMEOUT_S)
            process.send_signal(number)
            assert process.wait(timeout=TIMEOUT_S) == 0
        assert [path.name for path in tmp_path.iterdir()] == ["kubelet.sock"]


def test_the_kubelet_gets_every_gpu_with_its_numa_node(tmp_path: Path) -> None:
    with (
        FakeKubelet(tmp_path) as kubelet,
        running("--machine", "dgx-1v", "--device-plugin-dir", str(tmp_path)),
    ):
        view = kubelet.wait_registered(TIMEOUT_S)
        assert [(d.id, d.is_healthy, d.numa_nodes) for d in view.devices] == [
            (gpu.id, True, (gpu.numa_node,)) for gpu in machine("dgx-1v").gpus
        ]


def test_the_kubelet_is_told_the_best_pair_of_what_is_free(tmp_path: Path) -> None:
    gpus = [gpu.id for gpu in machine("dgx-1v").gpus]
    with (
        FakeKubelet(tmp_path) as kubelet,
        running("--machine", "dgx-1v", "--device-plugin-dir", str(tmp_path)),
    ):
        kubelet.wait_registered(TIMEOUT_S)
        free = [gpus[index] for index in (4, 2, 0, 5)]
        # 0-4 have two NVLinks, 4-5 and all others one or none. A choice that comes too late on a
        # busy machine is another one.
        assert eventually(lambda: set(kubelet.preferred(2, free)) == {gpus[0], gpus[4]})


def test_the_policy_of_the_settings_decides_and_one_line_says_why(tmp_path: Path) -> None:
    gpus = [gpu.id for gpu in machine("dgx-1v").gpus]
    arguments = ("--machine", "dgx-1v", "--device-plugin-dir", str(tmp_path))
    policy = ("--placement-policy", "nvidia.com/gpu=numa-first", "--log-format", "json")
    with FakeKubelet(tmp_path) as kubelet, running(*arguments, *policy) as process:
        kubelet.wait_registered(TIMEOUT_S)
        free = [gpus[index] for index in (4, 1, 0, 5)]
        assert eventually(lambda: set(kubelet.preferred(2, free)) == {*gpus[:2]})
        kubelet.allocate(gpus[:2])
        assert process.stderr is not None
        lines: list[dict[str, Any]] = []
        while not lines or lines[-1]["event"] != "devices allocated":
            lines.append(json.loads(process.stderr.readline()))
        process.send_signal(signal.SIGTERM)
        _, rest = process.communicate(timeout=TIMEOUT_S)
    assert "devices allocated" not in rest
    line = lines[-1]
    assert {key: line[key] for key in ("chosen", "bandwidth_gb_s", "chosen_by", "resource")} == {
        "chosen": gpus[:2],
        "bandwidth_gb_s": 25.0,
        "chosen_by": "us",
        "resource": "nvidia.com/gpu",
    }
    assert line["said"].startswith("GPU0 GPU1: 25 GB/s by ring, ")


@pytest.mark.parametrize("setting", ["--bandwidth-table", "--checks-file"])
def test_a_file_of_ours_that_cannot_be_read_stops_the_start(tmp_path: Path, setting: str) -> None:
    shown = once("--machine", "dgx-1v", setting, str(tmp_path / "none.yaml"))
    assert shown.returncode == 2
    assert "none.yaml is not a file" in shown.stderr.splitlines()[-1]


def test_a_check_that_is_not_known_is_told_of_and_keeps_no_gpu_from_being_served(
    tmp_path: Path,
) -> None:
    checks = tmp_path / "checks.yaml"
    checks.write_text("severities: {KUB-0004: info}", "utf-8")
    arguments = ("--machine", "dgx-h100", "--checks-file", str(checks), "--log-format", "json")
    with (
        FakeKubelet(tmp_path) as kubelet,
        running(*arguments, "--device-plugin-dir", str(tmp_path)) as process,
    ):
        kubelet.wait_registered(TIMEOUT_S)
        assert process.stderr is not None
        lines = map(json.loads, process.stderr)  # one that never comes takes too long
        scrape(next(line["url"] for line in lines if line["event"] == "metrics served"))
        told = next(line for line in lines if line["event"] == "notice")
        assert told["reason"] == "ConfigRefused"
        assert "unknown check 'KUB-0004'" in told["message"]


def test_metrics_say_that_the_resource_is_registered(tmp_path: Path) -> None:
    log_line = ""
    with FakeKubelet(tmp_path) as kubelet:
        arguments = ("--machine", "dgx-h100", "--device-plugin-dir", str(tmp_path))
        with running(*arguments, "--log-format", "json") as process:
            kubelet.wait_registered(TIMEOUT_S)
            assert process.stderr is not None
            for log_line in process.stderr:
                if "metrics served" in log_line:
                    break
            url = json.loads(log_line)["url"]
            # The kubelet has the list a moment before the plugin has the kubelet's answer.
            is_registered = eventually(
                lambda: 'nodetopo_registered{resource="nvidia.com/gpu"} 1.0' in scrape(url)
            )
    assert is_registered


def test_non_critical_modules_are_loaded_after_the_registration() -> None:
    late = (
        "nodetopo.components.audit.catalogue",
        "nodetopo.admission.admit",
        *(f"nodetopo.components.{name}.component" for name in ("audit", "labels", "zones", "page")),
        "kubernetes",
    )
    early = "nodetopo.kernel.app, nodetopo.components.gpus.component"
    program = f"import sys, {early}; print([m for m in {late} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        env=environment(),
        check=True,
    )
    assert done.stdout == "[]\n"
