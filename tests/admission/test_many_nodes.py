"""Machines of more NUMA nodes than the kubelet allows by itself: GB200, and larger ones."""

from typing import Any

import pytest
from msgspec.structs import replace

from nodetopo.admission.admit import PodAdmission, admit
from nodetopo.admission.hints import MOST_SHOWN, Hint
from nodetopo.admission.sizes import admitted_sizes
from nodetopo.admission.suggestions import with_changes
from nodetopo.machines.bundled import machine
from nodetopo.model.kubelet_state import CpuState, KubeletState, MemoryBlock, MemoryState
from nodetopo.model.node import NodeOffer, PlacedDevice
from nodetopo.model.numa import CpuSet, CpuTopology, NumaNode, Socket
from nodetopo.model.pod import Container, Pod
from nodetopo.model.snapshot import Snapshot
from tests.admission.admission_node import GPU, container, kubelet, pod

_OLD, _NEW = "v1.35.6", "v1.36.0"


def _gb200(version: str = _NEW, **changes: Any) -> Snapshot:
    """Return a tray whose GPUs' memory is 32 NUMA nodes beside the two with CPUs, all allowed."""
    tray = machine("gb200-nvl72")
    assert tray.kubelet is not None
    allowed = {"max-allowable-numa-nodes": str(len(tray.numa_nodes or ()))}
    settings = replace(
        tray.kubelet,
        version=version,
        topology_manager_policy="restricted",
        topology_manager_options=allowed,
        cpu_manager_policy="static",
        reserved_system_cpus="0",
    )
    state = KubeletState(
        cpu=CpuState(policy="static", default=CpuSet.of(range(144)), entries={}),
        devices=tray.kubelet_state.devices if tray.kubelet_state else None,
    )
    return replace(tray, kubelet=replace(settings, **changes), kubelet_state=state, pods=())


def _with_memory(tray: Snapshot) -> Snapshot:
    """Return *tray* with the policy ``Static``, whose state has every NUMA node."""
    blocks = tuple(
        MemoryBlock(
            numa_node=node.id,
            kind="memory",
            total=(node.memory_mib or 0) << 20,
            system_reserved=0,
            allocatable=(node.memory_mib or 0) << 20,
            reserved=0,
            free=(node.memory_mib or 0) << 20,
            cells=(node.id,),
        )
        for node in tray.numa_nodes or ()
    )
    assert tray.kubelet is not None
    assert tray.kubelet_state is not None
    static = MemoryState(policy="Static", blocks=blocks, entries={})
    return replace(
        tray,
        kubelet=replace(tray.kubelet, memory_manager_policy="Static"),
        kubelet_state=replace(tray.kubelet_state, memory=static),
    )


def _ask(seen: Snapshot, *containers: Container) -> PodAdmission:
    asked: list[Pod] = [pod("job", *containers)]
    return with_changes(seen, admit(seen, asked), asked).pods[0]


def test_on_gb200_hints_are_of_the_nodes_that_have_the_resource() -> None:
    found = _ask(_gb200(), container(gpus=2, cpus=16, gib=64))

    assert found.admitted is True
    (work,) = found.containers
    single = (Hint(1, preferred=True), Hint(2, preferred=True), Hint(3, preferred=False))
    assert work.hints == {GPU: single, "cpu": single}
    assert work.merged == Hint(1, preferred=True)
    assert str(work.cpus) == "1-16"


def test_on_gb200_a_rejection_comes_with_what_would_help() -> None:
    found = _ask(_gb200(), container(gpus=4, cpus=16, gib=64))

    assert (found.admitted, found.reason) == (False, "TopologyAffinityError")
    assert found.changes[:2] == (
        "container work: 2 nvidia.com/gpu instead of 4",
        "container work: 73 CPUs instead of 16",
    )


@pytest.mark.parametrize("policy", ["best-effort", "restricted", "single-numa-node"])
def test_before_1_36_devices_of_34_nodes_are_never_given(policy: str) -> None:
    old = _gb200(_OLD, topology_manager_policy=policy)
    found = _ask(old, container(gpus=1, cpus=2, gib=4))

    assert found.admitted is None
    (text,) = found.missing
    assert text == (
        "an answer from the kubelet: its Device Manager for nvidia.com/gpu tries all "
        "17,179,869,183 sets of 34 NUMA nodes (kubernetes issue 135541); kubelets from 1.36 on "
        "take only nodes that have devices"
    )
    assert _ask(old, container(cpus=2, gib=4)).admitted is True
    assert [one.missing for one in admitted_sizes(old, GPU, (1,))] == [found.missing]
    assert _ask(_gb200(_OLD, topology_manager_policy="none"), container(gpus=1)).admitted is True


def test_without_a_release_devices_of_34_nodes_have_no_answer() -> None:
    bare = _gb200(version="")
    found = _ask(replace(bare, kubelet_on_disk=None, node_status=None), container(gpus=1))

    problem = "which up to 1.35 does not come to an end with devices on 34 NUMA nodes"
    assert found.missing == (f"the kubelet's version, {problem}",)


@pytest.mark.parametrize("version", [_OLD, _NEW, "v1.37.1"])
@pytest.mark.parametrize("policy", ["none", "restricted"])
def test_no_release_pins_memory_of_34_nodes(version: str, policy: str) -> None:
    static = _with_memory(_gb200(version, topology_manager_policy=policy))
    found = _ask(static, container(cpus=2, gib=4))

    assert found.admitted is None
    assert "its Memory Manager tries all 17,179,869,183 sets" in found.missing[0]
    assert found.missing[0].endswith("memoryManagerPolicy None avoids it")
    assert _ask(static, container(cpus=0.5)).admitted is True  # not Guaranteed


