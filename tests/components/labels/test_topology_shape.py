"""One value for all nodes of one build."""

import re

import pytest
from msgspec import structs

from nodetopo.model.hca import Hca, HcaKind
from nodetopo.model.numa import CpuSet, NumaNode
from nodetopo.model.nvlink import Closeness
from nodetopo.model.pci import PciAddress
from nodetopo.model.probe_issue import ProbeIssue
from nodetopo.model.snapshot import Snapshot
from tests.components.labels.topology_machines import own, shape, with_gpu, with_port
from tests.conftest import NODES
from tests.strategies import node

DGX = shape("h100x8-nvswitch-2numa-8cx7")


def of(snapshot: Snapshot) -> str | None:
    return own(snapshot).get("shape")


def test_no_two_kinds_of_machine_share_a_shape() -> None:
    found = [value for path in sorted(NODES.iterdir()) if (value := of(shape(path.name)))]
    assert len(set(found)) == len(found) > 20
    assert [value for value in found if not re.fullmatch(r"[0-9a-f]{16}", value)] == []


def test_serials_names_and_addresses_do_not_count() -> None:
    gpus = tuple(
        structs.replace(gpu, uuid=f"GPU-{gpu.index}", serial="7", vbios="x", minor=9)
        for gpu in DGX.gpus
    )
    hcas = tuple(structs.replace(hca, name=f"ib{at}") for at, hca in enumerate(DGX.hcas or ()))
    twin = structs.replace(
        DGX, node="other", gpus=gpus, hcas=hcas, driver_version="1.2", kubelet=None, kernel=None
    )
    assert of(twin) == of(DGX)


def test_the_order_in_which_the_kernel_registered_hcas_does_not_count() -> None:
    assert of(structs.replace(DGX, hcas=(DGX.hcas or ())[::-1])) == of(DGX)


def test_a_port_that_is_down_does_not_count() -> None:
    assert of(with_port(DGX, "mlx5_1", state="DOWN", rate_gbps=10.0)) == of(DGX)


def test_virtual_functions_that_come_and_go_do_not_count() -> None:
    card = (DGX.hcas or ())[0]
    function = Hca(
        name="mlx5_99",
        kind=HcaKind.VIRTUAL,
        parent=card.pci,
        pci=PciAddress(0, 0xF0, 0, 1),
        path=card.path,
    )
    assert of(structs.replace(DGX, hcas=(*(DGX.hcas or ()), function))) == of(DGX)


@pytest.mark.parametrize(
    "other",
    [
        with_gpu(DGX, 0, product="NVIDIA H200"),
        with_gpu(DGX, 0, numa_node=1),
        structs.replace(DGX, nvlinks=(DGX.nvlinks or ())[1:]),
        structs.replace(DGX, hcas=(DGX.hcas or ())[1:]),
        structs.replace(DGX, numa_nodes=(DGX.numa_nodes or ())[1:]),
        structs.replace(
            DGX, gpus=(structs.replace(DGX.gpus[0], path=DGX.gpus[7].path), *DGX.gpus[1:])
        ),
    ],
    ids=["model", "numa", "nvlink", "hca", "numa nodes", "pcie"],
)
def test_whatever_a_job_could_feel_makes_another_shape(other: Snapshot) -> None:
    assert of(other) not in (None, of(DGX))


def _pair(*places: int, nodes: int = 2) -> Snapshot:
    """Return two GPUs on one switch, wherever they are said to be."""
    machine = node(numa=places, distances={(0, 1): Closeness.PIX})
    gpus = tuple(structs.replace(gpu, product="L4") for gpu in machine.gpus)
    numa_nodes = tuple(NumaNode(id=place, cpus=CpuSet.of((place,))) for place in range(nodes))
    return structs.replace(machine, gpus=gpus, numa_nodes=numa_nodes, pci_gpus=())


@pytest.mark.parametrize("other", [_pair(1, 1), _pair(0, 0, nodes=3)], ids=["place", "count"])
def test_numa_nodes_count_beyond_the_distances_that_they_make(other: Snapshot) -> None:
    assert of(other) not in (None, of(_pair(0, 0)))


@pytest.mark.parametrize(
    "partial",
    [
        structs.replace(DGX, hcas=None),
        structs.replace(DGX, numa_nodes=None),
        structs.replace(DGX, nvlinks=None),
        structs.replace(DGX, pci_gpus=None),
        structs.replace(DGX, issues=(ProbeIssue(probe="nvml", subject="", reason="x"),)),
        with_gpu(DGX, 0, product=None),
        with_gpu(DGX, 0, is_lost=True),
    ],
    ids=["hcas", "numa", "nvlinks", "pci", "nvml", "product", "lost"],
)
def test_a_part_that_was_not_read_leaves_the_shape_open(partial: Snapshot) -> None:
    assert of(partial) is None
