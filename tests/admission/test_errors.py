"""Where there is no verdict, what is missing is named."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from nodetopo.admission.admit import admit
from nodetopo.model.gpu import Gpu
from nodetopo.model.kubelet import KubeletSettings
from nodetopo.model.kubelet_state import CpuState, MemoryState
from nodetopo.model.node import NodeOffer, NodeStatus
from nodetopo.model.numa import CpuSet, NumaNode
from nodetopo.model.pod import AssignedDevices, AssignedMemory, Container
from nodetopo.model.snapshot import Snapshot
from tests.admission.admission_node import GIB, GPU, ask, container, kubelet, node, pod

_WORK = container(gpus=1, cpus=2, gib=2)
_MEMORY = tuple(
    AssignedMemory(kind="memory", size_bytes=size * GIB, numa_nodes=(number,))
    for number, size in enumerate((31, 32))
)
_Change = Callable[[Snapshot], Snapshot]


def _settings(**changes: object) -> _Change:
    return lambda it: replace(it, kubelet=kubelet(**changes))


def _stateless(it: Snapshot) -> Snapshot:
    return replace(it, kubelet_state=None)


def _grid(count: int) -> _Change:
    nodes = tuple(NumaNode(id=it, cpus=CpuSet.of((it,)), memory_mib=1) for it in range(count))
    return lambda it: replace(
        it,
        numa_nodes=nodes,
        kubelet=kubelet(topology_manager_options={"max-allowable-numa-nodes": "40"}),
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda it: replace(it, kubelet=None), "the kubelet's settings"),
        (_settings(topology_manager_policy=None), "topologyManagerPolicy"),
        (_settings(topology_manager_policy="strict"), "'strict' is none it knows"),
        (_settings(topology_manager_scope=None), "topologyManagerScope"),
        (_settings(topology_manager_scope="node"), "'node' is none it knows"),
        (_settings(cpu_manager_options=None), "cpuManagerPolicyOptions"),
        (_settings(cpu_manager_options={"fast": "true"}), "cpuManagerPolicyOptions has 'fast'"),
        (_settings(cpu_manager_options={"full-pcpus-only": "on"}), "full-pcpus-only is 'on'"),
        (
            _settings(
                version=None,
                cpu_manager_options={
                    "distribute-cpus-across-numa": "true",
                    "align-by-socket": "true",
                },
            ),
            "the kubelet's version",
        ),
        (_settings(reserved_system_cpus="x"), "reservedSystemCPUs is not a CPU list"),
        (_settings(topology_manager_options={"max-allowable-numa-nodes": "4"}), "8 is the least"),
        (lambda it: replace(it, numa_nodes=None), "NUMA nodes"),
        (lambda it: replace(it, cpu=None), "the CPUs' topology"),
        (lambda it: replace(it, offer=None), "by PodResources"),
        (lambda it: _stateless(replace(it, pods=None)), "the CPUs that pods have"),
        (_stateless, "the memory of NUMA nodes"),
        (_grid(41), "more than 40 NUMA Nodes"),
    ],
)
def test_what_the_verdict_needs_is_named(change: _Change, words: str) -> None:
    found = ask(change(node()), _WORK)

    assert found.admitted is None
    assert any(words in text for text in found.missing), found.missing


def test_more_numa_nodes_than_the_kubelet_takes_are_named() -> None:
    crowd = replace(_grid(9)(node()), kubelet=kubelet())

    (words,) = (it for it in ask(crowd, _WORK).missing if "than 8 NUMA Nodes" in it)
    assert "and this one has 9; max-allowable-numa-nodes" in words


def test_closest_nodes_with_gaps_in_their_numbers_are_the_kubelets_panic() -> None:
    sparse = replace(
        node(topology_manager_options={"prefer-closest-numa-nodes": "true"}),
        numa_nodes=tuple(replace(it, id=it.id * 2) for it in node().numa_nodes or ()),
    )

    assert "panic at prefer-closest-numa-nodes" in ask(sparse, _WORK).missing[0]


@pytest.mark.parametrize("number", [2, -1, 70])
def test_a_state_of_other_numa_nodes_is_no_state(number: int) -> None:
    files = node()
    assert files.kubelet_state is not None
    assert files.kubelet_state.memory is not None
    first, second = files.kubelet_state.memory.blocks
    memory = MemoryState(policy="Static", blocks=(first, replace(second, numa_node=number)))
    found = ask(replace(files, kubelet_state=replace(files.kubelet_state, memory=memory)), _WORK)

    assert found.missing == ("the memory of each NUMA node: the kubelet's state is of others",)


def test_each_pod_is_told_what_is_missing_of_the_node() -> None:
    pods = [pod("a", _WORK), pod("b", _WORK)]
    found = admit(replace(node(), kubelet=None), pods).pods

    assert [it.missing for it in found] == [("the kubelet's settings",)] * 2


def test_all_that_is_missing_is_named_at_once() -> None:
    bare = Snapshot(kubelet=KubeletSettings(source="test"))

    assert len(ask(bare, _WORK).missing) >= 5


def test_a_pod_without_requests_has_no_verdict_and_those_after_it_have_none() -> None:
    blank = pod("blank", Container(name="work"))
    first, second = admit(node(), [blank, pod("after", _WORK)]).pods

    assert first.missing == ("its QoS class", "its containers' requests and limits")
    assert second.missing == ("the verdict on ml/blank, which determines the remaining resources",)


def test_the_gate_that_pins_whole_pods_is_not_guessed_at() -> None:
    whole = replace(pod("job", _WORK), requests={"cpu": 2000}, limits={"cpu": 2000})
    (found,) = admit(node(feature_gates={"PodLevelResourceManagers": True}), [whole]).pods

    assert "PodLevelResourceManagers" in found.missing[0]


def _told() -> Snapshot:
    """Return the node as PodResources tells of it."""
    files = node()
    assert files.offer is not None
    cpus = CpuSet.parse("1-15,17-31")
    return replace(
        files,
        kubelet_state=None,
        offer=NodeOffer(devices=files.offer.devices, cpus=cpus, memory=_MEMORY),
    )


def test_podresources_stands_in_for_the_state_files() -> None:
    held = replace(
        container(gpus=4, cpus=4, gib=8),
        cpus=CpuSet.parse("1-2,17-18"),
        devices=(AssignedDevices(resource=GPU, ids=("GPU-0", "GPU-1", "GPU-2", "GPU-3")),),
        memory=(AssignedMemory(kind="memory", size_bytes=8 * GIB, numa_nodes=(0,)),),
    )
    told = replace(_told(), pods=(pod("other", held, container("waiting")),))

    assert not ask(told, container(gpus=5)).admitted
    (one,) = ask(told, container(gpus=4, cpus=4, gib=24)).containers
    assert one.devices[GPU][0] == "GPU-4"
    assert ask(told, container(cpus=2, gib=24)).containers[0].memory[0].numa_nodes == (1,)


def test_what_podresources_tells_of_a_whole_pod_is_taken() -> None:
    """Its first container has two of the CPUs exclusively, the second shares the others."""
    own = replace(container("own"), cpus=CpuSet.parse("1,17"), memory=(), devices=())
    shares = replace(container("shares"), cpus=CpuSet(), memory=(), devices=())
    block = AssignedMemory(kind="memory", size_bytes=16 * GIB, numa_nodes=(0,))
    whole = replace(pod("other", own, shares), cpus=CpuSet.parse("1-7,17-23"), memory=(block,))
    told = replace(_told(), pods=(whole,))

    (one,) = ask(told, container(cpus=2, gib=8)).containers
    assert (str(one.cpus), one.memory[0].numa_nodes) == ("8,24", (1,))
    assert ask(told, container(cpus=16, gib=1)).admitted
    assert not ask(told, container(cpus=18, gib=1)).admitted


def test_a_resource_of_which_nobody_tells_is_not_taken_for_none() -> None:
    """Without the checkpoint, all its devices may be broken; the Node object tells."""
    odd = container(more={"example.com/odd": 1})
    told = _told()
    unknown = replace(told, node_status=None)
    here = replace(told, node_status=NodeStatus(capacity={"example.com/odd": 2}))
    gone = replace(told, node_status=NodeStatus(capacity={"example.com/odd": 0}))
    words = "whether a device plugin offers example.com/odd, by the kubelet's checkpoint"

    assert ask(unknown, odd).missing == ask(here, odd).missing == (words,)
    assert ask(gone, odd).admitted


def test_gpus_that_are_all_broken_are_no_resource_of_nobody() -> None:
    gpus = tuple(Gpu(index=it, uuid=f"GPU-{it}", numa_node=it // 4) for it in range(8))
    dead = replace(
        _told(),
        offer=NodeOffer(memory=_MEMORY),
        gpus=gpus,
        node_status=NodeStatus(capacity={GPU: 8, "rdma/hca": 8}),
    )

    assert ask(dead, container(gpus=1)).reason == "TopologyAffinityError"
    assert "rdma/hca" in ask(dead, container(more={"rdma/hca": 1})).missing[0]


def test_more_containers_than_are_worked_out_have_no_verdict() -> None:
    """A manifest of a MiB holds tens of thousands."""
    crowd = [pod(f"job-{number}", *[_WORK] * 10) for number in range(50)]
    words = "an answer for more than 500 containers at once"

    assert admit(node(), crowd).pods[0].missing == ()
    found = admit(node(), [*crowd, pod("one-more", _WORK)]).pods
    assert {it.missing for it in found} == {(words,)}


def test_the_state_files_policy_is_the_one_in_force() -> None:
    """A kubelet that was told ``none`` since its start still runs with ``static``."""
    files = node()
    assert files.kubelet_state is not None
    state = replace(files.kubelet_state, cpu=CpuState(policy="none"))

    assert ask(node(cpu_manager_policy="none"), _WORK).containers[0].exclusive_cpus == 2
    assert ask(replace(files, kubelet_state=state), _WORK).containers[0].exclusive_cpus == 0
