"""What the Topology Manager answers, on a node small enough to work it out by hand."""

import pytest
from msgspec.structs import replace

from nodetopo.admission.admit import admit
from nodetopo.admission.beside import Mates
from nodetopo.admission.hints import Hint
from nodetopo.admission.suggestions import with_changes
from nodetopo.model.dra import ClaimedDevice
from nodetopo.model.gpu import Gpu
from nodetopo.model.kubelet_state import CpuState
from nodetopo.model.node import NodeStatus, PlacedDevice
from nodetopo.model.numa import CpuSet
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

_TEXT = "Resources cannot be allocated with Topology locality"


def test_a_pod_that_fits_one_numa_node_gets_all_of_it_there() -> None:
    found = ask(node(), container(gpus=4, cpus=4, gib=8))

    (one,) = found.containers
    assert (found.admitted, found.reason, found.qos) == (True, None, "Guaranteed")
    assert one.merged == Hint(1, preferred=True)
    assert one.devices == {GPU: ("GPU-0", "GPU-1", "GPU-2", "GPU-3")}
    assert one.cpus == CpuSet.parse("1-2,17-18")
    assert [(it.size, it.numa_nodes) for it in one.memory] == [(8 * GIB, (0,))]


def test_hints_are_the_sets_of_nodes_that_could_serve() -> None:
    (one,) = ask(node(), container(gpus=5, cpus=4, gib=8)).containers

    assert one.hints[GPU] == (Hint(3, preferred=True),)
    assert one.hints["cpu"] == (
        Hint(1, preferred=True),
        Hint(2, preferred=True),
        Hint(3, preferred=False),
    )


def test_gpus_on_two_nodes_and_cpus_on_one_are_rejected_under_restricted() -> None:
    found = ask(node(), container(gpus=6, cpus=4, gib=8))

    assert (found.admitted, found.reason, found.message) == (False, "TopologyAffinityError", _TEXT)


def test_what_takes_two_nodes_in_every_resource_is_admitted_under_restricted() -> None:
    found = ask(node(), container(gpus=8, cpus=20, gib=40))

    assert found.admitted
    assert found.containers[0].merged == Hint(3, preferred=True)


def test_gpus_alone_may_take_two_nodes_under_restricted_but_not_under_single() -> None:
    single = node(topology_manager_policy="single-numa-node")

    assert ask(node(), container(gpus=6)).admitted
    assert ask(single, container(gpus=6)).reason == "TopologyAffinityError"


def test_what_is_free_counts_against_what_is_installed() -> None:
    """Three GPUs fit one node of an empty machine, and so they must."""
    taken = with_gpus_held(node(), 0, 1, 4, 5)

    assert ask(taken, container(gpus=3)).reason == "TopologyAffinityError"
    assert ask(taken, container(gpus=2)).admitted


def test_a_broken_gpu_counts_as_installed() -> None:
    """With a GPU broken on each node no node has four, and four are too few for two nodes."""
    sound = tuple(it for it in node().offer.devices if it.id not in ("GPU-3", "GPU-7"))  # type: ignore[union-attr]
    broken = with_gpus_held(with_devices(node(), sound), 3, 7)

    assert ask(with_devices(node(), sound), container(gpus=4)).admitted
    assert ask(broken, container(gpus=4)).reason == "TopologyAffinityError"


def test_best_effort_admits_across_nodes_what_fits_none() -> None:
    taken = with_gpus_held(node(topology_manager_policy="best-effort"), 0, 1, 2, 4, 5, 6)
    found = ask(taken, container(gpus=2, cpus=4, gib=8))

    assert found.admitted
    assert found.containers[0].devices == {GPU: ("GPU-3", "GPU-7")}
    assert found.containers[0].merged == Hint(3, preferred=False)


def test_policy_none_gives_no_hints_and_rejects_only_what_is_not_there() -> None:
    plain = node(topology_manager_policy="none")

    assert ask(plain, container(gpus=6, cpus=4, gib=8)).containers[0].merged is None
    assert ask(plain, container(gpus=9)).message == (
        "Allocate failed due to requested number of devices unavailable for nvidia.com/gpu. "
        "Requested: 9, Available: 8, which is unexpected"
    )


