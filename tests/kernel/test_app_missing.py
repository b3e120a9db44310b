"""GPUs that NVML does not list though they are on PCI: a whole daemon on a fake driver."""

import re
import urllib.error
import urllib.request
from pathlib import Path

from nodetopo.deviceplugin.fake_kubelet import FakeKubelet
from nodetopo.tools.capture.archive import unpack
from tests.kernel.test_app_health import (
    NODES,
    TIMEOUT_S,
    Daemon,
    eventually,
    running,
    use_generous_deadlines,
)

__all__ = ["use_generous_deadlines"]

SHAPE = "l40sx4-pcie-2numa"
ANSWERS = (NODES / SHAPE / "nvml.txt").read_text("utf-8")
COUNT = re.compile(r"nvmlDeviceGetCount_v2 = 0 4")


def listing(count: int) -> str:
    """Return a driver that lists *count* of the four GPUs."""
    return COUNT.sub(f"nvmlDeviceGetCount_v2 = 0 {count}", ANSWERS)


def readiness(daemon: Daemon) -> str:
    """Return what /readyz answers."""
    try:
        with urllib.request.urlopen(daemon.url().replace("/metrics", "/readyz")) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError as error:
        return error.read().decode()


def missing(daemon: Daemon) -> list[str]:
    """Return the samples of the GPUs that are missing."""
    with urllib.request.urlopen(daemon.url()) as answer:
        lines = answer.read().decode().splitlines()
    return [line for line in lines if line.startswith("nodetopo_gpus_missing{")]


def test_a_node_whose_driver_lists_no_gpu_is_not_ready_until_it_does(tmp_path: Path) -> None:
    unpack((NODES / SHAPE / "sysfs.txt").read_text("utf-8"), tmp_path / "host")
    tree = {"sysfs": "host/sys", "procfs": "host/proc"}
    for name, place in tree.items():
        (tmp_path / name).symlink_to(tmp_path / place)
    with FakeKubelet(tmp_path) as kubelet, running(tmp_path, SHAPE) as daemon:
        kubelet.wait_registered(TIMEOUT_S)
        daemon.nvml.answer(listing(3))
        (said,) = eventually(lambda: daemon.said("GpusMissing"))
        assert "0000:e1:00.0 on the PCI bus, and not listed by NVML" in said
        eventually(lambda: 'nodetopo_gpus_missing{seen_on="pci"} 1.0' in missing(daemon))
        assert readiness(daemon) == "ok\n"

        daemon.nvml.answer(listing(0))
        eventually(lambda: readiness(daemon).startswith("GpusMissing: NVML lists none of the 4"))
        daemon.nvml.answer(ANSWERS)
        eventually(lambda: readiness(daemon) == "ok\n")
        eventually(lambda: daemon.said("GpusComplete"))
        assert missing(daemon) == [
            'nodetopo_gpus_missing{seen_on="pci"} 0.0',
            'nodetopo_gpus_missing{seen_on="none"} 0.0',
        ]
