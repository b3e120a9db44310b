"""The smallest changes that would have admitted a pod, and the words around a verdict."""

from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from nodetopo.admission import suggestions
from nodetopo.admission.admit import PodAdmission, admit, to_plain
from nodetopo.admission.scope import PodOutcome, admit_pod
from nodetopo.admission.suggestions import Variant, variants, with_changes
from nodetopo.model.kubelet_state import MemoryState
from nodetopo.model.node import NodeStatus, PlacedDevice
from nodetopo.model.pod import Container
from nodetopo.model.snapshot import Snapshot
from tests.admission.admission_node import (
    GIB,
    GPU,
    container,
    node,
    pod,
    with_devices,
    with_gpus_held,
)

_WIDE = container(gpus=6, cpus=4, gib=8)
_STEP = (1 << 2) + 32
"""What one container costs on the node: its sets of NUMA nodes and its CPUs."""


def _changed(snapshot: Snapshot, *containers: Container) -> PodAdmission:
    pods = [pod("job", *containers)]
    return with_changes(snapshot, admit(snapshot, pods), pods).pods[0]


def test_the_nearest_number_of_gpus_is_found() -> None:
    assert _changed(node(), _WIDE).changes[0] == ("container work: 4 nvidia.com/gpu instead of 6")


def test_the_smallest_change_comes_first_whatever_it_is_of() -> None:
    changes = _changed(_without_memory_manager(node()), container(gpus=5, cpus=4, gib=8)).changes

    assert changes[:2] == (
        "container work: 4 nvidia.com/gpu instead of 5",
        "container work: 17 CPUs instead of 4",
    )


def _without_memory_manager(snapshot: Snapshot) -> Snapshot:
    assert snapshot.kubelet_state is not None
    state = replace(snapshot.kubelet_state, memory=MemoryState(policy="None"))
    return replace(snapshot, kubelet_state=state)


def test_cpus_and_memory_that_take_as_many_nodes_are_found() -> None:
    assert _changed(node(), _WIDE).changes[1] == (
        "container work: 17 CPUs and 33Gi of memory instead of 4 and 8Gi, "
        "so that both span 2 NUMA nodes"
    )


def test_other_settings_of_the_kubelet_come_last_the_strictest_first() -> None:
    assert _changed(node(), _WIDE).changes[2:] == (
        "the kubelet's topologyManagerPolicy best-effort instead of restricted",
        "the kubelet's topologyManagerPolicy none instead of restricted",
    )


def test_each_change_alone_is_enough() -> None:
    for gpus, policy in ((4, "restricted"), (6, "best-effort"), (6, "none")):
        pods = [pod("job", container(gpus=gpus, cpus=4, gib=8))]
        assert admit(node(topology_manager_policy=policy), pods).pods[0].admitted
    wider = [pod("job", container(gpus=6, cpus=18, gib=33))]
    assert admit(node(), wider).pods[0].admitted


def test_more_gpus_may_be_the_smallest_change() -> None:
    """Four were free in halves; five always take two nodes."""
    halves = with_gpus_held(node(), 0, 4)

    assert _changed(halves, container(gpus=4)).changes[:2] == (
        "container work: 3 nvidia.com/gpu instead of 4",
        "container work: 5 nvidia.com/gpu instead of 4",
    )


def test_whole_cores_and_scope_are_tried() -> None:
    whole = node(cpu_manager_options={"full-pcpus-only": "true"})
    odd = _changed(whole, container(cpus=3, gib=2)).changes
    two = (container("a", gpus=3, cpus=2, gib=4), container("b", gpus=3, cpus=2, gib=4))

    assert odd[:2] == (
        "container work: 2 CPUs instead of 3",
        "container work: 4 CPUs instead of 3",
    )
    assert "the kubelet's cpuManagerPolicyOptions without full-pcpus-only" in odd
    scope = "the kubelet's topologyManagerScope container instead of pod"
    assert scope in _changed(node(topology_manager_scope="pod"), *two).changes


def test_less_memory_is_offered_where_memory_is_at_fault() -> None:
    found = _changed(node(), container(cpus=2, gib=40))

    assert found.changes[0] == "container work: 32Gi of memory instead of 40Gi"