def test_scope_pod_wants_one_set_of_nodes_for_all_containers() -> None:
    two = (container("a", gpus=3, cpus=2, gib=4), container("b", gpus=3, cpus=2, gib=4))

    assert ask(node(), *two).admitted
    assert ask(node(topology_manager_scope="pod"), *two).reason == "TopologyAffinityError"


def test_a_pod_that_is_not_guaranteed_is_aligned_by_its_gpus_alone() -> None:
    burstable = replace(container(gpus=6, cpus=4, gib=8), limits={GPU: 6})
    found = ask(node(), burstable)

    assert (found.admitted, found.qos) == (True, "Burstable")
    assert found.containers[0].exclusive_cpus == 0
    assert found.containers[0].hints.keys() == {GPU}


def test_a_broken_number_of_cpus_is_not_pinned() -> None:
    (one,) = ask(node(), container(gpus=1, cpus=3.5, gib=4)).containers

    assert (one.exclusive_cpus, len(one.cpus)) == (0, 0)
    assert one.memory


def test_resources_of_the_whole_pod_are_not_pinned() -> None:
    amounts = {"cpu": 4000, "memory": 8 * GIB}
    whole = replace(pod("job", container(gpus=6, cpus=4, gib=8)), requests=amounts, limits=amounts)
    found = admit(node(), [whole]).pods[0]

    assert (found.admitted, found.qos) == (True, "Guaranteed")
    assert found.containers[0].hints.keys() == {GPU}


def test_app_containers_get_what_init_containers_had() -> None:
    init = container("init", gpus=2, cpus=4, gib=30, kind=ContainerKind.INIT)
    found = ask(node(), init, container(gpus=4, cpus=6, gib=30))

    first, second = found.containers
    assert found.admitted
    assert first.cpus <= second.cpus
    assert set(first.devices[GPU]) <= set(second.devices[GPU])
    assert first.memory[0].numa_nodes == second.memory[0].numa_nodes == (0,)


def test_app_containers_stay_where_init_containers_had_cpus() -> None:
    init = container("init", cpus=4, kind=ContainerKind.INIT, gib=1)
    _, work = ask(node(), init, container(cpus=6, gib=1)).containers

    assert [hint.numa_nodes for hint in work.hints["cpu"] or ()] == [(0,), (0, 1)]


def test_sidecars_keep_what_they_have() -> None:
    sidecar = container("side", gpus=2, cpus=4, gib=4, kind=ContainerKind.SIDECAR)
    first, second = ask(node(), sidecar, container(gpus=2, cpus=4, gib=4)).containers

    assert not set(first.cpus) & set(second.cpus)
    assert not set(first.devices[GPU]) & set(second.devices[GPU])


def test_init_containers_come_first_wherever_they_stand() -> None:
    init = container("init", gpus=1, kind=ContainerKind.INIT)

    assert [it.name for it in ask(node(), container(), init).containers] == ["init", "work"]


def test_devices_without_numa_nodes_have_no_preference() -> None:
    told = tuple(replace(it, numa_nodes=()) for it in node().offer.devices)  # type: ignore[union-attr]
    found = ask(with_devices(node(), told), container(gpus=6, cpus=4, gib=8))

    assert found.admitted
    assert found.containers[0].hints[GPU] is None


def test_node_minus_one_is_a_node_that_nothing_can_come_from() -> None:
    told = tuple(PlacedDevice(resource=GPU, id=f"GPU-{it}", numa_nodes=(-1,)) for it in range(8))

    assert ask(with_devices(node(), told), container(gpus=1)).reason == "TopologyAffinityError"


def test_a_resource_that_no_plugin_offers_is_passed_over() -> None:
    found = ask(node(), container(cpus=2, gib=2, more={"example.com/none": 3}))

    assert found.admitted
    assert found.containers[0].devices == {}
    (why,) = found.why
    assert why.startswith(
        "example.com/none: no device plugin advertises it here; the kubelet ignores"
    )


