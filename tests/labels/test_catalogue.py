"""The labels of whole machines."""

import dataclasses
from typing import Any

import pytest

from agent.labels.catalogue import CATALOGUE, is_complete, labels
from agent.machines.bundled import machine, names
from agent.model.gpu import Fabric, FabricState
from agent.model.mig import Mig
from agent.model.nvlink import ReportedPair
from agent.model.pci import PciFunction
from agent.model.snapshot import ProbeIssue, Snapshot

DRIVER_580 = {
    "nvidia.com/cuda.driver-version.full": "580.95.05",
    "nvidia.com/cuda.driver-version.major": "580",
    "nvidia.com/cuda.driver-version.minor": "95",
    "nvidia.com/cuda.driver-version.revision": "05",
    "nvidia.com/cuda.driver.major": "580",
    "nvidia.com/cuda.driver.minor": "95",
    "nvidia.com/cuda.driver.rev": "05",
    "nvidia.com/cuda.runtime-version.full": "13.0",
    "nvidia.com/cuda.runtime-version.major": "13",
    "nvidia.com/cuda.runtime-version.minor": "0",
    "nvidia.com/cuda.runtime.major": "13",
    "nvidia.com/cuda.runtime.minor": "0",
}
GOLDEN = {
    "dgx-h100": {
        **DRIVER_580,
        "gpu.topology/interconnect": "nvswitch",
        "gpu.topology/nvlink-domain": "node-78c864fc4cb08393",
        "gpu.topology/nvlink-domain-size": "8",
        "nvidia.com/gpu.compute.major": "9",
        "nvidia.com/gpu.compute.minor": "0",
        "nvidia.com/gpu.count": "8",
        "nvidia.com/gpu.family": "hopper",
        "nvidia.com/gpu.machine": "DGXH100",
        "nvidia.com/gpu.memory": "81559",
        "nvidia.com/gpu.mode": "compute",
        "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
        "nvidia.com/gpu.replicas": "1",
        "nvidia.com/gpu.sharing-strategy": "none",
        "nvidia.com/mig.capable": "true",
        "nvidia.com/mps.capable": "false",
        "nvidia.com/nvlink.version": "4",
        "nvidia.com/nvswitch.present": "true",
    },
    "dgx-1v": {
        **DRIVER_580,
        "gpu.topology/interconnect": "nvlink-mesh",
        "gpu.topology/nvlink-domain": "node-e149fb73abe04c56",
        "gpu.topology/nvlink-domain-size": "8",
        "nvidia.com/gpu.compute.major": "7",
        "nvidia.com/gpu.compute.minor": "0",
        "nvidia.com/gpu.count": "8",
        "nvidia.com/gpu.family": "volta",
        "nvidia.com/gpu.machine": "NVIDIA-DGX-1-with-V100",
        "nvidia.com/gpu.memory": "32768",
        "nvidia.com/gpu.mode": "compute",
        "nvidia.com/gpu.product": "Tesla-V100-SXM2-32GB",
        "nvidia.com/gpu.replicas": "1",
        "nvidia.com/gpu.sharing-strategy": "none",
        "nvidia.com/mig.capable": "false",
        "nvidia.com/mps.capable": "false",
        "nvidia.com/nvlink.version": "2",
        "nvidia.com/nvswitch.present": "false",
    },
    "l40s-pcie-4": {
        **DRIVER_580,
        "gpu.topology/interconnect": "pcie",
        "gpu.topology/nvlink-domain-size": "1",
        "nvidia.com/gpu.compute.major": "8",
        "nvidia.com/gpu.compute.minor": "9",
        "nvidia.com/gpu.count": "4",
        "nvidia.com/gpu.family": "ada-lovelace",
        "nvidia.com/gpu.machine": "PowerEdge-R760xa",
        "nvidia.com/gpu.memory": "46068",
        "nvidia.com/gpu.mode": "compute",
        "nvidia.com/gpu.product": "NVIDIA-L40S",
        "nvidia.com/gpu.replicas": "1",
        "nvidia.com/gpu.sharing-strategy": "none",
        "nvidia.com/mig.capable": "false",
        "nvidia.com/mps.capable": "false",
        "nvidia.com/nvswitch.present": "false",
    },
}
CLUSTER = "7b968a6d-1111-4222-8333-444455556666"
MNNVL = Fabric(state=FabricState.COMPLETED, status=0, cluster_uuid=CLUSTER, clique_id=1)


def with_gpus(snapshot: Snapshot, **changes: Any) -> Snapshot:
    """Return *snapshot* with *changes* made to every GPU."""
    gpus = tuple(dataclasses.replace(gpu, **changes) for gpu in snapshot.gpus)
    return dataclasses.replace(snapshot, gpus=gpus)


