"""KUB-005, KUB-006, KUB-007, KUB-008: the Topology Manager's policy against pods with GPUs."""

from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from nodetopo.checks.rule import Verdict
from nodetopo.components.audit.rules.kubelet.demand import most_on_one_node, width
from nodetopo.model.gpu import Mig
from nodetopo.model.kubelet_state import MemoryBlock, MemoryState
from nodetopo.model.node import NodeOffer, NodeStatus, PlacedDevice
from nodetopo.model.pod import Container, ContainerKind, Pod
from nodetopo.model.snapshot import Snapshot
from nodetopo.topology import node_sets
from tests.components.audit.judge import GIB, NODE, STATE, healthy, result
from tests.components.audit.rules.kubelet.kubelet_node import missing, node, observed, skipped

GPU = "nvidia.com/gpu"


def container(
    name: str = "c", kind: ContainerKind = ContainerKind.APP, **amounts: int
) -> Container:
    named = {GPU if key == "gpu" else key: count for key, count in amounts.items()}
    return Container(name=name, kind=kind, requests=named, limits=named)


def pod(*containers: Container, **fields: Any) -> Pod:
    return Pod(namespace="ml", name="job", containers=containers, **fields)


def with_pods(*pods: Pod, **settings: Any) -> Snapshot:
    return replace(node(**settings), pods=pods)


def restricted(*pods: Pod, **settings: Any) -> Snapshot:
    """Return the node under restricted, each NUMA node with 900 GiB to give."""
    whole = with_pods(*pods, topology_manager_policy="restricted", **settings)
    memory = tuple(
        MemoryBlock(
            numa_node=number,
            kind="memory",
            total=1000 * GIB,
            system_reserved=100 * GIB,
            allocatable=900 * GIB,
            reserved=0,
            free=900 * GIB,
        )
        for number in range(2)
    )
    state = replace(STATE, memory=MemoryState(policy="Static", blocks=memory))
    return replace(whole, kubelet_state=state)


def offer(places: Mapping[str, tuple[int, ...]], resource: str = GPU) -> NodeOffer:
    devices = (
        PlacedDevice(resource=resource, id=name, numa_nodes=nodes) for name, nodes in places.items()
    )
    return NodeOffer(devices=tuple(devices))


def test_more_gpus_than_a_numa_node_has_are_found_by_container() -> None:
    (finding,) = result("KUB-005", with_pods(pod(container(gpu=5)))).findings
    assert (finding.subject, finding.observed, finding.expected) == (
        "ml/job container c",
        "5 nvidia.com/gpu",
        "at most 4, as many as one NUMA node has",
    )


def test_as_many_gpus_as_a_numa_node_has_fit() -> None:
    two = pod(container("a", gpu=4), container("b", gpu=4))
    assert observed("KUB-005", with_pods(two)) == []


def test_with_scope_pod_the_containers_count_together() -> None:
    two = pod(container("a", gpu=3), container("b", gpu=2))
    found = result("KUB-005", with_pods(two, topology_manager_scope="pod")).findings
    assert [(one.subject, one.observed) for one in found] == [("ml/job", "5 nvidia.com/gpu")]


def test_what_is_rejected_fails_what_may_be_apart_warns_and_what_is_left_is_remarked() -> None:
    two = pod(container("a", gpu=5), container("b", gpu=1))
    uneven = restricted(pod(container(gpu=8, cpu=4_000, memory=GIB)))
    assert result("KUB-005", with_pods(two)).verdict is Verdict.FAIL
    assert result("KUB-006", with_pods(two)).verdict is Verdict.PASS
    assert result("KUB-007", uneven).verdict is Verdict.FAIL
    assert result("KUB-008", with_pods(two)).verdict is Verdict.WARN


def test_init_containers_come_before_the_others_and_sidecars_stay() -> None:
    init = container("init", ContainerKind.INIT, gpu=3)
    sidecar = container("side", ContainerKind.SIDECAR, gpu=1)
    within = pod(init, container("app", gpu=4))
    beyond = pod(sidecar, container("init", ContainerKind.INIT, gpu=4))
    scope = {"topology_manager_scope": "pod"}
    assert observed("KUB-005", with_pods(within, **scope)) == []
    assert observed("KUB-005", with_pods(beyond, **scope)) == ["5 nvidia.com/gpu"]


@pytest.mark.parametrize(
    ("phase", "reason", "count"),
    [
        ("Running", None, 1),
        ("Pending", None, 1),
        (None, None, 1),
        ("Failed", "TopologyAffinityError", 1),
        ("Failed", "Evicted", 0),
        ("Succeeded", None, 0),
    ],
)
def test_pods_that_want_to_be_here_are_judged(phase: str, reason: str | None, count: int) -> None:
    one = pod(container(gpu=8), phase=phase, status_reason=reason)
    assert len(observed("KUB-005", with_pods(one))) == count


