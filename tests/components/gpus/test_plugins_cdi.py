"""What a kubelet may hand out while no container could be started with a GPU."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from nodetopo.deviceplugin.cdi import OWN_KIND
from nodetopo.kernel.settings.policies import TimeSlicing
from nodetopo.topology.neighbours import ServedByDra
from tests.components.gpus.plugin_sets import WAIT_S, ServedNode, serving_node
from tests.deviceplugin.driver_tree import UBUNTU, VERSION, add_nodes, install
from tests.deviceplugin.eventually import eventually
from tests.deviceplugin.machines import node

GPU = "nvidia.com/gpu"
WHOLE = replace(node("h100x8-nvswitch-2numa-8cx7"), driver_version=VERSION)
MIG = replace(node("h100x8-nvswitch-2numa-mig"), driver_version=VERSION)
IDS = [gpu.id for gpu in WHOLE.gpus]
CUDA = Path(UBUNTU[1:], f"libcuda.so.{VERSION}")


@contextmanager
def writing_node(host: Path, **more: Any) -> Iterator[ServedNode]:
    """Yield a set of plugins that writes the CDI specification of *host*."""
    settings = {"cdi_spec": "write", "cdi_kind": OWN_KIND, "host_root": host, "procfs_root": host}
    with serving_node(**settings, **more) as served:
        yield served


@pytest.fixture
def host(tmp_path: Path) -> Path:
    install(tmp_path)
    add_nodes(tmp_path, "nvidiactl", "nvidia-uvm", *(f"nvidia{n}" for n in range(8)))
    return tmp_path


def healthy(served: ServedNode) -> list[str]:
    """Return the ids of what the kubelet may hand out."""
    devices = served.kubelet.wait_registered(WAIT_S).devices
    return [device.id for device in devices if device.is_healthy]


def test_without_a_specification_no_gpu_is_handed_out_until_there_is_one(host: Path) -> None:
    (host / CUDA).rename(host / "away")
    with writing_node(host) as served:
        served.plugins.take(WHOLE)
        assert healthy(served) == []
        assert served.listed(GPU) == {GPU: 8}  # the capacity stays
        problem = served.plugins.cdi_problem
        assert problem is not None
        assert "there is none, and 8 devices are not handed out" in problem

        (host / "away").rename(host / CUDA)
        served.plugins.take(WHOLE)
        assert eventually(lambda: healthy(served) == IDS)
        assert served.plugins.cdi_problem is None


@pytest.mark.parametrize("absent", [CUDA, Path("dev/nvidiactl"), Path("dev/nvidia-uvm")])
def test_the_specification_from_before_goes_on_handing_out_gpus(host: Path, absent: Path) -> None:
    with writing_node(host) as served:
        served.plugins.take(WHOLE)
        assert healthy(served) == IDS
        (file,) = (host / "var/run/cdi").iterdir()
        before = file.read_bytes()

        (host / absent).rename(host / "away")
        served.plugins.take(replace(WHOLE, node="again"))
        problem = served.plugins.cdi_problem
        assert problem is not None
        assert "the one from before stays" in problem
        assert file.read_bytes() == before
        assert len(served.kubelet.allocate(IDS[:1]).cdi_devices) == 1
        assert healthy(served) == IDS


def test_a_gpu_without_its_device_node_alone_is_not_handed_out(host: Path) -> None:
    (host / "dev/nvidia3").unlink()
    with writing_node(host) as served:
        served.plugins.take(WHOLE)
        assert healthy(served) == IDS[:3] + IDS[4:]
        assert "1 device is not handed out" in str(served.plugins.cdi_problem)


def test_only_what_is_offered_has_to_be_in_the_specification(host: Path) -> None:
    with writing_node(host) as served:  # MIG devices have no known capabilities
        served.plugins.take(MIG)
        assert healthy(served) == [gpu.id for gpu in MIG.gpus]
        assert served.plugins.cdi_problem is None


def test_replicas_of_a_gpu_without_its_device_node_are_not_handed_out(host: Path) -> None:
    (host / "dev/nvidia0").unlink()
    with writing_node(host, time_slicing=TimeSlicing(replicas={GPU: 2})) as served:
        served.plugins.take(WHOLE)
        assert {name.partition("::")[0] for name in healthy(served)} == set(IDS[1:])


def test_gpus_that_are_handed_over_otherwise_do_not_wait_for_a_specification(host: Path) -> None:
    (host / CUDA).unlink()
    with writing_node(host, device_list_strategy=("envvar",)) as served:
        served.plugins.take(WHOLE)
        assert healthy(served) == IDS
        assert "there is none: no libcuda.so" in str(served.plugins.cdi_problem)


def test_a_specification_that_others_write_is_not_waited_for(tmp_path: Path) -> None:
    with serving_node(host_root=tmp_path) as served:
        served.plugins.take(WHOLE)
        assert healthy(served) == IDS
        assert served.plugins.cdi_problem is None


def test_gpus_of_claims_keep_their_names_after_our_dra_driver_is_turned_off(host: Path) -> None:
    theirs = ServedByDra(gpus=dict.fromkeys(IDS[:2], "nodetopo.io"))
    uuids = [gpu.uuid or "" for gpu in WHOLE.gpus[:2]]
    with writing_node(host) as served:
        served.plugins.has_claims = True
        served.plugins.take(WHOLE, served_by_dra=theirs)
        assert served.listed(GPU) == {GPU: 6}
        assert len(served.plugins.cdi_names(uuids)) >= 2