def changed(before: Snapshot, after: Snapshot) -> dict[str, str | None]:
    """Return the labels that differ, with their later value; ``None`` for those gone."""
    old, new = labels(before), labels(after)
    return {key: new.get(key) for key in sorted(old | new) if old.get(key) != new.get(key)}


@pytest.mark.parametrize("name", GOLDEN)
def test_a_bundled_machine_has_exactly_these_labels(name: str) -> None:
    assert labels(machine(name)) == GOLDEN[name]


def test_labels_come_sorted_by_key() -> None:
    assert list(labels(machine("dgx-h100"))) == sorted(labels(machine("dgx-h100")))


def test_every_emitted_key_is_in_the_catalogue_and_every_entry_can_be_emitted() -> None:
    nvl72 = with_gpus(machine("dgx-h100"), fabric=MNNVL)
    emitted = {key for name in names() for key in labels(machine(name))} | labels(nvl72).keys()
    assert sorted(emitted) == [entry.key for entry in CATALOGUE]


def test_no_key_is_longer_than_schedulers_take() -> None:
    # Grove takes 63 characters for prefix and name together.
    assert [entry.key for entry in CATALOGUE if len(entry.key) > 63] == []


def test_gpus_in_a_multi_node_fabric_are_labelled_with_their_cluster() -> None:
    node = machine("dgx-h100")
    assert changed(node, with_gpus(node, fabric=MNNVL)) == {
        "gpu.topology/interconnect": "mnnvl",
        "gpu.topology/nvlink-domain": CLUSTER,
        "nvidia.com/gpu.clique": f"{CLUSTER}.1",
    }


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
    }


def test_a_node_of_unknown_name_has_no_domain_of_its_own() -> None:
    node = machine("dgx-h100")
    unnamed = dataclasses.replace(node, node=None)
    assert changed(node, unnamed) == {"gpu.topology/nvlink-domain": None}


def test_without_links_nothing_is_said_about_links() -> None:
    node = machine("dgx-1v")
    unknown = dataclasses.replace(node, nvlinks=None, nvswitches=None, pairs=())
    assert changed(node, unknown) == {
        "gpu.topology/interconnect": None,
        "gpu.topology/nvlink-domain": None,
        "gpu.topology/nvlink-domain-size": None,
        "nvidia.com/nvlink.version": None,
        "nvidia.com/nvswitch.present": None,
    }


def test_links_of_several_generations_count_as_the_lowest() -> None:
    node = machine("dgx-h100")
    older = dataclasses.replace((node.nvlinks or ())[0], version=3)
    mixed = dataclasses.replace(node, nvlinks=(older, *(node.nvlinks or ())[1:]))
    assert changed(node, mixed) == {"nvidia.com/nvlink.version": "3"}


def test_a_node_without_gpus_has_no_labels() -> None:
    empty = dataclasses.replace(machine("dgx-h100"), gpus=(), nvlinks=(), pairs=(), nvswitches=())
    assert labels(empty) == {}


def test_of_several_models_the_most_frequent_is_described() -> None:
    node = machine("dgx-h100")
    other = dataclasses.replace(node.gpus[0], product="NVIDIA A2", memory_mib=15356)
    mixed = dataclasses.replace(node, gpus=(other, *node.gpus[1:]))
    assert changed(node, mixed) == {"nvidia.com/gpu.count": "7"}


def test_of_equally_many_models_the_first_by_name_is_described() -> None:
    node = machine("l40s-pcie-4")
    other = [dataclasses.replace(gpu, product="NVIDIA A2") for gpu in node.gpus[2:]]
    mixed = dataclasses.replace(node, gpus=(*node.gpus[:2], *other))
    assert changed(node, mixed) == {
        "nvidia.com/gpu.count": "2",
        "nvidia.com/gpu.product": "NVIDIA-A2",
    }


def test_a_driver_version_of_two_parts_has_no_revision() -> None:
    node = machine("l40s-pcie-4")
    assert changed(node, dataclasses.replace(node, driver_version="580.95")) == {
        "nvidia.com/cuda.driver-version.full": "580.95",
        "nvidia.com/cuda.driver-version.revision": None,
        "nvidia.com/cuda.driver.rev": None,
    }


def test_a_driver_version_of_four_parts_is_not_taken_apart() -> None:
    node = machine("l40s-pcie-4")
    odd = dataclasses.replace(node, driver_version="580.95.05.1")
    assert changed(node, odd) == {
        key: None for key in DRIVER_580 if key.startswith("nvidia.com/cuda.driver")
    }


