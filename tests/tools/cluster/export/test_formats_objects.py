"""What each scheduler is given, whole."""

from collections.abc import Mapping
from typing import Any

import pytest

from nodetopo.errors import InputError
from nodetopo.tools.cluster.export.formats import FORMS, SCHEDULERS, Exported, ExportOptions, export
from tests.tools.cluster.labelled import (
    CLIQUE,
    DOMAIN,
    HOSTNAME,
    PARTITION,
    REGION,
    RUNAI,
    TIER_0,
    TIER_1,
    ZONE,
    bare,
    labelled,
    tray,
    with_labels,
    without,
)

RACK = tuple(tray(f"gb-{number}", 1 if number else 2) for number in range(4))
DGX = (labelled("dgx-0", "dgx-h100"),)
MIXED = (*RACK, *DGX)
LEVELS = [{"nodeLabel": key} for key in (DOMAIN, PARTITION, HOSTNAME)]


def spec(exported: Exported, kind: str) -> Any:
    (found,) = (one for one in exported.objects if one["kind"] == kind)
    return found["spec"]


def notes(exported: Exported) -> list[str]:
    return [remark.text for remark in exported.remarks if remark.kind == "note"]


def test_kai_gets_a_topology() -> None:
    found = export("kai", MIXED, ExportOptions(name="racks"))
    assert found.objects == (
        {
            "apiVersion": "kai.scheduler/v1alpha1",
            "kind": "Topology",
            "metadata": {"name": "racks"},
            "spec": {"levels": LEVELS},
        },
    )
    annotation = f"kai.scheduler/topology-required-placement: {PARTITION}"
    assert notes(found) == [f"annotate workloads: kai.scheduler/topology: racks, {annotation}"]


def test_kueue_gets_a_topology_and_a_flavor_that_names_it() -> None:
    found = export("kueue", MIXED, ExportOptions(name="racks", node_labels={"pool": "gpu"}))
    assert found.objects == (
        {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "Topology",
            "metadata": {"name": "racks"},
            "spec": {"levels": LEVELS},
        },
        {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "ResourceFlavor",
            "metadata": {"name": "racks"},
            "spec": {"nodeLabels": {"pool": "gpu"}, "topologyName": "racks"},
        },
    )


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ({"nvidia.com/gpu.present": "true"}, {"nvidia.com/gpu.present": "true"}),
        ({}, {"gpu.topology/interconnect": "mnnvl"}),
    ],
)
def test_kueues_flavor_finds_a_label_that_all_nodes_share(
    labels: dict[str, str], expected: Mapping[str, str]
) -> None:
    found = export("kueue", [with_labels(node, labels) for node in RACK])
    assert spec(found, "ResourceFlavor")["nodeLabels"] == expected


def test_kueues_flavor_wants_a_selector_where_nodes_share_nothing() -> None:
    with pytest.raises(InputError, match="share no label to know them by"):
        export("kueue", MIXED)


def test_kueues_flavor_takes_eight_labels() -> None:
    labels = {f"a/k{number}": "v" for number in range(9)}
    with pytest.raises(InputError, match="9 labels in the selector"):
        export("kueue", MIXED, ExportOptions(node_labels=labels))
    labels.popitem()
    found = export("kueue", MIXED, ExportOptions(node_labels=labels))
    assert spec(found, "ResourceFlavor")["nodeLabels"] == labels


@pytest.mark.parametrize("version", FORMS["kubernetes"])
def test_kubernetes_gets_a_pod_group_as_large_as_the_largest_partition(version: str) -> None:
    found = export("kubernetes", MIXED, ExportOptions(form=version, namespace="ml"))
    assert found.objects == (
        {
            "apiVersion": f"scheduling.k8s.io/{version}",
            "kind": "PodGroup",
            "metadata": {"name": "gpu-topology", "namespace": "ml"},
            "spec": {
                "schedulingPolicy": {"gang": {"minCount": 3}},
                "schedulingConstraints": {"topology": [{"key": PARTITION}]},
            },
        },
    )


def test_lws_gets_a_set_whose_groups_have_a_partition_each() -> None:
    found = export("lws", MIXED, ExportOptions(size=2))
    assert found.objects == (
        {
            "apiVersion": "leaderworkerset.x-k8s.io/v1",
            "kind": "LeaderWorkerSet",
            "metadata": {
                "name": "gpu-topology",
                "annotations": {"leaderworkerset.sigs.k8s.io/exclusive-topology": PARTITION},
            },
            "spec": {
                "replicas": 1,
                "leaderWorkerTemplate": {
                    "size": 2,
                    "workerTemplate": {
                        "spec": {
                            "containers": [
                                {"name": "worker", "image": "registry.k8s.io/pause:3.10"}
                            ]
                        }
                    },
                },
            },
        },
    )


