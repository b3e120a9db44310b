"""Gangs and levels as the schedulers' own objects tell of them."""

from typing import Any

import pytest

from nodetopo.tools.cluster import kinds
from nodetopo.tools.cluster.cluster import Gang
from nodetopo.tools.cluster.demands import demands, gangs_of
from nodetopo.tools.cluster.kinds import KINDS, ObjectKind, kind_of

KEY = "nvidia.com/gpu.clique"
TEMPLATE = {"spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": "4"}}}]}}
ONE_GPU = {"spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": "1"}}}]}}
NO_GPU: dict[str, Any] = {"spec": {"containers": [{}]}}
NAMED = {"namespace": "ml", "name": "it"}


def spec(found: object, **more: object) -> dict[str, Any]:
    return {"metadata": NAMED, "spec": found, **more}


def required(size: int, key: str = KEY) -> dict[str, Any]:
    constraint = {"requiredTopologyLevel": key, "topology": "nvl72"}
    return {"minMember": size, "topologyConstraint": constraint}


def test_a_pod_group_of_kubernetes_has_its_count_and_key() -> None:
    constraints = {"topology": [{"key": KEY}]}
    policy = {"gang": {"minCount": 4}}
    found = spec({"schedulingPolicy": policy, "schedulingConstraints": constraints})
    assert gangs_of(kinds.POD_GROUP, found) == (Gang(name="PodGroup ml/it", size=4, key=KEY),)
    basic = spec({"schedulingPolicy": {"basic": {}}, "schedulingConstraints": constraints})
    assert gangs_of(kinds.POD_GROUP, basic) == ()


def pod_set(name: str, request: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "count": 6, "template": TEMPLATE, "topologyRequest": request}


def test_a_kueue_workload_asks_for_pod_sets_and_slices() -> None:
    layers = [{"topology": "a/rack", "size": 3}]
    pod_sets = [
        pod_set("leader", {"preferred": KEY}),
        pod_set(
            "workers",
            {"required": "a/zone", "podSetSliceRequiredTopology": KEY} | {"podSetSliceSize": 2},
        ),
        pod_set("deep", {"podsetSliceRequiredTopologyConstraints": layers}),
    ]
    assert gangs_of(kinds.WORKLOAD, spec({"podSets": pod_sets})) == (
        Gang(name="Kueue Workload ml/it (workers)", size=2, key=KEY, gpus=4),
        Gang(name="Kueue Workload ml/it (deep)", size=3, key="a/rack", gpus=4),
        Gang(name="Kueue Workload ml/it (workers)", size=6, key="a/zone", gpus=4),
    )


def test_pod_sets_of_one_group_share_a_place_at_kueue() -> None:
    leader = pod_set("leader", {"required": KEY, "podSetGroupName": "g"}) | {"count": 1}
    workers = pod_set("workers", {"required": KEY, "podSetGroupName": "g"})
    name = "Kueue Workload ml/it (leader, workers)"
    (together,) = gangs_of(kinds.WORKLOAD, spec({"podSets": [leader, workers]}))
    assert together == Gang(name=name, size=7, key=KEY, gpus=4)
    (without_gpus,) = gangs_of(
        kinds.WORKLOAD, spec({"podSets": [leader | {"template": NO_GPU}, workers]})
    )
    assert without_gpus == Gang(name=name, size=6, key=KEY, gpus=4)


def test_a_workload_that_may_shrink_asks_for_its_least() -> None:
    elastic = pod_set("all", {"required": KEY}) | {"minCount": 2}
    (gang,) = gangs_of(kinds.WORKLOAD, spec({"podSets": [elastic]}))
    assert gang.size == 2


def test_what_has_ended_asks_for_nothing() -> None:
    ended = {"conditions": [{"type": "Finished", "status": "True"}]}
    pod_sets = {"podSets": [pod_set("all", {"required": KEY})]}
    assert gangs_of(kinds.WORKLOAD, spec(pod_sets, status=ended)) == ()
    assert gangs_of(kinds.WORKLOAD, spec({**pod_sets, "active": False})) == ()
    volcano = {"minMember": 4, "networkTopology": {"highestTierName": KEY}}
    assert gangs_of(kinds.VOLCANO_POD_GROUP, spec(volcano, status={"phase": "Completed"})) == ()
    assert len(gangs_of(kinds.VOLCANO_POD_GROUP, spec(volcano, status={"phase": "Pending"}))) == 1