def test_whole_cores_are_a_verdict_of_their_own() -> None:
    whole = node(cpu_manager_options={"full-pcpus-only": "true"})

    assert ask(whole, container(cpus=3, gib=2)).message == (
        "SMT Alignment Error: requested 3 cpus not multiple cpus per core = 2"
    )
    best = replace(whole, kubelet=replace(whole.kubelet, topology_manager_policy="none"))  # type: ignore[type-var]
    assert ask(best, container(cpus=32, gib=2)).message == (
        "SMT Alignment Error: not enough free physical CPUs: available physical CPUs = 30, "
        "requested CPUs = 32, CPUs per core = 2"
    )


def test_memory_of_a_node_that_serves_alone_joins_no_group() -> None:
    found = admit(
        node(),
        [pod("small", container(cpus=2, gib=2)), pod("large", container(cpus=20, gib=40))],
    )

    assert [it.not_beside for it in found.pods] == [(), ("ml/small",)]


def test_memory_that_is_nowhere_is_an_allocation_that_fails() -> None:
    found = ask(node(topology_manager_policy="best-effort"), container(cpus=2, gib=70))
    words = "[memorymanager] failed to find NUMA nodes to extend the current topology hint"

    assert (found.reason, found.message) == (
        "UnexpectedAdmissionError",
        f"Allocate failed due to {words}, which is unexpected",
    )


def test_pods_find_what_those_before_them_left() -> None:
    pods = [pod(f"job-{number}", container(gpus=3, cpus=4, gib=8)) for number in range(3)]
    found = admit(node(), pods).pods

    assert [it.admitted for it in found] == [True, True, True]
    assert [it.not_beside for it in found] == [(), (), ("ml/job-0", "ml/job-1")]
    assert [it.containers[0].devices[GPU][0] for it in found] == ["GPU-0", "GPU-4", "GPU-0"]


def test_a_role_that_needs_the_whole_node_is_admitted_alone() -> None:
    whole = container(gpus=8, cpus=20, gib=40)
    workers = replace(pod("worker", whole), replicas=3)
    master, found = admit(node(), [pod("master", whole), workers]).pods

    assert (master.admitted, master.not_beside) == (True, ())
    assert (found.admitted, found.not_beside, found.reason) == (True, ("ml/master",), None)
    assert (found.replicas, found.admitted_replicas) == (3, 1)
    assert len(found.containers[0].devices[GPU]) == 8
    assert found.why[0].startswith("beside ml/master it is rejected: TopologyAffinityError: ")


def test_a_pod_that_is_admitted_alone_leaves_the_node_to_those_after_it() -> None:
    pods = [pod("a", container(gpus=4)), pod("b", container(gpus=8)), pod("c", container(gpus=4))]

    assert [it.not_beside for it in admit(node(), pods).pods] == [(), ("ml/a",), ()]


def test_of_the_pods_before_it_only_those_in_the_way_are_named() -> None:
    small = [pod(name, container(cpus=1, gib=1)) for name in "abcd"]
    rest = [pod("wide", container(gpus=8)), pod("e", container()), pod("all", container(gpus=8))]

    assert admit(node(), [*small, *rest]).pods[-1].not_beside == ("ml/wide",)


def test_a_pod_that_no_such_node_takes_is_rejected_as_if_it_were_the_only_one() -> None:
    taken, wide = pod("taken", container(gpus=8)), container(gpus=6, cpus=4, gib=8)
    found = admit(node(), [taken, pod("wide", wide)]).pods[1]

    assert replace(found, name="job") == ask(node(), wide)
    assert (found.admitted, found.not_beside) == (False, ())


def test_pods_that_the_scheduler_keeps_apart_are_admitted_alone() -> None:
    pods = [replace(pod(name, container(gpus=1)), replicas=2) for name in "ab"]
    free = admit(node(), pods).pods
    apart = admit(node(), pods, apart=lambda one, other: one != other).pods
    spread = admit(node(), pods, apart=lambda one, other: one == other).pods

    assert [(it.not_beside, it.admitted_replicas) for it in free] == [((), 2), ((), 2)]
    assert [(it.not_beside, it.admitted_replicas) for it in apart] == [((), 2), (("ml/a",), 2)]
    assert [(it.not_beside, it.admitted_replicas) for it in spread] == [((), 1), ((), 1)]
    assert apart[1].why[0] == "required anti-affinity keeps it off the node of ml/a"
    assert spread[1].why[-1] == "required anti-affinity keeps its replicas on different nodes"