def test_the_kubelets_own_list_says_where_devices_are() -> None:
    places = {"a": (0,), "b": (0,), "c": (1,), "d": ()}
    others = offer({"e": (0,), "f": (0,)}, "rdma/hca").devices
    both = NodeOffer(devices=(*offer(places).devices, *others))
    snapshot = replace(with_pods(pod(container(gpu=3))), offer=both)
    assert [one.expected for one in result("KUB-005", snapshot).findings] == [
        "at most 2, as many as one NUMA node has"
    ]


def test_two_gpus_do_not_fit_where_each_numa_node_has_one() -> None:
    snapshot = replace(with_pods(pod(container(gpu=2))), offer=offer({"a": (0,), "b": (1,)}))
    assert observed("KUB-005", snapshot) == ["2 nvidia.com/gpu"]


def test_devices_without_any_numa_node_are_not_aligned() -> None:
    snapshot = replace(with_pods(pod(container(gpu=3))), offer=offer({"a": (), "b": ()}))
    assert observed("KUB-005", snapshot) == []


def test_a_device_without_a_numa_node_beside_others_is_not_among_all() -> None:
    places = {"a": (0,), "b": (0,), "c": ()}
    assert observed("KUB-006", replace(healthy(), offer=offer(places))) == []


def test_a_device_near_two_nodes_counts_for_both() -> None:
    spots = ((0, 1), (0, 1), (1,))
    assert [width(spots, amount) for amount in (0, 3, 4)] == [0, 1, None]
    assert [most_on_one_node(each) for each in (spots, ((0, 0),), ())] == [3, 1, 0]


def test_devices_of_very_many_nodes_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    everywhere = tuple((node,) for node in range(64))
    assert [width(everywhere, amount) for amount in (2, 64, 65)] == [2, 64, None]
    monkeypatch.setattr(node_sets, "MOST_PARTS", 100)
    assert width(tuple((node, node + 1, node + 7) for node in range(50)), 20) is None


@pytest.mark.parametrize("status", [NODE, replace(NODE, capacity=None), None])
def test_without_the_kubelets_list_each_gpu_is_where_the_machine_has_it(
    status: NodeStatus | None,
) -> None:
    whole = replace(with_pods(pod(container(gpu=5, cpu=100))), offer=None, node_status=status)
    assert [one.expected for one in result("KUB-005", whole).findings] == [
        "at most 4, as many as one NUMA node has"
    ]
    adrift = (replace(whole.gpus[0], numa_node=None), *whole.gpus[1:])
    assert missing("KUB-005", replace(whole, gpus=adrift)) == ("NUMA nodes of nvidia.com/gpu",)


def test_where_parts_of_gpus_are_only_the_kubelet_knows() -> None:
    parts = ("nvidia.com/mig-2g.20gb", "nvidia.com/mig-1g.10gb")
    one, none = (Container(name="c", limits=dict.fromkeys(parts, count)) for count in (1, 0))
    whole = replace(with_pods(pod(one)), offer=None)
    assert missing("KUB-005", whole) == tuple(f"NUMA nodes of {name}" for name in sorted(parts))
    assert result("KUB-005", replace(whole, pods=(pod(none),))).missing == ()


@pytest.mark.parametrize("code", ["KUB-005", "KUB-006"])
def test_shared_or_cut_gpus_are_unknown_without_the_kubelets_list(code: str) -> None:
    whole = replace(with_pods(pod(container(gpu=5))), offer=None)
    shared = replace(whole, node_status=replace(NODE, capacity={GPU: 32}))
    gpus = (replace(whole.gpus[0], mig=Mig(is_enabled=True)), *whole.gpus[1:])
    assert missing(code, shared) == ("NUMA nodes of nvidia.com/gpu",)
    assert missing(code, replace(whole, gpus=gpus)) == ("NUMA nodes of nvidia.com/gpu",)


@pytest.mark.parametrize("policy", ["none", "best-effort", "restricted"])
def test_only_single_numa_node_demands_one_node(policy: str) -> None:
    snapshot = with_pods(pod(container(gpu=8)), topology_manager_policy=policy)
    assert skipped("KUB-005", snapshot) == f"topologyManagerPolicy is {policy}"


@pytest.mark.parametrize("policy", ["best-effort", "restricted", "single-numa-node"])
def test_every_policy_that_aligns_may_place_containers_apart(policy: str) -> None:
    two = pod(container("a", gpu=1), container("b", gpu=1))
    snapshot = with_pods(two, topology_manager_policy=policy)
    assert observed("KUB-008", snapshot) == ["GPUs in containers a, b"]
    assert skipped("KUB-006", snapshot) is None


@pytest.mark.parametrize("code", ["KUB-005", "KUB-006", "KUB-007", "KUB-008"])
def test_one_numa_node_has_nothing_to_align(code: str) -> None:
    whole = healthy()
    assert skipped(code, replace(whole, numa_nodes=(whole.numa_nodes or ())[:1])) == "one NUMA node"


