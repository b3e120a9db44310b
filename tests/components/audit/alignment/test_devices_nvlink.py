"""NVLink that makes GPUs of several NUMA nodes worth it."""

import pytest
from msgspec.structs import replace

from nodetopo.components.audit.alignment.record import Alignment, Part
from nodetopo.model.numa import CpuSet
from nodetopo.model.pci import PciAddress
from tests.components.audit.alignment.alignment_nodes import (
    GIB,
    apart,
    joined_by_nvlink,
    node,
    placed,
    row,
    worker,
)

H100 = node()


def test_bridged_gpus_of_two_sockets_are_worth_it() -> None:
    pairs = [(0, 4), (1, 5), (2, 6), (3, 7)]
    snapshot = joined_by_nvlink(H100, pairs)
    held = worker(snapshot, [0, 4], cpus="0-7,56-63", memory={0: GIB, 1: GIB})
    assert row(placed(snapshot, held)).verdict is Alignment.ALIGNED
    other = worker(snapshot, [0, 5], cpus="0-7,56-63", memory={0: GIB, 1: GIB})
    assert list(apart(placed(snapshot, other))) == [Part.GPUS]


@pytest.mark.timeout(60)
def test_a_machine_of_very_many_numa_nodes_is_measured_in_time() -> None:
    model, count = H100.gpus[0], 40
    nodes = tuple(
        replace((H100.numa_nodes or ())[0], id=n, cpus=CpuSet.of([n])) for n in range(count)
    )
    gpus = tuple(
        replace(model, index=n, uuid=f"GPU-{n}", numa_node=max(n - 1, 0)) for n in range(count)
    )
    gpus = tuple(replace(gpu, pci=PciAddress(gpu.index, 1, 0, 0)) for gpu in gpus)
    whole = replace(H100, numa_nodes=nodes, gpus=gpus, hcas=())
    # A chain of 20 that NVLink joins, on 20 NUMA nodes; 19 hold as many, which it does not join.
    vast = joined_by_nvlink(whole, [(n, n + 1) for n in range(1, 20)])
    held = worker(vast, range(1, 21), cpus="0-39")
    assert Part.GPUS in apart(placed(vast, held))