def _with(*groups: tuple[int, ...]) -> Mates:
    """The last pod goes beside one of each of *groups*; the others by themselves."""
    return lambda at: groups if groups and at > max(max(group) for group in groups) else ()


def test_a_pod_that_must_be_beside_another_is_not_admitted_without_it() -> None:
    pods = [pod("a", container(gpus=5)), pod("b", container(gpus=4))]
    free = admit(node(), pods).pods[1]
    bound = admit(node(), pods, mates=_with((0,))).pods[1]

    assert (free.admitted, free.not_beside, free.beside) == (True, ("ml/a",), ())
    assert (bound.admitted, bound.not_beside, bound.beside) == (False, (), ("ml/a",))
    assert bound.why[0] == "required affinity keeps it on the node of ml/a"
    fits = admit(node(), [pods[0], pod("b", container(gpus=3))], mates=_with((0,))).pods[1]
    assert (fits.admitted, fits.not_beside, fits.beside) == (True, (), ("ml/a",))


def test_a_pod_that_must_be_beside_another_needs_no_third() -> None:
    pods = [pod(name, container(gpus=3)) for name in "abc"]
    found = admit(node(), pods, mates=_with((1,))).pods[2]

    assert (found.admitted, found.not_beside, found.beside) == (True, ("ml/a",), ("ml/b",))
    assert found.why[0] == "required affinity keeps it on the node of ml/b"
    without = "the answer below is for the node without the manifest's pods but ml/b"
    assert without in found.why
    either = admit(node(), pods, mates=_with((0, 1))).pods[2]
    assert (either.not_beside, either.beside) == (("ml/b",), ("ml/a",))


def test_a_pod_goes_with_the_one_that_is_admitted_alone() -> None:
    pods = [pod("a", container(gpus=5)), pod("b", container(gpus=6)), pod("c", container(gpus=2))]
    free = admit(node(), pods).pods[2]
    bound = admit(node(), pods, mates=_with((1,))).pods[2]

    assert free.not_beside == ()
    assert (bound.admitted, bound.not_beside, bound.beside) == (True, ("ml/a",), ("ml/b",))
    assert bound.why[1] == "with ml/b it is kept off the node of ml/a"


def test_no_change_is_offered_to_a_pod_that_must_be_beside_another() -> None:
    pods = [pod("a", container(gpus=5)), pod("b", container(gpus=4))]
    found = with_changes(node(), admit(node(), pods, mates=_with((0,))), pods)

    assert [it.changes for it in found.pods] == [(), ()]


def test_a_rejected_pod_leaves_nothing_behind() -> None:
    mixed = pod("mixed", container("a", gpus=4), container("b", gpus=5))
    found = admit(node(), [mixed, pod("after", container(gpus=8))]).pods

    assert [it.admitted for it in found] == [False, True]


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
def test_what_finished_pods_have_in_the_state_is_free(phase: str) -> None:
    taken = with_gpus_held(node(), *range(8))
    (other,) = taken.pods or ()

    assert not ask(taken, container(gpus=1)).admitted
    assert ask(replace(taken, pods=(replace(other, phase=phase),)), container(gpus=1)).admitted


def test_a_pod_does_not_stand_in_its_own_way() -> None:
    """It is asked about after its rejection, when it is a pod of the node."""
    taken = with_gpus_held(node(), *range(8), uid="uid-job")

    assert ask(taken, container(gpus=8)).admitted


def test_cpus_of_a_pod_that_is_gone_are_free() -> None:
    empty = node()
    assert empty.kubelet_state is not None
    held = CpuState(
        policy="static",
        default=CpuSet.parse("0-1,16-17"),
        entries={"uid-gone": {"work": CpuSet.parse("2-15,18-31")}},
    )
    taken = replace(empty, kubelet_state=replace(empty.kubelet_state, cpu=held))
    here = replace(taken, pods=(Pod(namespace="ml", name="other", uid="uid-gone"),))

    assert ask(taken, container(cpus=8, gib=2)).admitted
    assert not ask(here, container(cpus=8, gib=2)).admitted


