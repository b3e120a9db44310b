"""The exported topologies against the rules of those who read them, in a real API server."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from tests.lab.api import ApiError, Object
from tests.lab.cluster import Cluster
from tests.lab.schedulers import fabric, objects
from tests.lab.schedulers.exported import exported, lost
from tests.lab.schedulers.fabric import DOMAIN, HOSTNAME, MACHINES, PARTITION
from tests.lab.schedulers.gang import Gang

pytestmark = pytest.mark.lab

_SIZES = [4, 4, 2, 1, 1]
"""Nodes in each NVLink partition, the largest first."""


@pytest.mark.parametrize("scheduler", ["kai", "kueue", "volcano", "kubernetes", "lws"])
def test_the_api_server_keeps_all_that_is_exported(consumers: Cluster, scheduler: str) -> None:
    documents = exported(consumers, scheduler, "kept")
    stored = [objects.apply(consumers.api, one) for one in documents]
    for document in documents:  # the next file asks what nobody asked for yet
        consumers.api.delete(objects.place(consumers.api, document))

    assert stored
    assert [lost(*pair) for pair in zip(documents, stored, strict=True)] == [[]] * len(stored)


def _levels(change: Callable[[list[Any]], list[Any]]) -> Callable[[Object], object]:
    return lambda spec: spec.update(levels=change(spec["levels"]))


def _constraints(found: list[Object]) -> Callable[[Object], object]:
    return lambda spec: spec.update(schedulingConstraints={"topology": found})


@pytest.mark.parametrize(
    ("scheduler", "number", "spoil", "why"),
    [
        ("kai", 0, _levels(lambda found: found[::-1]), "only be used at the lowest level"),
        ("kai", 0, _levels(lambda found: found[:1] * 2), "must be unique"),
        ("kai", 0, _levels(lambda found: found[:1] * 17), "must have at most 16 items"),
        ("kai", 0, _levels(lambda _: []), "should have at least 1 items"),
        ("kai", 0, _levels(lambda _: [{"nodeLabel": "a b"}]), "should match"),
        ("kai", 0, _levels(lambda _: [{"key": PARTITION}]), "field not declared in schema"),
        ("kueue", 0, _levels(lambda found: found[::-1]), "only be used at the lowest level"),
        ("kueue", 0, _levels(lambda found: found[:1] * 2), "must be unique"),
        ("kueue", 1, lambda spec: spec.pop("nodeLabels"), "at least one nodeLabel is required"),
        ("volcano", 0, lambda spec: spec.pop("tier"), "spec.tier: Required value"),
        ("volcano", 0, lambda spec: spec.update(members=[]), "at least 1 items"),
        ("volcano", 0, lambda spec: spec["members"][0].update(type="Rack"), "Unsupported value"),
        ("kubernetes", 0, _constraints([{"key": PARTITION}] * 2), "must have at most 1 item"),
        ("kubernetes", 0, _constraints([{"key": "a b"}]), "Invalid value"),
        ("lws", 0, lambda spec: spec.pop("leaderWorkerTemplate"), "Required value"),
        ("lws", 0, lambda spec: spec.update(topology=PARTITION), "field not declared in schema"),
    ],
)
def test_the_api_server_refuses_what_is_not_a_topology(
    consumers: Cluster, scheduler: str, number: int, spoil: Callable[[Object], object], why: str
) -> None:
    document = exported(consumers, scheduler, "spoilt")[number]
    spoil(document["spec"])
    with pytest.raises(ApiError, match=why):
        objects.apply(consumers.api, document, is_dry_run=True)


@pytest.mark.parametrize("scheduler", ["kai", "kueue"])
def test_every_node_of_a_mixed_cluster_has_every_level_of_the_one_topology(
    consumers: Cluster, scheduler: str
) -> None:
    (topology,) = _of_kind(exported(consumers, scheduler, "mixed"), "Topology")
    keys = [level["nodeLabel"] for level in topology["spec"]["levels"]]
    by_key = {key: fabric.values(consumers.api, key) for key in keys}

    assert keys == [DOMAIN, PARTITION, HOSTNAME]
    assert [values.keys() for values in by_key.values()] == [MACHINES.keys()] * len(keys)
    assert sorted(Counter(by_key[PARTITION].values()).values(), reverse=True) == _SIZES


def test_the_flavor_of_kueue_takes_in_every_node(consumers: Cluster) -> None:
    (flavor,) = _of_kind(exported(consumers, "kueue", "flavor"), "ResourceFlavor")

    assert flavor["spec"]["topologyName"] == "flavor"
    assert _selected(consumers, flavor["spec"]["nodeLabels"]) == sorted(MACHINES)


def test_the_hypernodes_of_volcano_are_the_partitions_inside_their_domains(
    consumers: Cluster,
) -> None:
    found = _of_kind(exported(consumers, "volcano", "hyper"), "HyperNode")
    inside = {
        one["metadata"]["name"]: [
            node for member in one["spec"]["members"] for node in _nodes(consumers, member)
        ]
        for one in found
        if one["spec"]["tier"] == 1
    }
    above = [one for one in found if one["spec"]["tier"] == 2]
    named = [
        member["selector"]["exactMatch"]["name"]
        for one in above
        for member in one["spec"]["members"]
    ]

    assert sorted(inside.values()) == sorted(_partitions(consumers))
    assert (sorted(named), len(above)) == (sorted(inside), 4)


def test_the_pod_group_of_kubernetes_keeps_its_pods_in_one_partition(consumers: Cluster) -> None:
    (group,) = exported(consumers, "kubernetes", "ready-made")
    gang = Gang(name="ready-made", size=group["spec"]["schedulingPolicy"]["gang"]["minCount"])
    objects.apply(consumers.api, group)
    gang.join(consumers.api)

    assert gang.size == max(_SIZES)
    assert gang.wait_placed(consumers.api) in _partitions(consumers)


def _of_kind(documents: tuple[Object, ...], kind: str) -> list[Object]:
    return [document for document in documents if document["kind"] == kind]


def _partitions(cluster: Cluster) -> list[list[str]]:
    """Return the nodes of each NVLink partition, by their labels."""
    found: dict[str, list[str]] = {}
    for node, value in sorted(fabric.values(cluster.api, PARTITION).items()):
        found.setdefault(value, []).append(node)
    return list(found.values())


def _nodes(cluster: Cluster, member: Object) -> list[str]:
    return _selected(cluster, member["selector"]["labelMatch"]["matchLabels"])


def _selected(cluster: Cluster, wanted: dict[str, str]) -> list[str]:
    """Return the nodes that the API server selects by *wanted*, sorted."""
    query = ",".join(f"{key}%3D{value}" for key, value in wanted.items())
    found = cluster.api.get(f"/api/v1/nodes?labelSelector={query}")["items"]
    return sorted(one["metadata"]["name"] for one in found)
