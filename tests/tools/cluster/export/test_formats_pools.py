"""What `export` makes of clusters whose machines are not alike."""

from typing import Any

import pytest

from nodetopo.errors import InputError
from nodetopo.tools.cluster.export.formats import Exported, ExportOptions, export
from nodetopo.tools.cluster.node import ClusterNode
from tests.tools.cluster.labelled import (
    DOMAIN,
    HOSTNAME,
    PARTITION,
    TIER_0,
    ZONE,
    bare,
    labelled,
    tray,
)

PCIE = tuple(labelled(f"l40-{number}", "l40s-pcie-4") for number in range(2))
RACK = tuple(tray(f"gb-{number}", 1) for number in range(2))
EXCLUSIVE = "leaderworkerset.sigs.k8s.io/exclusive-topology"


def dgx(count: int) -> tuple[ClusterNode, ...]:
    return tuple(
        labelled(f"dgx-{n}", "dgx-h100", {ZONE: "z", TIER_0: f"leaf{n // 2}"}) for n in range(count)
    )


def notes(found: Exported) -> list[str]:
    return [remark.text for remark in found.remarks if remark.kind == "note"]


def test_machines_without_nvlink_are_given_a_selector_of_their_own() -> None:
    key = "gpu.topology/interconnect"
    assert notes(export("slurm", (*RACK, *PCIE)))[0] == (
        f"for the levels of NVLink export in two: with --selector {key}!=pcie, "
        f"and under another --name with --selector {key}=pcie"
    )
    for alike in (RACK, PCIE):
        assert not any("export in two" in text for text in notes(export("kai", alike)))
    by_hand = export("kai", (*RACK, *PCIE), ExportOptions(levels=(HOSTNAME,)))
    assert notes(by_hand) == []


def test_nodes_that_no_label_gives_gpus_are_told() -> None:
    found = notes(export("kai", (*RACK, bare("new-2"), bare("new-1"))))
    text = "2 of 4 nodes are passed over: no label tells of GPUs there: new-1, new-2"
    assert found[0] == text
    assert not any("passed over" in text for text in notes(export("kai", RACK)))


def test_a_group_is_kept_together_by_a_level_that_joins_nodes() -> None:
    def template(nodes: tuple[ClusterNode, ...]) -> tuple[Any, Any]:
        (found,) = export("lws", nodes).objects
        spec = found["spec"]["leaderWorkerTemplate"]
        return found["metadata"]["annotations"][EXCLUSIVE], spec["size"]

    assert template(dgx(4)) == (TIER_0, 2)
    assert template((*dgx(1), *RACK)) == (PARTITION, 2)
    # A zone is no place to have to oneself.
    assert template(tuple(labelled(f"d{n}", "dgx-h100", {ZONE: "z"}) for n in "ab")) == (
        PARTITION,
        1,
    )


@pytest.mark.parametrize("scheduler", ["kai", "kueue", "volcano"])
def test_the_level_that_is_advised_joins_nodes(scheduler: str) -> None:
    assert f": {TIER_0}" in notes(export(scheduler, dgx(4)))[-1]


def test_a_node_is_no_switch_of_slurm_s() -> None:
    (tree,) = export("slurm", dgx(4)).document
    rows = {one["switch"]: one.get("nodes") for one in tree["tree"]["switches"]}
    assert rows == {"tier-0-leaf1": "dgx-2,dgx-3", "tier-0-leaf0": "dgx-0,dgx-1", "root": None}


def test_topograph_takes_the_narrowest_key_that_is_named() -> None:
    found = export("topograph", dgx(4), ExportOptions(levels=(TIER_0, DOMAIN)))
    assert found.document["engine"]["params"]["acceleratorDomainSourceLabel"] == DOMAIN
    with pytest.raises(InputError, match="narrow them with --selector"):
        export("topograph", dgx(4), ExportOptions(levels=(HOSTNAME,)))
