"""KUB-032: GPUs and RDMA devices of one pod, which the policy wants from the same NUMA nodes."""

from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from nodetopo.admission.admit import admit
from nodetopo.checks.rule import Verdict
from nodetopo.components.audit.rules.kubelet.demand import preferred
from nodetopo.model.kubelet_state import CpuState, DeviceState, KubeletState, MemoryState
from nodetopo.model.node import NodeOffer, PlacedDevice
from nodetopo.model.pod import Container, Pod
from nodetopo.model.snapshot import Snapshot
from tests.components.audit.judge import NODE, SETTINGS, result
from tests.components.audit.rules.kubelet.kubelet_node import missing, node, observed, skipped

GPU, HCA = "nvidia.com/gpu", "rdma/hca"
AMOUNTS = {"cpu": 32_000, "memory": 1 << 40, GPU: 8, HCA: 8}


def asking(
    hcas: int,
    gpus: int = 8,
    *,
    policy: str = "restricted",
    nodes: Mapping[str, tuple[int, ...]] | None = None,
    **fields: Any,
) -> Snapshot:
    """Return a node of four GPUs and four HCAs on each NUMA node, and a pod that asks for some.

    *nodes* are those of each resource's devices, in turn; empty where the plugin reports none.
    """
    amounts = {GPU: gpus, HCA: hcas}
    pod = Pod(
        namespace="ml",
        name="job",
        containers=(Container(name="c", requests=amounts, limits=amounts),),
    )
    spots = {GPU: (0, 1), HCA: (0, 1), **(nodes or {})}
    devices = (
        PlacedDevice(
            resource=name,
            id=f"{name}-{number}",
            numa_nodes=(places[number % len(places)],) if places else (),
        )
        for name, places in spots.items()
        for number in range(8)
    )
    settings = {"topology_manager_policy": policy}
    whole = replace(node(**settings), pods=(pod,), offer=NodeOffer(devices=tuple(devices)))
    return replace(whole, **fields)


def test_all_gpus_and_one_hca_prefer_other_numbers_of_nodes() -> None:
    found = asking(1)
    assert observed("KUB-032", found) == ["8 nvidia.com/gpu, 1 rdma/hca"]
    assert result("KUB-032", found).verdict is Verdict.FAIL


@pytest.mark.parametrize(("hcas", "gpus"), [(8, 8), (5, 8), (4, 4), (1, 4), (1, 1)])
def test_as_many_nodes_for_each_are_admitted(hcas: int, gpus: int) -> None:
    assert observed("KUB-032", asking(hcas, gpus)) == []


@pytest.mark.parametrize(("hcas", "count"), [(4, 0), (5, 1), (8, 1)])
def test_under_single_numa_node_one_node_has_to_have_all(hcas: int, count: int) -> None:
    found = asking(hcas, 4, policy="single-numa-node")
    assert len(observed("KUB-032", found)) == count


def test_gpus_that_no_node_has_are_another_rules() -> None:
    assert observed("KUB-032", asking(1, 8, policy="single-numa-node")) == []
    assert observed("KUB-005", asking(1, 8, policy="single-numa-node")) != []


@pytest.mark.parametrize("policy", ["restricted", "single-numa-node"])
def test_devices_of_one_node_each_never_meet(policy: str) -> None:
    apart = asking(1, 1, policy=policy, nodes={GPU: (0,), HCA: (1,)})
    assert observed("KUB-032", apart) == ["1 nvidia.com/gpu, 1 rdma/hca"]


def test_devices_without_numa_nodes_are_bound_to_none() -> None:
    assert observed("KUB-032", asking(1, nodes={HCA: ()})) == []


def test_what_does_not_apply_and_what_is_missing() -> None:
    assert skipped("KUB-032", asking(1, policy="best-effort")) == (
        "topologyManagerPolicy is best-effort"
    )
    assert skipped("KUB-032", asking(0)) == "no pod asks for GPUs and RDMA devices"
    assert missing("KUB-032", asking(1, offer=None)) == ("NUMA nodes of rdma/hca",)


def test_preferred_are_the_smallest_sets_that_have_so_many() -> None:
    spots = ((0,), (0,), (1,), (1,))
    assert list(preferred(spots, 2)) == [0b01, 0b10]
    assert list(preferred(spots, 3)) == [0b11]
    assert not preferred(spots, 5)


@pytest.mark.parametrize("policy", ["restricted", "single-numa-node"])
@pytest.mark.parametrize("hca_nodes", [(0, 1), (1,), (0, 0, 1), (0, 1, 1, 1)])
@pytest.mark.parametrize("gpus", [1, 3, 4, 5, 8])
def test_what_is_found_is_what_the_kubelets_managers_refuse(
    policy: str, hca_nodes: tuple[int, ...], gpus: int
) -> None:
    for hcas in range(1, 9):
        snapshot = asking(hcas, gpus, policy=policy, nodes={HCA: hca_nodes})
        (pod,) = snapshot.pods or ()
        idle = replace(
            snapshot,
            pods=(),
            kubelet_state=KubeletState(
                cpu=CpuState(policy="none"),
                memory=MemoryState(policy="None"),
                devices=DeviceState(),
            ),
            node_status=replace(NODE, capacity=AMOUNTS, allocatable=AMOUNTS),
            kubelet=replace(
                snapshot.kubelet or SETTINGS,
                cpu_manager_policy="none",
                cpu_manager_options={},
                reserved_memory=(),
                memory_manager_policy="None",
            ),
        )
        (answer,) = admit(idle, (pod,)).pods
        assert answer.missing == ()
        is_found = bool(observed("KUB-032", snapshot) or observed("KUB-005", snapshot))
        assert is_found == (answer.admitted is False), (hcas, answer.message)