def test_a_value_of_which_nothing_is_left_takes_no_other_with_it() -> None:
    node = machine("l40s-pcie-4")
    odd = with_gpus(node, product="\N{SNOWMAN}")
    assert changed(node, odd) == {"nvidia.com/gpu.product": None}


def test_a_machine_without_a_name_is_unknown() -> None:
    node = machine("l40s-pcie-4")
    nameless = dataclasses.replace(node, product_name=None)
    assert changed(node, nameless) == {"nvidia.com/gpu.machine": "unknown"}


def test_memory_that_could_not_be_read_is_left_out() -> None:
    node = machine("l40s-pcie-4")
    assert changed(node, with_gpus(node, memory_mib=None)) == {"nvidia.com/gpu.memory": None}


def test_a_model_partitioned_on_all_gpus_has_neither_replicas_nor_nvlink() -> None:
    node = machine("dgx-h100")
    partitioned = with_gpus(node, mig=Mig(is_enabled=True))
    assert changed(node, partitioned) == {
        "nvidia.com/gpu.replicas": "0",
        "gpu.topology/interconnect": "pcie",
        "gpu.topology/nvlink-domain": None,
        "gpu.topology/nvlink-domain-size": "1",
    }


def test_a_mig_mode_that_could_not_be_read_is_not_called_incapable() -> None:
    node = machine("l40s-pcie-4")
    issue = ProbeIssue(probe="nvml", subject="GPU0 nvmlDeviceGetMigMode", reason="UNKNOWN")
    unread = dataclasses.replace(node, issues=(issue,))
    assert changed(node, unread) == {"nvidia.com/mig.capable": None}


@pytest.mark.parametrize(
    ("classes", "mode"),
    [
        (("030000", "030000"), "graphics"),
        (("030200", "030200"), "compute"),
        (("030000", "030200"), "unknown"),
        (("030200", None), "unknown"),
        (("120000", "120000"), "unknown"),
    ],
)
def test_the_mode_is_what_all_gpus_agree_on(classes: tuple[str | None, ...], mode: str) -> None:
    node = machine("l40s-pcie-4")
    gpus = tuple(
        dataclasses.replace(gpu, function=PciFunction(pci_class=pci_class))
        for gpu, pci_class in zip(node.gpus, classes, strict=False)
    )
    assert labels(dataclasses.replace(node, gpus=gpus))["nvidia.com/gpu.mode"] == mode


@pytest.mark.parametrize(
    ("capability", "family"),
    [
        ((6, 1), "pascal"),
        ((7, 0), "volta"),
        ((7, 5), "turing"),
        ((8, 0), "ampere"),
        ((8, 6), "ampere"),
        ((8, 9), "ada-lovelace"),
        ((9, 0), "hopper"),
        ((10, 3), "blackwell"),
        ((12, 0), "blackwell"),
        ((99, 0), "undefined"),
        ((0, 0), None),
        (None, None),
    ],
)
def test_the_family_follows_the_compute_capability(
    capability: tuple[int, int] | None,
    family: str | None,
) -> None:
    node = with_gpus(machine("l40s-pcie-4"), compute_capability=capability)
    assert labels(node).get("nvidia.com/gpu.family") == family


def test_a_text_that_counts_links_is_enough_for_the_topology() -> None:
    pair = ReportedPair(a="GPU0", b="GPU1", nvlinks=4)
    gpus = machine("l40s-pcie-4").gpus[:2]
    text = Snapshot(gpus=gpus, pairs=(pair,), nvlinks=None)
    found = labels(text)
    assert found["gpu.topology/interconnect"] == "nvlink-pairs"


def test_a_bundled_machine_is_complete() -> None:
    assert [name for name in names() if not is_complete(machine(name))] == []


@pytest.mark.parametrize("subject", ["", "GPU3 nvmlDeviceGetMemoryInfo"])
def test_anything_that_nvml_withheld_makes_a_snapshot_incomplete(subject: str) -> None:
    issue = ProbeIssue(probe="nvml", subject=subject, reason="timeout")
    assert not is_complete(dataclasses.replace(machine("dgx-h100"), issues=(issue,)))


def test_what_other_probes_could_not_read_leaves_a_snapshot_complete() -> None:
    issue = ProbeIssue(probe="pcie", subject="0000:1b:00.0 config", reason="EPERM")
    assert is_complete(dataclasses.replace(machine("dgx-h100"), issues=(issue,)))


def test_a_lost_gpu_makes_a_snapshot_incomplete() -> None:
    assert not is_complete(with_gpus(machine("dgx-h100"), is_lost=True))


def test_a_fabric_still_registering_makes_a_snapshot_incomplete() -> None:
    registering = Fabric(state=FabricState.IN_PROGRESS)
    assert not is_complete(with_gpus(machine("dgx-h100"), fabric=registering))
