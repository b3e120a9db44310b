"""What pods and containers leave to each other: reuse, other pods, broken GPUs, pinned memory."""

import pytest
from msgspec.structs import replace

from nodetopo.admission.admit import admit
from nodetopo.admission.errors import Refusal
from nodetopo.admission.hints import Hint
from nodetopo.admission.memory_manager import MemoryManager, MemoryNode
from nodetopo.admission.requests import request_of_pod
from nodetopo.model.gpu import Gpu
from nodetopo.model.node import NodeStatus
from nodetopo.model.pod import ContainerKind, Pod
from tests.admission.admission_node import (
    GIB,
    GPU,
    ask,
    container,
    node,
    pod,
    with_devices,
    with_gpus_held,
)


def test_memory_of_an_init_container_is_not_taken_twice() -> None:
    init = container("init", cpus=2, gib=30, kind=ContainerKind.INIT)
    pods = [
        pod("both", init, container(cpus=2, gib=30)),
        pod("other", container(cpus=2, gib=32)),
        pod("rest", container(cpus=2, gib=1)),
    ]

    assert [it.admitted for it in admit(node(), pods).pods] == [True, True, True]


def test_devices_that_an_init_container_leaves_over_are_not_for_other_pods() -> None:
    init = container("init", gpus=4, kind=ContainerKind.INIT)
    pods = [pod("first", init, container(gpus=1)), pod("second", container(gpus=5))]
    found = admit(node(topology_manager_policy="none"), pods).pods

    assert [it.not_beside for it in found] == [(), ("ml/first",)]


def test_a_pod_needs_at_once_what_init_containers_and_sidecars_need_beside_each_other() -> None:
    one = pod(
        "job",
        container("first", gpus=1, kind=ContainerKind.SIDECAR),
        container("init", gpus=4, kind=ContainerKind.INIT),
        container("second", gpus=2, kind=ContainerKind.SIDECAR),
        container("work", gpus=1),
    )

    assert request_of_pod(one, [GPU]).devices == {GPU: 5}


def test_scope_pod_counts_init_containers() -> None:
    init = container("init", gpus=5, kind=ContainerKind.INIT)
    whole = node(topology_manager_policy="single-numa-node", topology_manager_scope="pod")

    assert ask(whole, init, container(gpus=1)).reason == "TopologyAffinityError"


def test_a_pod_that_is_here_already_is_not_counted_beside_another_without_a_uid() -> None:
    taken = with_gpus_held(node(), *range(8), uid="uid-job")
    mixed = replace(taken, pods=(*(taken.pods or ()), Pod(namespace="ml", name="static")))

    assert ask(mixed, container(gpus=8)).admitted


def test_a_pod_that_is_here_already_is_not_counted_in_the_sums() -> None:
    before = pod("job", container(cpus=10, gib=8))
    here = replace(
        node(),
        node_status=NodeStatus(allocatable={"cpu": 30_000, "memory": 60 * GIB}),
        pods=(before,),
    )
    other = replace(here, pods=(replace(before, uid="uid-other"),))

    assert ask(here, container(cpus=24, gib=40)).admitted
    assert ask(other, container(cpus=24, gib=40)).reason == "OutOfcpu"


def test_gpus_that_only_nvml_tells_of_are_installed() -> None:
    """One GPU is broken on each node, and no pod has it: the kubelet counts it, we must too."""
    empty = node()
    assert empty.offer is not None
    sound = tuple(it for it in empty.offer.devices if it.id not in ("GPU-3", "GPU-7"))
    broken = replace(
        with_devices(empty, sound),
        gpus=tuple(Gpu(index=it, uuid=f"GPU-{it}", numa_node=it // 4) for it in range(8)),
        node_status=NodeStatus(capacity={GPU: 8}),
    )

    assert ask(with_devices(empty, sound), container(gpus=4)).admitted
    assert ask(broken, container(gpus=4)).reason == "TopologyAffinityError"


def test_memory_is_not_pinned_wider_than_all_prefer() -> None:
    """One node would do on an empty machine, and two are offered."""
    nodes = {
        number: MemoryNode(allocatable={"memory": 8}, free={"memory": 3}, cells=(number,))
        for number in (0, 1)
    }
    memory = MemoryManager(nodes=nodes)

    with pytest.raises(Refusal, match="failed to find the default preferred hint"):
        memory.give("uid", "work", {"memory": 5}, Hint(None, preferred=True), is_init=False)
    (block,) = memory.give("uid", "work", {"memory": 5}, Hint(None, preferred=False), is_init=False)
    assert block.numa_nodes == (0, 1)


def _shown(memory: MemoryManager) -> tuple[Hint, ...]:
    choices = memory.hints({"memory": 1})["memory"]
    assert choices is not None
    return choices.shown


def test_what_a_pod_held_can_be_had_again() -> None:
    nodes = {
        number: MemoryNode(allocatable={"memory": 8}, free={"memory": 8}, cells=(number,))
        for number in (0, 1)
    }
    memory = MemoryManager(nodes=nodes)
    memory.give("uid", "work", {"memory": 10}, Hint(3, preferred=True), is_init=False)

    assert _shown(memory) == (Hint(3, preferred=False),)
    memory.release("uid")
    assert _shown(memory) == (
        Hint(1, preferred=True),
        Hint(2, preferred=True),
        Hint(3, preferred=False),
    )