def test_what_is_being_deleted_asks_for_nothing() -> None:
    found = spec(required(8))
    assert len(gangs_of(kinds.KAI_POD_GROUP, found)) == 1
    found["metadata"] = {**NAMED, "deletionTimestamp": "2026-01-01T00:00:00Z"}
    assert gangs_of(kinds.KAI_POD_GROUP, found) == ()


def test_a_volcano_pod_group_is_bound_by_hard_levels_only() -> None:
    hard = {"mode": "hard", "highestTierName": KEY}
    part = {"name": "p", "subGroupSize": 2, "networkTopology": {"highestTierName": "a/rack"}}
    found = {"minMember": 4, "minResources": {"nvidia.com/gpu": "16"}, "networkTopology": hard}
    assert gangs_of(kinds.VOLCANO_POD_GROUP, spec({**found, "subGroupPolicy": [part]})) == (
        Gang(name="Volcano PodGroup ml/it", size=4, key=KEY, gpus=4, is_label=False),
        Gang(name="Volcano PodGroup ml/it (p)", size=2, key="a/rack", gpus=4, is_label=False),
    )
    soft = {**found, "networkTopology": {**hard, "mode": "soft"}}
    assert gangs_of(kinds.VOLCANO_POD_GROUP, spec(soft)) == ()


@pytest.mark.parametrize(
    ("tasks", "gpus"), [({"worker": 5}, 3), ({"launcher": 1, "worker": 4}, None), (7, 3)]
)
def test_gpus_of_a_volcano_pod_are_told_by_the_sum_where_there_is_one_task(
    tasks: object, gpus: int | None
) -> None:
    sums = {"minMember": 5, "minTaskMember": tasks, "minResources": {"nvidia.com/gpu": "15"}}
    found = spec({**sums, "networkTopology": {"highestTierName": KEY}})
    (gang,) = gangs_of(kinds.VOLCANO_POD_GROUP, found)
    assert gang.gpus == gpus


def test_a_leader_worker_set_is_exclusive_by_its_annotations() -> None:
    group = {"size": 8, "workerTemplate": TEMPLATE, "subGroupPolicy": {"subGroupSize": 2}}
    prefix = "leaderworkerset.sigs.k8s.io"
    notes = {f"{prefix}/exclusive-topology": "a/zone", f"{prefix}/subgroup-exclusive-topology": KEY}
    found = spec({"leaderWorkerTemplate": group})
    assert gangs_of(kinds.LEADER_WORKER_SET, found) == ()
    found["metadata"] = {**NAMED, "annotations": notes}
    assert gangs_of(kinds.LEADER_WORKER_SET, found) == (
        Gang(name="LeaderWorkerSet ml/it", size=8, key="a/zone", gpus=4),
        Gang(name="LeaderWorkerSet ml/it", size=2, key=KEY, gpus=4),
    )


@pytest.mark.parametrize(
    ("leader", "part", "expected"),
    [
        (NO_GPU, 2, [(4, 4), (2, 4)]),
        (NO_GPU, 5, [(4, 4), (4, 4)]),
        (TEMPLATE, 2, [(5, 4), (2, 4)]),
        (ONE_GPU, 2, [(5, None), (2, 4)]),
    ],
)
def test_a_leader_of_another_kind_counts_by_its_own_gpus(
    leader: object, part: int, expected: object
) -> None:
    prefix = "leaderworkerset.sigs.k8s.io"
    notes = {f"{prefix}/exclusive-topology": "a/zone", f"{prefix}/subgroup-exclusive-topology": KEY}
    group = {"size": 5, "leaderTemplate": leader, "workerTemplate": TEMPLATE}
    found = spec({"leaderWorkerTemplate": {**group, "subGroupPolicy": {"subGroupSize": part}}})
    found["metadata"] = {**NAMED, "annotations": notes}
    gangs = gangs_of(kinds.LEADER_WORKER_SET, found)
    assert [(gang.size, gang.gpus) for gang in gangs] == expected


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("broken", [{}, {"spec": None}, {"spec": []}, {"spec": {"podSets": [7]}}])
def test_an_object_in_another_shape_asks_for_nothing(
    kind: ObjectKind, broken: dict[str, Any]
) -> None:
    assert demands([(kind, broken)]).gangs == ()


def test_a_kind_is_known_by_its_group_in_any_version() -> None:
    assert kind_of("kueue.x-k8s.io/v1beta1", "Workload") is kinds.WORKLOAD
    assert kind_of("scheduling.k8s.io/v1alpha2", "PodGroup") is kinds.POD_GROUP
    assert kind_of("scheduling.volcano.sh/v1beta1", "PodGroup") is kinds.VOLCANO_POD_GROUP
    assert kind_of("v1", "Pod") is None
