"""HCAs that fail, as the kubelet gets to see them: a whole daemon on a sysfs that changes."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from nodetopo.deviceplugin.fake_kubelet import FakeKubelet
from nodetopo.tools.capture.archive import unpack
from tests.conftest import NODES
from tests.generous_deadlines import use_generous_deadlines
from tests.kernel.test_app_health import TIMEOUT_S, eventually, running, unhealthy
from tests.probes.sysfs.hca_machine import HcaMachine

__all__ = ["use_generous_deadlines"]

SHAPE = "h100x8-nvswitch-2numa-8cx7"
RESOURCE = "rdma/hca"

EINVAL = Path("/sys/class/net/lo/speed")
"""A file of this machine's kernel that answers EINVAL: the loopback interface has no speed (kernel
net/core/net-sysfs.c, speed_show)."""

EIO = Path("/proc/self/mem")
"""One that answers EIO: nothing is mapped at address 0 (proc_pid_mem(5))."""


@pytest.fixture
def directory() -> Iterator[Path]:
    """Return a place for a node, with a short path for its sockets."""
    with TemporaryDirectory(prefix="nt-") as short:
        unpack((NODES / SHAPE / "sysfs.txt").read_text("utf-8"), Path(short) / "host")
        (Path(short) / "host/sys").rename(Path(short) / "sysfs")
        pool = {"resourceName": "hca", "rdmaHcaMax": 8, "selectors": {"vendors": ["15b3"]}}
        config = {"configList": [{**pool, "mode": "exclusive"}]}
        (Path(short) / "rdma.json").write_text(json.dumps(config), "ascii")
        yield Path(short)


def answer_as(node: HcaMachine, name: str, file: Path) -> None:
    """Let the state of an HCA's port answer as *file* does."""
    state = node.place(name) / "ports/1/state"
    state.unlink()
    state.symlink_to(file)


def test_hcas_that_fail_in_every_way_are_out_and_the_others_stay(directory: Path) -> None:
    node = HcaMachine(directory / "sysfs")
    options = ("--rdma-config", str(directory / "rdma.json"))
    with FakeKubelet(directory) as kubelet, running(directory, SHAPE, *options) as daemon:
        devices = kubelet.wait_registered(TIMEOUT_S, RESOURCE).devices
        ids = [device.id for device in devices]
        assert len(ids) == 8
        assert all(device.is_healthy for device in devices)
        function = node.function("mlx5_4")

        node.set_state("mlx5_0", "1: DOWN")
        node.rename("mlx5_1", "ibp42s0")
        answer_as(node, "mlx5_2", EINVAL)
        answer_as(node, "mlx5_3", EIO)
        node.write("module/ib_core/parameters/netns_mode", "N")
        node.remove("mlx5_4")
        (node.sysfs / "bus/pci/devices" / function.name).unlink()
        shutil.rmtree(function)
        back = node.remove("mlx5_5")

        out = [ids[number] for number in (0, 3, 4, 5)]
        eventually(lambda: unhealthy(kubelet, RESOURCE) == out)
        eventually(lambda: len(daemon.said("HcaUnhealthy")) == 4)
        causes = sorted(message.partition(": ")[::2] for message in daemon.said("HcaUnhealthy"))
        assert [(name.partition(" ")[0], said.partition(";")[0]) for name, said in causes] == [
            ("mlx5_0", "its port is down"),
            ("mlx5_3", "its firmware does not answer: no state of a port can be read"),
            ("mlx5_4", "its PCI function vanished from the bus"),
            ("mlx5_5", "it is in another network namespace"),
        ]

        node.set_state("mlx5_0", "4: ACTIVE")
        back()
        still = [ids[number] for number in (3, 4)]
        eventually(lambda: unhealthy(kubelet, RESOURCE) == still)
        eventually(lambda: len(daemon.said("HcaRecovered")) == 2)
        view = kubelet.view(RESOURCE)
        assert view is not None
        assert [device.id for device in view.devices] == ids


def test_an_hca_that_is_down_at_the_start_is_never_offered_as_healthy(directory: Path) -> None:
    HcaMachine(directory / "sysfs").set_state("mlx5_6", "2: INIT")
    options = ("--rdma-config", str(directory / "rdma.json"))
    with FakeKubelet(directory) as kubelet, running(directory, SHAPE, *options) as daemon:
        devices = kubelet.wait_registered(TIMEOUT_S, RESOURCE).devices
        assert [number for number, it in enumerate(devices) if not it.is_healthy] == [6]
        assert daemon.said("HcaUnhealthy") == []


def test_a_verdict_outlives_the_daemon_until_the_hca_recovers(directory: Path) -> None:
    node = HcaMachine(directory / "sysfs")
    boot = directory / "procfs/sys/kernel/random/boot_id"
    boot.parent.mkdir(parents=True, exist_ok=True)
    boot.write_text("3f1d0b9e-0000-4000-8000-000000000000\n")
    options = ("--rdma-config", str(directory / "rdma.json"), "--recovery", "600")
    with FakeKubelet(directory) as kubelet, running(directory, SHAPE, *options):
        ids = [it.id for it in kubelet.wait_registered(TIMEOUT_S, RESOURCE).devices]
        node.set_state("mlx5_0", "1: DOWN")
        node.remove("mlx5_4")
        eventually(lambda: unhealthy(kubelet, RESOURCE) == [ids[0], ids[4]])
        eventually((directory / "hcas.json").exists)
        saved = directory / "hcas.json"
        eventually(lambda: saved.read_text().count('"fault"') == 2)
    node.set_state("mlx5_0", "4: ACTIVE")
    with FakeKubelet(directory) as kubelet, running(directory, SHAPE, *options):
        devices = kubelet.wait_registered(TIMEOUT_S, RESOURCE).devices
        assert [it.id for it in devices] == ids
        assert [it.id for it in devices if not it.is_healthy] == [ids[0], ids[4]]
    short = (*options[:2], "--recovery", "1")
    with FakeKubelet(directory) as kubelet, running(directory, SHAPE, *short) as daemon:
        kubelet.wait_registered(TIMEOUT_S, RESOURCE)
        eventually(lambda: unhealthy(kubelet, RESOURCE) == [ids[4]])
        eventually(lambda: len(daemon.said("HcaRecovered")) == 1)
