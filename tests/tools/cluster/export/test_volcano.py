"""Volcano's HyperNodes and the configuration of its own discovery."""

from typing import Any

import pytest
import yaml

from nodetopo.errors import InputError
from nodetopo.tools.cluster.export.formats import ExportOptions, export
from tests.tools.cluster.labelled import (
    CLUSTER,
    DOMAIN,
    HOSTNAME,
    PARTITION,
    TIER_0,
    bare,
    labelled,
    tray,
    with_labels,
)

RACK = tuple(tray(f"gb-{number}", number % 2) for number in range(4))
DGX = labelled("dgx-0", "dgx-h100")
UUIDS = ("uuid-1", "uuid-2")


def hypernodes(*nodes: Any, levels: tuple[str, ...] = ()) -> dict[str, Any]:
    found = export("volcano", nodes, ExportOptions(name="gpu", levels=levels)).objects
    assert {(one["apiVersion"], one["kind"]) for one in found} == {
        ("topology.volcano.sh/v1alpha1", "HyperNode")
    }
    return {one["metadata"]["name"]: one["spec"] for one in found}


def test_partitions_are_tier_1_by_label_and_what_is_above_names_its_members() -> None:
    found = hypernodes(
        *(tray(f"n{number}", 1, uuid) for number, uuid in enumerate(UUIDS)),
        levels=(DOMAIN, PARTITION, HOSTNAME),
    )
    assert found == {
        **{
            f"gpu-nvlink-partition-{uuid}.1": {
                "tier": 1,
                "tierName": PARTITION,
                "members": [
                    {
                        "type": "Node",
                        "selector": {
                            "labelMatch": {"matchLabels": {DOMAIN: uuid, PARTITION: f"{uuid}.1"}}
                        },
                    }
                ],
            }
            for uuid in UUIDS
        },
        **{
            f"gpu-nvlink-domain-{uuid}": {
                "tier": 2,
                "tierName": DOMAIN,
                "members": [
                    {
                        "type": "HyperNode",
                        "selector": {"exactMatch": {"name": f"gpu-nvlink-partition-{uuid}.1"}},
                    }
                ],
            }
            for uuid in UUIDS
        },
    }


def test_members_are_created_before_what_names_them() -> None:
    found = hypernodes(*(with_labels(node, {TIER_0: "r1"}) for node in (*RACK, DGX)))
    assert [spec["tier"] for spec in found.values()] == [1, 1, 1, 2, 2, 3]


def test_every_hypernode_but_the_highest_is_a_member_once() -> None:
    nodes = [with_labels(node, {TIER_0: "r1"}) for node in (*RACK, DGX)]
    found = hypernodes(*nodes)
    members = [
        member["selector"]["exactMatch"]["name"]
        for spec in found.values()
        for member in spec["members"]
        if member["type"] == "HyperNode"
    ]
    assert sorted(members) == sorted(set(found) - {"gpu-tier-0-r1"})


def test_racks_of_one_name_in_two_rows_are_two_hypernodes() -> None:
    nodes = [
        bare(f"n{row}", **{"a/row": row, "a/rack": "1", "nvidia.com/gpu.count": "8"})
        for row in ("x", "y")
    ]
    found = hypernodes(*nodes, levels=("a/row", "a/rack"))
    selectors = [spec["members"][0]["selector"] for spec in found.values() if spec["tier"] == 1]
    assert selectors == [
        {"labelMatch": {"matchLabels": {"a/row": row, "a/rack": "1"}}} for row in ("x", "y")
    ]


def test_the_highest_tier_is_named_as_a_job_names_it() -> None:
    found = export("volcano", RACK)
    assert [remark.text for remark in found.remarks] == [
        f"in a Job: networkTopology: mode: hard, highestTierName: {PARTITION}"
    ]
    assert found.objects[0]["spec"]["members"][0]["selector"]["labelMatch"]["matchLabels"] == {
        DOMAIN: CLUSTER,
        PARTITION: f"{CLUSTER}.0",
    }


@pytest.mark.parametrize("levels", [(), (DOMAIN, PARTITION)])
def test_discovery_reads_our_labels_and_drops_only_the_host(levels: tuple[str, ...]) -> None:
    options = ExportOptions(name="gpu", form="discovery", levels=levels, namespace="volcano")
    (found,) = export("volcano", RACK, options).objects
    assert found["metadata"] == {"name": "volcano-controller-configmap", "namespace": "volcano"}
    assert yaml.safe_load(found["data"]["volcano-controller.conf"]) == {
        "networkTopologyDiscovery": [
            {
                "source": "label",
                "enabled": True,
                "config": {
                    "networkTopologyTypes": {
                        "gpu": [{"nodeLabel": key} for key in (DOMAIN, PARTITION, HOSTNAME)]
                    }
                },
            }
        ]
    }


def test_discovery_takes_names_of_twenty_characters() -> None:
    export("volcano", RACK, ExportOptions(form="discovery", name="a" * 20))
    with pytest.raises(InputError, match="name too long"):
        export("volcano", RACK, ExportOptions(form="discovery", name="a" * 21))


@pytest.mark.parametrize("form", ["hypernodes", "discovery"])
def test_hosts_alone_are_no_tiers(form: str) -> None:
    with pytest.raises(InputError, match="no level above the single node"):
        export("volcano", RACK, ExportOptions(form=form, levels=(HOSTNAME,)))


def test_a_name_that_yaml_takes_for_a_truth_value_stays_a_name() -> None:
    rack = tuple(tray(f"n{number}", 1) for number in range(2))
    (found,) = export("volcano", rack, ExportOptions(form="discovery", name="on")).objects
    (source,) = yaml.safe_load(found["data"]["volcano-controller.conf"])["networkTopologyDiscovery"]
    assert list(source["config"]["networkTopologyTypes"]) == ["on"]