def test_sums_are_checked_after_alignment() -> None:
    full = replace(
        node(topology_manager_policy="none"),
        node_status=NodeStatus(allocatable={"cpu": 30_000, "memory": 60 * GIB, GPU: 8}),
        pods=(pod("other", container(cpus=20.5, gib=2)),),
    )
    found = ask(full, container(cpus=10, gib=2))

    assert (found.reason, found.message) == (
        "OutOfcpu",
        "Node didn't have enough resource: cpu, requested: 10000, used: 20500, capacity: 30000",
    )
    assert ask(full, container(cpus=9, gib=2)).admitted


def test_a_rejected_pod_is_given_nothing() -> None:
    """The first container had its devices when the second was refused."""
    found = ask(
        node(), container("first", gpus=2, cpus=2, gib=2), container("wide", gpus=6, cpus=4, gib=8)
    )

    assert found.admitted is False
    assert [
        (one.exclusive_cpus, len(one.cpus), one.devices, one.memory) for one in found.containers
    ] == [(0, 0, {}, ())] * 2
    assert found.containers[0].hints[GPU]


@pytest.mark.parametrize(("replicas", "admitted"), [(1, 1), (2, 2), (3, 2), (1 << 31, 2)])
def test_as_many_replicas_are_counted_as_the_node_takes(replicas: int, admitted: int) -> None:
    job = replace(pod("job", container(gpus=4, cpus=4, gib=8)), replicas=replicas)
    (found,) = admit(node(), [job]).pods

    assert (found.admitted, found.replicas, found.admitted_replicas) == (True, replicas, admitted)
    refused = f"the next replica is rejected: TopologyAffinityError: {_TEXT}"
    assert (found.why[-1:] == (refused,)) is (replicas > 2)


def test_the_pods_behind_replicas_find_what_these_left() -> None:
    job = replace(pod("job", container(gpus=4, cpus=4, gib=8)), replicas=2)
    found = admit(node(), [job, pod("late", container(gpus=1, cpus=2, gib=2))]).pods

    assert [it.not_beside for it in found] == [(), ("ml/job",)]


def test_no_replica_of_a_rejected_pod_is_admitted() -> None:
    wide = replace(pod("job", container(gpus=6, cpus=4, gib=8)), replicas=3)

    assert admit(node(), [wide]).pods[0].admitted_replicas == 0
    assert ask(node(), container(gpus=1)).admitted_replicas is None
    none = replace(pod("job", container(gpus=1)), replicas=0)
    assert admit(node(), [none]).pods[0].admitted_replicas is None


def test_replicas_without_end_are_not_counted() -> None:
    """Nothing limits a pod that requests nothing."""
    idle = replace(pod("idle", container()), replicas=10**6)

    assert admit(node(), [idle]).pods[0].admitted_replicas is None


def test_a_claim_is_not_seen_and_its_cpus_are_predicted_all_the_same() -> None:
    asked = replace(container(cpus=4, gib=8), claims=("gpus",))
    found = ask(node(), asked)
    assert found.admitted
    unseen, cpus = found.why[-2:]
    assert unseen.startswith("container work gets devices by the claim gpus: the Topology Manager")
    assert cpus == "its 4 CPUs would come from NUMA 0, wherever the claim's GPUs are"


@pytest.mark.parametrize(
    ("numa", "said"),
    [(0, "where the claim's GPUs are: by chance"), (1, "GPUs are on NUMA 1: not aligned")],
)
def test_cpus_are_compared_with_the_gpus_that_a_claim_has(numa: int, said: str) -> None:
    asked = replace(container(cpus=4, gib=8), claims=("gpus",))
    claimed = ClaimedDevice(
        driver="nodetopo.io",
        pool="n",
        name="g",
        namespace="default",
        claim="c",
        cdi_devices=("k/gpu=GPU-a",),
    )
    running = pod("job", replace(asked, claimed=(claimed,)))
    gpus = (Gpu(index=0, uuid="GPU-a", numa_node=numa),)
    snapshot = replace(node(), gpus=gpus, pods=(running,))
    found = ask(snapshot, asked)
    assert found.why[-1].endswith(said)
