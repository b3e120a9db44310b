"""Which labels become levels, and what is said of the others."""

import pytest

from nodetopo.components.labels.rules import DEFAULT_PREFIX, LabelRules
from nodetopo.errors import InputError
from nodetopo.tools.cluster.levels import Choice, check_levels, choose
from nodetopo.tools.cluster.node import ClusterNode
from tests.tools.cluster.labelled import (
    CLIQUE,
    CLUSTER,
    DOMAIN,
    HOSTNAME,
    PARTITION,
    REGION,
    TIER_0,
    TIER_1,
    ZONE,
    bare,
    labelled,
    tray,
    with_labels,
    without,
)

RACK = tuple(tray(f"gb-{number}", number % 2) for number in range(4))
DGX = tuple(labelled(f"dgx-{number}", "dgx-h100") for number in range(2))
PLACE = {REGION: "eu", ZONE: "eu-1", TIER_1: "b1", TIER_0: "r1"}


def chosen(*nodes: object) -> Choice:
    return choose(tuple(nodes), DEFAULT_PREFIX)  # type: ignore[arg-type]


def texts(choice: Choice) -> list[str]:
    return [f"{remark.kind}: {remark.text}" for remark in choice.remarks]


def test_levels_go_from_the_region_over_tiers_and_nvlink_to_the_host() -> None:
    choice = chosen(*(with_labels(node, PLACE) for node in RACK))
    assert choice.keys == (REGION, ZONE, TIER_1, TIER_0, DOMAIN, PARTITION, HOSTNAME)
    assert choice.remarks == ()


def test_racks_and_single_machines_share_one_topology() -> None:
    choice = chosen(*RACK, *DGX)
    assert choice.keys == (DOMAIN, PARTITION, HOSTNAME)
    assert (len(choice.nodes), choice.remarks) == (6, ())


def test_a_label_that_one_node_lacks_is_left_out_and_the_node_named() -> None:
    choice = chosen(*(with_labels(node, {ZONE: "a"}) for node in RACK), *DGX)
    assert ZONE not in choice.keys
    assert texts(choice) == [
        f"warning: {ZONE} left out: 2 of 6 nodes with GPUs lack it: dgx-0, dgx-1"
    ]


def test_an_empty_label_counts_as_missing() -> None:
    choice = chosen(with_labels(RACK[0], {ZONE: ""}), with_labels(RACK[1], {ZONE: "a"}))
    assert choice.keys == (DOMAIN, PARTITION, HOSTNAME)
    assert texts(choice) == [f"warning: {ZONE} left out: 1 of 2 nodes with GPUs lacks it: gb-0"]


def test_many_nodes_without_a_label_are_counted_after_the_first_five() -> None:
    many = tuple(labelled(f"n{number}", "dgx-h100") for number in range(7))
    choice = chosen(*many, with_labels(DGX[0], {ZONE: "a"}))
    assert texts(choice) == [
        f"warning: {ZONE} left out: 7 of 8 nodes with GPUs lack it: n0, n1, n2, n3, n4 and 2 more"
    ]


def test_nodes_without_gpus_neither_count_nor_serve() -> None:
    choice = chosen(*RACK, bare("web-1"), bare("web-2", **{"nvidia.com/gpu.count": "0"}))
    assert choice.keys == (DOMAIN, PARTITION, HOSTNAME)
    assert [node.name for node in choice.nodes] == ["gb-0", "gb-1", "gb-2", "gb-3"]


def test_where_no_label_tells_of_gpus_all_nodes_count_and_that_is_said() -> None:
    choice = chosen(bare("b", topology__x="1"), bare("a"))
    assert (choice.keys, [node.name for node in choice.nodes]) == ((HOSTNAME,), ["a", "b"])
    assert texts(choice) == ["warning: no label tells which nodes have GPUs: all nodes count"]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("nvidia.com/gpu.present", "true"),
        ("nvidia.com/gpu.product", "NVIDIA-L4"),
        (CLIQUE, f"{CLUSTER}.1"),
        ("gpu.topology/interconnect", "pcie"),
    ],
)
def test_one_label_of_anybody_is_enough_to_know_a_gpu_node(key: str, value: str) -> None:
    choice = chosen(bare("cpu"), bare("gpu", **{key: value}))
    assert [node.name for node in choice.nodes] == ["gpu"]


def test_own_tiers_come_before_those_of_a_platform() -> None:
    gke = {
        "cloud.google.com/gce-topology-subblock": "s",
        "cloud.google.com/gce-topology-block": "b",
    }
    both = chosen(*(with_labels(node, {**gke, TIER_0: "r"}) for node in RACK))
    assert both.keys == (TIER_0, DOMAIN, PARTITION, HOSTNAME)
    cloud = chosen(*(with_labels(node, gke) for node in RACK))
    assert cloud.keys == (*tuple(gke)[::-1], DOMAIN, PARTITION, HOSTNAME)


def test_a_platform_that_all_nodes_have_comes_before_own_tiers_that_some_have() -> None:
    leaf = "fabric.topograph.run/tier-0"
    nodes = [with_labels(node, {leaf: "l"}) for node in RACK]
    nodes[0] = with_labels(nodes[0], {TIER_0: "r"})
    assert chosen(*nodes).keys == (leaf, DOMAIN, PARTITION, HOSTNAME)


