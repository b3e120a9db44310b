"""Labels about how the GPUs of a node are joined, whatever their domain."""

from typing import Any

import pytest
from msgspec import structs

from nodetopo.components.labels.catalogue import labels
from nodetopo.machines.bundled import machine
from nodetopo.model.gpu import Fabric, FabricState, Mig
from nodetopo.model.nvlink import ReportedPair
from nodetopo.model.snapshot import Snapshot

KEYS = (
    "gpu.topology/interconnect",
    "gpu.topology/nvlink-domain",
    "gpu.topology/nvlink-domain-size",
    "nvidia.com/gpu.clique",
    "nvidia.com/gpu.replicas",
    "nvidia.com/nvlink.version",
    "nvidia.com/nvswitch.present",
)
CLUSTER = "7b968a6d-1111-4222-8333-444455556666"
MNNVL = Fabric(state=FabricState.COMPLETED, status=0, cluster_uuid=CLUSTER, clique_id=1)


def with_gpus(snapshot: Snapshot, **changes: Any) -> Snapshot:
    """Return *snapshot* with *changes* made to every GPU."""
    gpus = tuple(structs.replace(gpu, **changes) for gpu in snapshot.gpus)
    return structs.replace(snapshot, gpus=gpus)


def changed(before: Snapshot, after: Snapshot) -> dict[str, str | None]:
    """Return those of the labels that differ, with their later value; ``None`` for those gone."""
    old, new = labels(before), labels(after)
    return {key: new.get(key) for key in KEYS if old.get(key) != new.get(key)}


def test_gpus_in_a_multi_node_fabric_are_labelled_with_their_cluster() -> None:
    node = machine("gb200-nvl72")
    assert changed(node, with_gpus(node, fabric=MNNVL)) == {
        "gpu.topology/nvlink-domain": CLUSTER,
        "nvidia.com/gpu.clique": f"{CLUSTER}.1",
    }
    assert labels(node)["gpu.topology/interconnect"] == "mnnvl"


@pytest.mark.parametrize("name", ["dgx-h100", "hgx-h200", "hgx-b200", "h100-vm-8"])
def test_a_board_whose_driver_names_a_cluster_keeps_every_label_of_a_single_node(
    name: str,
) -> None:
    node = machine(name)
    assert labels(with_gpus(node, fabric=MNNVL)) == labels(node)


def test_a_cluster_of_zeros_is_no_cluster() -> None:
    node = machine("gb200-nvl72")
    zeros = structs.replace(MNNVL, cluster_uuid="00000000-0000-0000-0000-000000000000")
    found = labels(with_gpus(node, fabric=zeros))
    assert "nvidia.com/gpu.clique" not in found
    assert found["gpu.topology/interconnect"] == "nvswitch"


@pytest.mark.parametrize(
    "fabric",
    [
        Fabric(state=FabricState.NOT_STARTED),
        Fabric(state=FabricState.IN_PROGRESS),
        Fabric(state=FabricState.COMPLETED, status=999),
    ],
)
def test_a_fabric_that_is_not_ready_leaves_its_labels_open(fabric: Fabric) -> None:
    node = machine("dgx-h100")
    assert changed(node, with_gpus(node, fabric=fabric)) == {
        "gpu.topology/interconnect": None,
        "gpu.topology/nvlink-domain": None,
        "gpu.topology/nvlink-domain-size": None,
    }


def test_a_node_of_unknown_name_has_no_domain_of_its_own() -> None:
    node = machine("dgx-h100")
    unnamed = structs.replace(node, node=None)
    assert changed(node, unnamed) == {"gpu.topology/nvlink-domain": None}


def test_without_links_nothing_is_said_about_links() -> None:
    node = machine("dgx-1v")
    unknown = structs.replace(node, nvlinks=None, nvswitches=None, pairs=())
    assert changed(node, unknown) == {
        "gpu.topology/interconnect": None,
        "gpu.topology/nvlink-domain": None,
        "gpu.topology/nvlink-domain-size": None,
        "nvidia.com/nvlink.version": None,
        "nvidia.com/nvswitch.present": None,
    }


def test_links_of_several_generations_count_as_the_lowest() -> None:
    node = machine("dgx-h100")
    older = structs.replace((node.nvlinks or ())[0], version=3)
    mixed = structs.replace(node, nvlinks=(older, *(node.nvlinks or ())[1:]))
    assert changed(node, mixed) == {"nvidia.com/nvlink.version": "3"}


def test_a_model_partitioned_on_all_gpus_has_neither_replicas_nor_nvlink() -> None:
    node = machine("dgx-h100")
    partitioned = with_gpus(node, mig=Mig(is_enabled=True))
    assert changed(node, partitioned) == {
        "nvidia.com/gpu.replicas": "0",
        "gpu.topology/interconnect": "pcie",
        "gpu.topology/nvlink-domain": None,
        "gpu.topology/nvlink-domain-size": "1",
    }


def test_a_text_that_counts_links_is_enough_for_the_topology() -> None:
    pair = ReportedPair(a="GPU0", b="GPU1", nvlinks=4)
    gpus = machine("l40s-pcie-4").gpus[:2]
    text = Snapshot(gpus=gpus, pairs=(pair,), nvlinks=None)
    found = labels(text)
    assert found["gpu.topology/interconnect"] == "nvlink-pairs"