def test_what_pods_after_one_without_a_verdict_find_is_not_known() -> None:
    asked = [pod("one", container(gpus=1)), pod("two", container(cpus=1))]
    first, second = admit(_gb200(_OLD), asked).pods

    assert first.missing[0].startswith("an answer from the kubelet")
    assert second.missing == ("the verdict on ml/one, which determines the remaining resources",)


def _grid(
    count: int, *, cpus: int, gpus: int = 0, free: int | None = None, version: str = _NEW
) -> Snapshot:
    """Return *count* NUMA nodes of 1 GiB, with *cpus* CPUs each and one GPU on the first ones.

    *free* nodes have their CPUs free.
    """
    sets = [CpuSet.of(range(it * cpus, (it + 1) * cpus)) for it in range(count)]
    whole = CpuSet.of(range(count * cpus))
    shared = CpuSet.of(range((count if free is None else free) * cpus))
    placed = tuple(
        PlacedDevice(resource=GPU, id=f"GPU-{it}", numa_nodes=(it,)) for it in range(gpus)
    )
    return Snapshot(
        numa_nodes=tuple(
            NumaNode(
                id=it,
                cpus=one,
                memory_mib=1024,
                distances=tuple(10 + abs(it - other) for other in range(count)),
            )
            for it, one in enumerate(sets)
        ),
        cpu=CpuTopology(
            online=whole,
            sockets=(Socket(id=0, cpus=whole),),
            cores=tuple(CpuSet.of((it,)) for it in whole),
            l3_groups=(),
        ),
        kubelet=kubelet(
            version=version,
            topology_manager_policy="best-effort",
            topology_manager_options={"max-allowable-numa-nodes": str(max(count, 8))},
            memory_manager_policy="None",
            reserved_system_cpus="",
        ),
        kubelet_state=KubeletState(cpu=CpuState(policy="static", default=shared, entries={})),
        pods=(),
        offer=NodeOffer(devices=placed),
    )


def test_up_to_27_nodes_with_cpus_are_answered_without_going_through_their_sets() -> None:
    (work,) = _ask(_grid(27, cpus=2), container(cpus=9, gib=1)).containers

    assert work.merged == Hint(0b11111, preferred=True)
    assert len(work.hints["cpu"] or ()) == MOST_SHOWN
    assert work.why[0].startswith("cpu: prefers NUMA 0+1+2+3+4 or NUMA 0+1+2+3+5 or ")
    assert work.why[0].endswith(" or one of 80,726 more")
    beyond = _ask(_grid(28, cpus=2), container(cpus=9, gib=1)).missing
    assert "its CPU Manager tries all 268,435,455 sets of 28 NUMA nodes" in beyond[0]


def test_of_64_nodes_those_that_have_the_resource_count() -> None:
    wide = _grid(64, cpus=0, gpus=6)
    settings = kubelet(
        cpu_manager_policy="none",
        memory_manager_policy="None",
        topology_manager_options={"max-allowable-numa-nodes": "64"},
    )
    off = replace(wide, kubelet=settings, kubelet_state=None)
    found = _ask(off, container(gpus=3))

    assert found.containers[0].merged == Hint(0b111, preferred=True)


@pytest.mark.parametrize(("version", "mask"), [(_NEW, 0b10), (_OLD, 0b11)])
def test_nodes_without_devices_count_up_to_1_35(version: str, mask: int) -> None:
    """Two HCAs take two nodes; the GPU, which is near one of them, then comes from both."""
    hcas = tuple(PlacedDevice(resource="x/hca", id=f"x{it}", numa_nodes=(it,)) for it in (0, 1))
    gpu = PlacedDevice(resource=GPU, id="GPU-0", numa_nodes=(1,))
    grid = replace(_grid(4, cpus=2, version=version), offer=NodeOffer(devices=(*hcas, gpu)))
    (work,) = _ask(grid, container(gpus=1, cpus=1, gib=1, more={"x/hca": 2})).containers

    assert work.merged == Hint(mask, preferred=False)


def test_minutes_in_which_nobody_else_is_admitted_are_told() -> None:
    slow = _ask(_grid(18, cpus=2, gpus=18), container(gpus=1, cpus=1, gib=1))
    quick = _ask(_grid(8, cpus=2, gpus=8), container(gpus=1, cpus=1, gib=1))

    assert slow.admitted is None
    assert "68,718,952,449 combinations" in slow.missing[0]
    assert quick.why == ()
    (text,) = _ask(_grid(15, cpus=2, gpus=15), container(gpus=1, cpus=1, gib=1)).why
    assert text == (
        "the kubelet tries 1,073,676,289 combinations of sets of NUMA nodes: about 5 min, during "
        "which it admits no other pod"
    )
    (text,) = _ask(_grid(24, cpus=2), container(cpus=1, gib=1)).why
    assert text.startswith("the kubelet tries 16,777,215 combinations")


def test_as_many_sets_as_are_not_compared_have_no_answer() -> None:
    far = _grid(22, cpus=2, free=21)
    assert far.kubelet is not None
    options = {"max-allowable-numa-nodes": "22", "prefer-closest-numa-nodes": "true"}
    far = replace(far, kubelet=replace(far.kubelet, topology_manager_options=options))

    assert _ask(far, container(cpus=4, gib=1)).containers[0].merged == Hint(3, preferred=True)
    missing = _ask(far, container(cpus=20, gib=1)).missing
    assert missing[0].endswith("as many as 352,716 sets of NUMA nodes, which is not worked out")