def test_changes_are_those_of_the_node_without_the_other_pods() -> None:
    pods = [pod("whole", container(gpus=8)), pod("wide", _WIDE)]
    (_, wide) = with_changes(node(), admit(node(), pods), pods).pods

    assert wide.changes == _changed(node(), _WIDE).changes != ()


def test_admitted_pods_and_unknown_ones_have_no_changes() -> None:
    assert _changed(node(), container(gpus=4)).changes == ()
    assert _changed(replace(node(), kubelet=None), _WIDE).changes == ()


def test_a_request_far_beyond_the_machine_is_brought_back_to_it() -> None:
    changes = _changed(node(), container(gpus=10**15)).changes

    assert changes[0] == f"container work: 8 nvidia.com/gpu instead of {10**15}"


def test_why_names_who_prefers_what() -> None:
    assert _changed(node(), _WIDE).why == (
        "under policy restricted all resources of container work must prefer the same NUMA nodes",
        "6 nvidia.com/gpu: best from NUMA 0+1",
        "4 CPUs: best from NUMA 0 or NUMA 1",
        "8Gi of memory: best from NUMA 0 or NUMA 1",
    )


def test_why_names_what_is_free_in_pieces_only_and_what_is_not_free() -> None:
    pieces = with_gpus_held(node(), 0, 1, 4, 5)

    scattered = (
        "3 nvidia.com/gpu: free only on 2 NUMA nodes together, "
        "but fewer have that many installed, which is what the kubelet counts"
    )
    assert scattered in _changed(pieces, container(gpus=3)).why
    assert "5 nvidia.com/gpu: fewer are free" in _changed(pieces, container(gpus=5)).why
    single = node(topology_manager_policy="single-numa-node")
    wide = "5 nvidia.com/gpu: no single NUMA node has that many, they span 2"
    assert wide in _changed(single, container(gpus=5)).why


def test_why_says_what_the_kubelets_words_on_memory_mean() -> None:
    pods = [pod("small", container(cpus=2, gib=2)), pod("large", container(cpus=20, gib=40))]
    (_, large) = admit(node(topology_manager_policy="best-effort"), pods).pods

    assert large.why[0].startswith("beside ml/small it is rejected: UnexpectedAdmissionError: ")
    assert large.why[1].startswith("the Memory Manager gives a NUMA node to containers either")


def test_why_names_devices_that_are_near_no_numa_node_of_the_machine() -> None:
    told = tuple(PlacedDevice(resource=GPU, id=f"GPU-{it}", numa_nodes=(-1,)) for it in range(8))
    found = _changed(with_devices(node(), told), container(gpus=1))

    assert found.why[-1] == "1 nvidia.com/gpu: their plugin reports no NUMA node of this machine"


def test_less_is_offered_where_all_requests_together_are_too_much() -> None:
    """Of a pod that is not pinned too, to the last millicore and MiB."""
    sums = {"cpu": 10_500, "memory": 3 * GIB}
    full = replace(node(), node_status=NodeStatus(allocatable=sums))
    shared = replace(container(cpus=12, gib=2), limits={})

    assert _changed(full, shared).changes == ("container work: 10500m CPU instead of 12",)
    assert _changed(full, container(cpus=12, gib=2)).changes == (
        "container work: 10 CPUs instead of 12",
    )
    assert _changed(full, container(cpus=2, gib=4)).changes == (
        "container work: 3Gi of memory instead of 4Gi",
    )


def test_sizes_are_in_units_that_people_read() -> None:
    full = replace(node(), node_status=NodeStatus(allocatable={"cpu": 9000, "memory": 20 * GIB}))
    shared = replace(container(cpus=2, more={"memory": 24 * 10**9}), limits={})
    found = _changed(full, shared)

    assert found.why[-1] == (
        "the pod requests 22.35Gi of memory, and pods that run here request 0 of 20Gi"
    )
    assert found.changes == ("container work: 20Gi of memory instead of 22.35Gi",)
    assert found.message is not None
    assert "requested: 24000000000, used: 0, capacity: 21474836480" in found.message