def test_the_clique_stands_in_where_nobody_wrote_our_own_label() -> None:
    choice = chosen(*(without(node, DOMAIN, PARTITION) for node in RACK))
    assert choice.keys == (CLIQUE, HOSTNAME)


def test_nodes_joined_by_pcie_take_the_nvlink_levels_out() -> None:
    choice = chosen(*RACK, labelled("l40s", "l40s-pcie-4"))
    assert choice.keys == (HOSTNAME,)
    assert [text.split(" ")[1] for text in texts(choice)] == [DOMAIN, PARTITION]


def test_a_broader_level_that_would_cut_an_nvlink_domain_is_left_out() -> None:
    rails = [with_labels(node, {TIER_0: f"leaf{at}", TIER_1: "s"}) for at, node in enumerate(RACK)]
    choice = chosen(*rails)
    assert choice.keys == (TIER_1, DOMAIN, PARTITION, HOSTNAME)
    where = f"{DOMAIN}={CLUSTER} lies in 4 of its places (leaf0, leaf1, leaf2, leaf3)"
    assert texts(choice) == [f"warning: {TIER_0} left out: {where} and would be cut"]


def test_the_prefix_of_our_labels_can_be_another() -> None:
    rules = LabelRules(prefix="topo.example.com/")
    nodes = [labelled(f"d{number}", "dgx-h100", rules=rules) for number in range(2)]
    keys = choose(nodes, rules.prefix).keys
    assert keys == ("topo.example.com/nvlink-domain", "topo.example.com/nvlink-partition", HOSTNAME)


def test_levels_that_were_asked_for_are_taken_and_nodes_without_them_drop_out() -> None:
    nodes = (with_labels(RACK[0], {"a/rack": "1"}), RACK[1])
    choice = choose(nodes, DEFAULT_PREFIX, ("a/rack", HOSTNAME))
    assert (choice.keys, choice.nodes) == (("a/rack", HOSTNAME), nodes[:1])
    what = "lacks it and will get no pods of this topology: gb-1"
    assert texts(choice) == [f"warning: a/rack: 1 of 2 nodes with GPUs {what}"]


def test_levels_that_no_node_carries_are_refused() -> None:
    with pytest.raises(InputError, match="no node carries all of these levels"):
        choose(RACK, DEFAULT_PREFIX, ("a/rack",))


def test_no_nodes_are_refused() -> None:
    with pytest.raises(InputError, match="no nodes"):
        choose((), DEFAULT_PREFIX)


def test_nodes_without_any_common_label_are_refused() -> None:
    with pytest.raises(InputError, match="no label that all nodes carry makes a level"):
        choose([without(RACK[0], HOSTNAME, DOMAIN, PARTITION, CLIQUE)], DEFAULT_PREFIX)


def test_the_order_of_the_nodes_changes_nothing() -> None:
    nodes = (*RACK, *DGX)
    assert chosen(*nodes) == chosen(*reversed(nodes))


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ((HOSTNAME, "a/b"), "kubernetes.io/hostname is not the last level"),
        (("a/b", "a/b"), "level 'a/b' is named twice"),
        (tuple(f"a/k{number}" for number in range(17)), "17 levels"),
        (("A/b",), "not a usable label key: 'A/b'"),
        (("a/-b",), "not a usable label key: 'a/-b'"),
        (("a/" + "b" * 64,), "not a usable label key"),
        (("a" * 40 + ".example.com/" + "b" * 20,), "not a usable label key"),
    ],
)
def test_levels_that_a_scheduler_refuses_are_refused(keys: tuple[str, ...], text: str) -> None:
    with pytest.raises(InputError, match=text):
        check_levels(keys, max_key=63)


def test_sixteen_levels_with_keys_of_the_greatest_length_are_taken() -> None:
    key = ".".join(["a" * 63] * 3 + ["a" * 61]) + "/" + "b" * 62
    assert len(key) == 316
    check_levels((key, *(f"a/k{number}" for number in range(14)), HOSTNAME), max_key=316)


H100 = "NVIDIA-H100-80GB-HBM3"


def test_a_clique_that_our_own_labels_refute_is_no_level() -> None:
    named = [with_labels(node, {CLIQUE: f"{CLUSTER}.0"}) for node in DGX]
    foreign = bare("gb-9", **{"nvidia.com__gpu.count": "4", "nvidia.com__gpu.clique": "c.1"})
    choice = chosen(*named, foreign)
    assert CLIQUE not in choice.keys
    assert texts(choice)[0] == (
        f"warning: {CLIQUE} ignored where no NVLink leads to other nodes: dgx-0, dgx-1"
    )


def test_a_clique_of_gpus_that_have_none_is_no_level_without_our_labels_either() -> None:
    def discovered(name: str, product: str) -> ClusterNode:
        more = {"nvidia.com/gpu.product": product, CLIQUE: f"{CLUSTER}.0"}
        return with_labels(bare(name), more)

    assert chosen(discovered("a", H100), discovered("b", H100)).keys == (HOSTNAME,)
    for product in ("NVIDIA-GB200", "NVIDIA-VR200"):  # one of the two is not known yet
        trays = discovered("a", product), discovered("b", product)
        assert chosen(*trays).keys == (CLIQUE, HOSTNAME)
    named = choose((discovered("a", H100), discovered("b", H100)), DEFAULT_PREFIX, (CLIQUE,))
    assert named.keys == (CLIQUE,)