def test_what_fits_is_remarked_without_any_pod() -> None:
    (finding,) = result("KUB-006", replace(healthy(), pods=None)).findings
    assert (finding.observed, finding.expected) == (
        "single-numa-node: at most 4 of 8 nvidia.com/gpu",
        "best-effort or restricted, if jobs are to span NUMA nodes",
    )
    assert observed("KUB-006", node(topology_manager_policy="best-effort")) == []


@pytest.mark.parametrize(
    ("gpus", "cpu", "memory", "findings"),
    [
        (8, 4_000, 901, ["8 nvidia.com/gpu on 2 NUMA nodes; 4 CPUs on 1 NUMA node"]),
        (1, 113_000, 1, ["1 nvidia.com/gpu on 1 NUMA node; 113 CPUs on 2 NUMA nodes"]),
        (8, 113_000, 1, ["8 nvidia.com/gpu on 2 NUMA nodes; 113 CPUs on 2 NUMA nodes"]),
        (8, 113_000, 901, []),
        (4, 112_000, 900, []),
        (8, 112_500, 901, []),
        (8, 100, 901, []),
    ],
)
def test_restricted_wants_as_many_numa_nodes_for_each_resource(
    gpus: int, cpu: int, memory: int, findings: list[str]
) -> None:
    nodes = {1: "1 NUMA node", 900: "1 NUMA node", 901: "2 NUMA nodes"}
    pinned = f"; {memory}Gi of memory on {nodes[memory]}"
    snapshot = restricted(pod(container(gpu=gpus, cpu=cpu, memory=memory * GIB)))
    assert observed("KUB-007", snapshot) == [text + pinned for text in findings]


@pytest.mark.parametrize("gpus", [0, 9])
def test_a_pod_whose_gpus_need_no_or_more_than_all_nodes_is_not_compared(gpus: int) -> None:
    one = pod(container(gpu=gpus, cpu=4_000, memory=901 * GIB))
    assert observed("KUB-007", restricted(one)) == []


def test_pods_without_cpus_of_their_own_are_aligned_by_their_gpus_alone() -> None:
    amounts = {GPU: 8, "cpu": 4_000, "memory": GIB}
    burstable = Container(name="c", requests=amounts, limits={**amounts, "cpu": 5_000})
    guaranteed = {"cpu": 4_000, "memory": GIB}
    inner = container(gpu=8, cpu=4_000, memory=GIB)
    whole = pod(inner, requests=guaranteed, limits=guaranteed)
    assert observed("KUB-007", restricted(pod(burstable))) == []
    assert observed("KUB-007", restricted(whole)) == []


def test_managers_that_pin_nothing_give_no_hints() -> None:
    settings = {"cpu_manager_policy": "none", "memory_manager_policy": "None"}
    one = pod(container(gpu=8, cpu=4_000, memory=GIB))
    assert observed("KUB-007", restricted(one, **settings)) == []


def test_alignment_by_socket_prefers_more_than_the_fewest_nodes() -> None:
    one = pod(container(gpu=8, cpu=4_000, memory=901 * GIB))
    options = {"align-by-socket": "true"}
    assert observed("KUB-007", restricted(one, cpu_manager_options=options)) == []


def test_huge_pages_are_placed_with_the_memory_and_not_judged() -> None:
    amounts = {GPU: 8, "cpu": 113_000, "memory": GIB, "hugepages-1Gi": 600 * GIB}
    one = pod(Container(name="c", requests=amounts, limits=amounts))
    assert observed("KUB-007", restricted(one)) == []


def test_huge_pages_of_no_size_are_none() -> None:
    amounts = {GPU: 8, "cpu": 113_000, "memory": GIB, "hugepages-1Gi": 0}
    one = pod(Container(name="c", requests=amounts, limits=amounts))
    assert len(observed("KUB-007", restricted(one))) == 1


def test_pinned_memory_needs_the_memory_managers_state() -> None:
    one = pod(container(gpu=8, cpu=113_000, memory=GIB))
    snapshot = replace(restricted(one), kubelet_state=STATE)
    assert missing("KUB-007", snapshot) == ("memory_manager_state",)
    assert observed("KUB-007", replace(restricted(), kubelet_state=STATE)) == []


def test_gpus_in_two_containers_of_a_pod_are_found_with_scope_container() -> None:
    side = container("side", ContainerKind.SIDECAR, gpu=1)
    both = pod(side, container("app", gpu=2), container("log", cpu=100))
    (finding,) = result("KUB-008", with_pods(both)).findings
    assert (finding.subject, finding.observed, finding.expected) == (
        "ml/job",
        "GPUs in containers side, app",
        "scope pod instead of container in topologyManagerScope in /var/lib/kubelet/config.yaml",
    )
    assert observed("KUB-008", with_pods(both, topology_manager_scope="pod")) == []


def test_an_init_container_has_its_gpus_before_the_others() -> None:
    both = pod(container("init", ContainerKind.INIT, gpu=1), container("app", gpu=2))
    assert observed("KUB-008", with_pods(both)) == []