@pytest.mark.parametrize("scheduler", ["kubernetes", "lws"])
def test_a_group_has_a_pod_and_a_level_above_the_node(scheduler: str) -> None:
    with pytest.raises(InputError, match="--size 0"):
        export(scheduler, MIXED, ExportOptions(size=0))
    with pytest.raises(InputError, match="no level above the single node"):
        export(scheduler, MIXED, ExportOptions(levels=(HOSTNAME,)))


def test_grove_gets_portable_names_for_the_levels() -> None:
    place = {REGION: "eu", ZONE: "eu-1", TIER_1: "b1", TIER_0: "r1"}
    found = export("grove", [with_labels(node, place) for node in MIXED])
    (binding,) = found.objects
    assert (binding["apiVersion"], binding["kind"]) == (
        "grove.io/v1alpha1",
        "ClusterTopologyBinding",
    )
    assert {level["domain"]: level["key"] for level in binding["spec"]["levels"]} == {
        "region": REGION,
        "zone": ZONE,
        "tier-1": TIER_1,
        "block": TIER_0,
        "rack": DOMAIN,
        "nvlink-partition": PARTITION,
        "host": HOSTNAME,
    }


def test_grove_never_gets_a_name_twice_nor_one_that_it_refuses() -> None:
    labels = {"a/Rack_1": "x", "b/rack.1": "x", "a/1st": "x"}
    nodes = [with_labels(node, labels) for node in RACK]
    found = export("grove", nodes, ExportOptions(levels=tuple(labels)))
    domains = [level["domain"] for level in found.objects[0]["spec"]["levels"]]
    assert domains == ["rack-1", "level-1", "level-2"]


def test_a_key_of_more_than_63_characters_is_for_others_than_grove() -> None:
    key = "a" * 40 + ".example.com/" + "b" * 20
    nodes = [with_labels(node, {key: "x"}) for node in RACK]
    with pytest.raises(InputError, match="here up to 63 characters"):
        export("grove", nodes, ExportOptions(levels=(key,)))
    topology = export("kai", nodes, ExportOptions(levels=(key,)))
    assert spec(topology, "Topology") == {"levels": [{"nodeLabel": key}]}


def test_runai_gets_the_body_of_a_request_and_must_know_the_cluster() -> None:
    found = export("runai", MIXED, ExportOptions(cluster_id=RUNAI))
    assert (found.objects, found.document) == (
        (),
        {
            "name": "gpu-topology",
            "clusterId": RUNAI,
            "levels": [DOMAIN, PARTITION, HOSTNAME],
        },
    )
    for wrong in (None, "", "my-cluster"):
        with pytest.raises(InputError, match="give --cluster-id"):
            export("runai", MIXED, ExportOptions(cluster_id=wrong))


def test_topograph_gets_the_label_of_nvlink_between_nodes() -> None:
    by_engine = export("topograph", RACK).document
    assert by_engine == {"engine": {"params": {"acceleratorDomainSourceLabel": PARTITION}}}
    by_provider = export("topograph", RACK, ExportOptions(form="provider")).document
    source = {"source": "kubernetes-label", "kubernetesLabel": {"key": PARTITION}}
    assert by_provider == {"provider": {"params": {"accelerator": source}}}


def test_topograph_gets_no_label_that_makes_blocks_of_single_machines() -> None:
    parameters = export("topograph", MIXED).document["engine"]["params"]
    assert parameters == {"acceleratorDomainSourceLabel": CLIQUE}
    with pytest.raises(InputError, match="no label tells of NVLink between nodes"):
        export("topograph", [without(node, CLIQUE) for node in MIXED])
    named = export("topograph", MIXED, ExportOptions(levels=(DOMAIN, HOSTNAME)))
    assert named.document["engine"]["params"] == {"acceleratorDomainSourceLabel": DOMAIN}


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_every_scheduler_of_the_list_gets_something_and_the_order_of_nodes_is_none_of_it(
    scheduler: str,
) -> None:
    options = ExportOptions(cluster_id=RUNAI, node_labels={"pool": "gpu"})
    found = export(scheduler, MIXED, options)
    assert found.objects or found.document
    assert export(scheduler, MIXED[::-1], options) == found


def test_an_unknown_scheduler_is_refused_with_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean 'kueue'"):
        export("kueu", MIXED)
    with pytest.raises(InputError, match="known are: kai, kueue"):
        export("nomad", MIXED)


def test_an_unknown_form_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InputError, match="known are: hypernodes, discovery"):
        export("volcano", MIXED, ExportOptions(form="yaml"))
    with pytest.raises(InputError, match="one form only"):
        export("kai", MIXED, ExportOptions(form="yaml"))


@pytest.mark.parametrize("name", ["", "1a", "a-", "a.b", "A", "a" * 64])
def test_a_name_that_some_scheduler_refuses_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="not a usable name"):
        export("kai", MIXED, ExportOptions(name=name))


def test_a_cluster_without_gpus_still_gets_its_topology() -> None:
    found = export("kueue", [bare("a", kubernetes__x="1", **{"kubernetes.io/os": "linux"})])
    assert spec(found, "ResourceFlavor")["nodeLabels"] == {"kubernetes.io/os": "linux"}
