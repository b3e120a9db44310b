"""What a publisher keeps because its source was not read."""

from typing import Any

import pytest
from msgspec import structs

from nodetopo.components.labels.catalogue import labels
from nodetopo.components.labels.completeness import unread
from nodetopo.components.labels.rules import LabelRules
from nodetopo.model.probe_issue import ProbeIssue
from nodetopo.model.snapshot import Snapshot
from tests.components.labels.topology_machines import shape

RULES = LabelRules(prefix="example.com/")
NODE = structs.replace(shape("h100x8-nvswitch-2numa-8cx7"), issues=())


def lost(partial: Snapshot) -> set[str]:
    return labels(NODE, RULES).keys() - labels(partial, RULES).keys()


def test_nothing_is_unread_on_a_node_that_was_read_but_a_rate_that_a_cable_decides() -> None:
    assert unread(NODE, RULES) == {"example.com/rdma-rate"}


def test_without_hcas_a_missing_rate_is_proof() -> None:
    assert unread(structs.replace(NODE, hcas=()), RULES) == frozenset()


@pytest.mark.parametrize(
    "part", ["kubelet", "numa_nodes", "hcas", "pci_gpus", "kernel", "data_directs"]
)
def test_every_label_that_goes_with_an_unread_source_is_kept(part: str) -> None:
    changes: dict[str, Any] = {part: None}
    partial = structs.replace(NODE, **changes)
    gone = lost(partial)
    assert len(gone) > 0
    assert gone <= unread(partial, RULES)


def test_where_pci_cannot_be_read_no_place_is_made_up_and_none_is_forgotten() -> None:
    gpus = tuple(structs.replace(gpu, path=None, numa_node=None) for gpu in NODE.gpus)
    hcas = tuple(structs.replace(hca, path=None, numa_node=None) for hca in NODE.hcas or ())
    partial = structs.replace(NODE, gpus=gpus, hcas=hcas, pci_gpus=None, bridges=None)
    gone = lost(partial)
    names = (
        *("gpu-nic", "gpu-numa-nodes", "gpus-per-numa", "shape", "topology-ok"),
        *("rdma-nics-per-numa", "rdma-rails"),
    )
    assert gone == {f"example.com/{name}" for name in names}
    assert gone <= unread(partial, RULES)


def test_a_driver_that_does_not_tell_how_cards_reach_it_takes_no_label_away() -> None:
    partial = structs.replace(NODE, nvidia=None)
    assert lost(partial) == {"example.com/gdr"} <= unread(partial, RULES)


def test_a_source_that_answered_in_part_keeps_its_labels() -> None:
    issue = ProbeIssue(probe="rdma", subject="mlx5_0/ports/1/rate", reason="EINVAL")
    kept = unread(structs.replace(NODE, issues=(issue,)), RULES)
    assert {"example.com/rdma", "example.com/rdma-nics", "example.com/gdr"} <= kept
    assert "example.com/tm-policy" not in kept
