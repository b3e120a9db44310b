"""What a snapshot and the settings make of a node's labels."""

from typing import Any

import pytest
from msgspec.structs import replace

from nodetopo.components.labels.loop import DesiredLabelsBuilder, NodeTiers
from nodetopo.kernel.settings.declare import Settings
from nodetopo.kernel.settings.policies import TimeSlicing
from nodetopo.machines.bundled import machine
from nodetopo.model.snapshot import Snapshot

DGX = machine("dgx-h100")
REASON = "gpu.topology/topology-ok-reason"
TIER = "fabric.topograph.run/tier-0"


class Wishing:
    """Desired labels by settings that a test changes, and what was reported."""

    def __init__(self, **settings: Any) -> None:
        self.settings = Settings(node_name="gpu-1", **settings)
        self.told: list[str] = []
        self.wishes = DesiredLabelsBuilder(
            lambda: self.settings, NodeTiers(self.settings), self.told.append
        )

    def label(self, key: str, snapshot: Snapshot = DGX) -> str | None:
        """Return the value of the label *key* of *snapshot*."""
        return self.wishes.of(snapshot).labels.get(key)


def test_the_labels_follow_settings_as_they_change() -> None:
    it = Wishing()
    assert it.label("nvidia.com/gpu.replicas") == "1"
    assert not it.wishes.is_news(DGX)
    slicing = TimeSlicing(replicas={"nvidia.com/gpu": 4})
    it.settings = it.settings.but(time_slicing=slicing)
    assert it.wishes.is_news(DGX)
    assert it.label("nvidia.com/gpu.replicas") == "4"
    assert it.label("nvidia.com/gpu.sharing-strategy") == "time-slicing"
    assert it.label("nvidia.com/gpu.product") == "NVIDIA-H100-80GB-HBM3-SHARED"


def test_a_resource_in_another_domain_is_labelled_as_nvidias() -> None:
    slicing = TimeSlicing(replicas={"acme.com/gpu": 2})
    it = Wishing(resource_name="acme.com/gpu", time_slicing=slicing)
    assert it.label("nvidia.com/gpu.replicas") == "2"


def test_the_mig_strategy_is_a_label() -> None:
    assert Wishing().label("nvidia.com/mig.strategy") is None
    assert Wishing(mig_strategy="mixed").label("nvidia.com/mig.strategy") == "mixed"


def test_a_prefix_of_the_operator_takes_the_place_of_ours() -> None:
    it = Wishing(label_prefix="topo.acme.com/")
    found = it.wishes.of(DGX)
    assert found.labels["topo.acme.com/interconnect"] == "nvswitch"
    assert not [key for key in found.labels if key.startswith("gpu.topology/")]


def test_the_clique_is_left_out_on_request() -> None:
    nvl72 = machine("gb200-nvl72")
    assert Wishing().label("nvidia.com/gpu.clique", nvl72) is not None
    assert Wishing(publish_clique="never").label("nvidia.com/gpu.clique", nvl72) is None


def test_a_fault_has_its_reason_in_an_annotation() -> None:
    lost = replace(DGX, gpus=(replace(DGX.gpus[0], is_lost=True), *DGX.gpus[1:]))
    found = Wishing(label_prefix="topo.acme.com/").wishes.of(lost)
    assert found.labels["topo.acme.com/topology-ok"] == "false"
    assert found.annotations == {"topo.acme.com/topology-ok-reason": "GPU0 is lost"}


def test_a_sound_node_has_no_reason() -> None:
    assert Wishing().wishes.of(DGX).annotations == {}


def test_a_node_that_has_no_gpus_any_more_has_no_reason() -> None:
    bare = replace(DGX, gpus=(), pci_gpus=())
    assert Wishing().wishes.of(bare).annotations == {}
    in_doubt = replace(DGX, gpus=())
    assert Wishing().wishes.of(in_doubt).annotations is None


def test_where_it_cannot_be_told_the_reason_that_is_there_stays() -> None:
    assert Wishing().wishes.of(replace(DGX, numa_nodes=None)).annotations is None


def test_what_was_not_read_is_not_taken_for_absent() -> None:
    found = Wishing().wishes.of(replace(DGX, hcas=None))
    assert "gpu.topology/rdma-nics" in found.unread
    assert Wishing().wishes.of(DGX).unread.isdisjoint(found.labels)


def test_tiers_stay_until_the_labels_of_the_node_are_known() -> None:
    it = Wishing(topology_levels="auto")
    assert it.wishes.needs_node
    assert "gpu.topology/tier-0" in it.wishes.of(DGX).unread
    it.wishes.note({TIER: "leaf-7"})
    assert it.wishes.is_news(DGX)
    found = it.wishes.of(DGX)
    assert found.labels["gpu.topology/tier-0"] == "leaf-7"
    assert "gpu.topology/tier-1" not in found.unread


def test_labels_of_others_that_do_not_matter_are_no_news() -> None:
    it = Wishing(topology_levels="auto")
    it.wishes.note({TIER: "leaf-7"})
    it.wishes.of(DGX)
    it.wishes.note({TIER: "leaf-7", "kubernetes.io/os": "linux"})
    assert not it.wishes.is_news(DGX)


def test_what_no_label_says_is_told_once() -> None:
    mixed = replace(DGX, gpus=(replace(DGX.gpus[0], product="NVIDIA L4"), *DGX.gpus[1:]))
    it = Wishing()
    for _ in range(3):
        it.wishes.of(replace(mixed))
    (text,) = it.told
    assert text.startswith("the node has several GPU models")
    it.wishes.of(DGX)
    it.wishes.of(mixed)
    assert len(it.told) == 2


@pytest.mark.parametrize("name", ["dgx-h100", "gb200-nvl72", "l40s-pcie-4"])
def test_a_label_is_never_both_there_and_unread(name: str) -> None:
    found = Wishing().wishes.of(machine(name))
    assert found.unread.isdisjoint(found.labels)
