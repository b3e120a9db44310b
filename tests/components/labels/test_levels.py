"""From foreign labels to levels, and to our tiers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodetopo.components.labels.levels import (
    MAX_TIERS,
    PLATFORMS,
    Level,
    Platform,
    digest,
    node_levels,
    platform,
    tiers,
)
from nodetopo.errors import InputError
from tests.components.labels.test_label import VALUE
from tests.components.labels.topology_machines import own, shape

AWS = {
    "topology.kubernetes.io/region": "us-west-2",
    "topology.kubernetes.io/zone": "us-west-2b",
    "topology.k8s.aws/network-node-layer-1": "nn-1",
    "topology.k8s.aws/network-node-layer-2": "nn-2",
    "topology.k8s.aws/network-node-layer-3": "nn-3",
}
KEYS = sorted({key for one in PLATFORMS for key in one.keys})


def test_a_node_of_a_cloud_stands_in_region_zone_and_tiers_broadest_first() -> None:
    assert [(level.name, level.value) for level in node_levels(AWS)] == [
        ("region", "us-west-2"),
        ("zone", "us-west-2b"),
        ("tier-2", "nn-1"),
        ("tier-1", "nn-2"),
        ("tier-0", "nn-3"),
    ]


def test_a_level_names_the_label_that_it_was_read_from() -> None:
    labels = {"crusoe.ai/pod.id": "p"}
    assert node_levels(labels) == (Level(name="tier-0", key="crusoe.ai/pod.id", value="p"),)


def test_a_label_without_a_value_names_no_level() -> None:
    labels = {**AWS, "topology.kubernetes.io/zone": "", "topology.k8s.aws/network-node-layer-2": ""}
    found = [level.name for level in node_levels(labels)]
    assert found == ["region", "tier-2", "tier-0"]


@pytest.mark.parametrize("one", PLATFORMS, ids=lambda one: one.name)
def test_the_labels_of_a_platform_become_its_tiers(one: Platform) -> None:
    labels = {key: f"v{tier}" for tier, key in enumerate(one.keys)}
    assert tiers(node_levels(labels)) == {f"tier-{n}": f"v{n}" for n in range(len(one.keys))}


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ({**AWS, "topology.k8s.aws/network-node-layer-4": "nn-4"}, ("nn-4", "nn-3")),
        ({**AWS, "fabric.topograph.run/tier-0": "leaf-3"}, ("leaf-3", None)),
        ({"network.topology.nvidia.com/leaf": "l", "network.topology.nvidia.com/spine": "s"},
         ("l", "s")),
        ({"network.topology.nvidia.com/block": "b", "network.topology.nvidia.com/spine": "s"},
         ("b", "s")),
        ({"cloud.google.com/gce-topology-block": "b", "cloud.google.com/gce-topology-subblock": "s",
          "cloud.google.com/gce-topology-host": "h"}, ("s", "b")),
        ({"backend.coreweave.cloud/leafgroup": "", "ib.coreweave.cloud/leafgroup": "7"},
         ("7", None)),
        ({"topology.k8s.aws/network-node-layer-1": "nn-1"}, (None, None)),
        ({"topology.k8s.aws/network-node-layer-3": "3",
          "topology.k8s.aws/network-node-layer-1": "1"}, ("3", None)),
        ({}, (None, None)),
    ],
)  # fmt: skip
def test_the_first_platform_whose_nearest_level_is_named_counts(
    labels: dict[str, str],
    expected: tuple[str | None, ...],
) -> None:
    found = tiers(node_levels(labels))
    assert (found.get("tier-0"), found.get("tier-1")) == expected


def test_a_platform_that_was_asked_for_counts_alone() -> None:
    labels = {**AWS, "fabric.topograph.run/tier-0": "leaf-3"}
    assert tiers(node_levels(labels, platform("aws")))["tier-0"] == "nn-3"
    assert tiers(node_levels(labels, platform("gke"))) == {}


def test_a_slip_in_a_platforms_name_is_met_with_the_right_one() -> None:
    with pytest.raises(InputError, match="did you mean 'coreweave'"):
        platform("core-weave")


def test_no_platform_has_more_tiers_than_are_published() -> None:
    assert [one.name for one in PLATFORMS if not 0 < len(one.keys) <= MAX_TIERS] == []


def test_a_value_that_kai_would_confuse_is_published_as_a_digest() -> None:
    found = tiers(node_levels({"crusoe.ai/pod.id": "r.1", "crusoe.ai/ib.partition.id": "a"}))
    assert found == {"tier-0": digest("r.1"), "tier-1": "a"}


@given(st.dictionaries(st.sampled_from(KEYS), st.text(max_size=80)))
def test_tiers_of_any_labels_are_values_without_dots(labels: dict[str, str]) -> None:
    found = tiers(node_levels(labels))
    bad = [value for value in found.values() if not VALUE.fullmatch(value) or "." in value]
    assert bad == []


def test_tiers_are_published_only_when_the_operator_asks() -> None:
    node = shape("l40sx4-pcie-2numa")
    found = own(node, levels={"tier-0": "leaf-3", "tier-1": "spine-1"})
    assert found.items() - own(node).items() == {("tier-0", "leaf-3"), ("tier-1", "spine-1")}