def test_both_may_have_to_shrink() -> None:
    changes = _changed(node(), container(gpus=1, cpus=20, gib=40)).changes

    assert changes[0] == (
        "container work: 16 CPUs and 32Gi of memory instead of 20 and 40Gi, "
        "so that both span 1 NUMA node"
    )
    assert changes[1] == "container work: 5 nvidia.com/gpu instead of 1"


def test_why_names_what_is_not_aligned_at_all() -> None:
    burstable = replace(container(gpus=1, cpus=2, gib=2), limits={GPU: 1})

    assert _changed(node(), burstable).why == (
        "the pod is Burstable: neither its CPUs nor its memory are aligned",
    )
    plain = node(topology_manager_policy="none")
    assert _changed(plain, container(gpus=1)).why[-1].startswith("policy none: nothing is aligned")


def test_as_json_it_holds_what_a_program_needs() -> None:
    plain = to_plain(admit(node(), [pod("job", container(gpus=1, cpus=2, gib=2))]))

    (one,) = plain["pods"]
    (work,) = one["containers"]
    assert (plain["schema"], plain["policy"], plain["scope"]) == (
        "nodetopo/admit/v1",
        "restricted",
        "container",
    )
    assert (one["name"], one["qos"], one["admitted"], one["reason"]) == (
        "job",
        "Guaranteed",
        True,
        None,
    )
    assert work["merged"] == {"numa": [0], "preferred": True}
    assert work["hints"][GPU][0] == {"numa": [0], "preferred": True}
    assert work["exclusive_cpus"] == 2


def test_in_scope_pod_what_the_other_containers_take_is_counted() -> None:
    two = (container("a", gpus=3, cpus=2, gib=4), container("b", gpus=3, cpus=2, gib=4))

    assert _changed(node(topology_manager_scope="pod"), *two).changes[:2] == (
        "container a: 1 nvidia.com/gpu instead of 3",
        "container b: 1 nvidia.com/gpu instead of 3",
    )


def test_two_changes_are_offered_where_no_single_one_is_enough() -> None:
    single = node(
        topology_manager_policy="single-numa-node",
        cpu_manager_options={"full-pcpus-only": "true"},
    )
    policy = "the kubelet's topologyManagerPolicy"
    options = "the kubelet's cpuManagerPolicyOptions without full-pcpus-only"

    assert _changed(single, container(gpus=6, cpus=3, gib=8)).changes == (
        "container work: 2 CPUs instead of 3, and 4 nvidia.com/gpu instead of 6",
        f"container work: 4 nvidia.com/gpu instead of 6, and {options}",
        f"{options}, and {policy} best-effort instead of single-numa-node",
        f"{options}, and {policy} none instead of single-numa-node",
    )


def test_two_containers_may_have_to_change() -> None:
    two = (container("a", gpus=9, cpus=2, gib=4), container("b", gpus=10, cpus=2, gib=4))

    assert _changed(node(topology_manager_policy="none"), *two).changes == (
        f"container a: 4 {GPU} instead of 9, and container b: 4 {GPU} instead of 10",
    )


def test_a_pair_is_not_offered_beside_a_single_change() -> None:
    assert not any(", and " in change for change in _changed(node(), _WIDE).changes)


def test_the_search_for_changes_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hostile pod has thousands of containers, and a manifest a thousand pods."""
    played = 0

    def counted(*args: Any) -> PodOutcome:
        nonlocal played
        played += len(args[1].containers)
        return admit_pod(*args)

    series = 0

    def seen(*args: Any) -> Iterator[Iterable[Variant]]:
        nonlocal series
        for one in variants(*args):
            series += 1
            yield one

    monkeypatch.setattr(suggestions, "admit_pod", counted)
    monkeypatch.setattr(suggestions, "variants", seen)
    monkeypatch.setattr(suggestions, "WORK", 200 * _STEP)
    many = [container(f"w{number}", gpus=1, cpus=1, gib=1) for number in range(150)]
    assert _changed(node(), *many).admitted is False
    assert played <= 200
    assert series <= 2

    played = 0
    pods = [pod(f"job-{number}", _WIDE) for number in range(40)]
    found = with_changes(node(), admit(node(), pods), pods).pods
    assert found[0].changes[0].startswith("container work: ")
    assert not any(change.startswith("container") for change in found[-1].changes)
    assert played <= 200
