"""Slurm's topology files."""

import pytest

from nodetopo.errors import InputError
from nodetopo.tools.cluster.export.formats import ExportOptions, export
from nodetopo.tools.cluster.node import ClusterNode
from tests.tools.cluster.labelled import HOSTNAME, TIER_0, labelled, tray, with_labels

UUID = "u1"
RACK = tuple(with_labels(tray(f"gb{number}", 1, UUID), {TIER_0: "r1"}) for number in range(3))
PAIR = tuple(with_labels(tray(f"gc{number}", 2, UUID), {TIER_0: "r1"}) for number in range(2))
DGX = with_labels(labelled("dgx1", "dgx-h100"), {TIER_0: "r2"})
OWN = DGX.labels["gpu.topology/nvlink-domain"]


def text(*nodes: ClusterNode, form: str, levels: tuple[str, ...] = ()) -> list[str]:
    found = export("slurm", nodes, ExportOptions(form=form, levels=levels)).text
    assert found is not None
    return found.splitlines()


def warnings(*nodes: ClusterNode, form: str = "yaml") -> list[str]:
    remarks = export("slurm", nodes, ExportOptions(form=form)).remarks
    return [remark.text for remark in remarks if remark.kind == "warning"]


def test_the_tree_has_a_switch_for_each_place_and_one_above_all() -> None:
    assert text(*RACK, *PAIR, DGX, form="conf-tree") == [
        f"SwitchName=nvlink-partition-{OWN} Nodes=dgx1",
        "SwitchName=nvlink-partition-u1.2 Nodes=gc0,gc1",
        "SwitchName=nvlink-partition-u1.1 Nodes=gb0,gb1,gb2",
        f"SwitchName=tier-0-r2 Switches=nvlink-partition-{OWN}",
        "SwitchName=tier-0-r1 Switches=nvlink-partition-u1.1,nvlink-partition-u1.2",
        "SwitchName=root Switches=tier-0-r1,tier-0-r2",
    ]


def test_blocks_are_partitions_of_two_nodes_or_more_and_the_least_gives_the_size() -> None:
    assert text(*RACK, *PAIR, DGX, form="conf-block") == [
        "BlockName=nvlink-partition-u1.1 Nodes=gb0,gb1,gb2",
        "BlockName=nvlink-partition-u1.2 Nodes=gc0,gc1",
        "BlockSizes=2",
    ]


def test_a_level_that_divides_nothing_is_no_switch() -> None:
    assert text(*RACK, form="conf-tree") == ["SwitchName=root Nodes=gb0,gb1,gb2"]


def test_the_yaml_file_has_the_tree_for_all_and_the_blocks_beside_it() -> None:
    document = export("slurm", (*RACK, *PAIR)).document
    assert document == [
        {
            "topology": "gpu-topology-tree",
            "cluster_default": True,
            "tree": {
                "switches": [
                    {"switch": "nvlink-partition-u1.2", "nodes": "gc0,gc1"},
                    {"switch": "nvlink-partition-u1.1", "nodes": "gb0,gb1,gb2"},
                    {
                        "switch": "root",
                        "children": "nvlink-partition-u1.1,nvlink-partition-u1.2",
                    },
                ]
            },
        },
        {
            "topology": "gpu-topology-block",
            "cluster_default": False,
            "block": {
                "block_sizes": [2],
                "blocks": [
                    {"block": "nvlink-partition-u1.1", "nodes": "gb0,gb1,gb2"},
                    {"block": "nvlink-partition-u1.2", "nodes": "gc0,gc1"},
                ],
            },
        },
    ]


def test_single_machines_have_no_blocks() -> None:
    assert [one["topology"] for one in export("slurm", (DGX,)).document] == ["gpu-topology-tree"]
    with pytest.raises(InputError, match="NVLink joins no two nodes"):
        text(DGX, form="conf-block")


def test_nodes_below_one_switch_are_no_block_unless_somebody_says_so() -> None:
    pcie = [with_labels(labelled(f"l{at}", "l40s-pcie-4"), {TIER_0: "r1"}) for at in range(2)]
    assert [one["topology"] for one in export("slurm", pcie).document] == ["gpu-topology-tree"]
    assert text(*pcie, form="conf-block", levels=(TIER_0,)) == [
        "BlockName=tier-0-r1 Nodes=l0,l1",
        "BlockSizes=2",
    ]


def test_hosts_alone_hang_below_one_switch() -> None:
    assert text(*PAIR, form="conf-tree", levels=(HOSTNAME,)) == ["SwitchName=root Nodes=gc0,gc1"]


def test_nodes_in_no_block_are_named_where_there_are_blocks() -> None:
    assert warnings(*RACK, DGX) == ["in no block, each alone in its place: dgx1"]
    assert warnings(*RACK, DGX, form="conf-tree") == []


def test_dots_in_names_of_nodes_are_pointed_out() -> None:
    node = with_labels(tray("gb9.example.com", 1, UUID), {TIER_0: "r1"})
    assert warnings(*RACK, node) == [
        "names of nodes have dots: Slurm's NodeName is often the short one"
    ]


@pytest.mark.parametrize("name", ["a b", "a,b", "a[1-9]", "a\nSwitchName=x", "A"])
def test_a_name_that_means_more_to_slurm_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="not the name of a node"):
        text(with_labels(tray(name, 1, UUID), {TIER_0: "r1"}), form="conf-tree")
