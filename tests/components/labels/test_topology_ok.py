"""Whether a node still has its topology, and the reason if not."""

from collections.abc import Container
from typing import Any

import pytest
from msgspec import structs

from nodetopo.components.labels.topology_ok import topology_reason
from nodetopo.model.gpu import Fabric, FabricState, Mig, NvidiaDriver
from nodetopo.model.pci import PciAddress
from nodetopo.model.probe_issue import ProbeIssue
from nodetopo.model.snapshot import Snapshot
from tests.components.labels.topology_machines import own, shape, with_gpu
from tests.conftest import NODES

DGX = shape("h100x8-nvswitch-2numa-8cx7")
FAULTY = {"h100x8-nvswitch-2numa-broken", "v100x8-vm-phb-2numa"}
DOMAIN = Fabric(
    state=FabricState.COMPLETED,
    status=0,
    cluster_uuid="6b0e1b2c-0000-4000-8000-000000000072",
    clique_id=1,
)


def verdict(snapshot: Snapshot) -> tuple[str | None, str | None]:
    return own(snapshot).get("topology-ok"), topology_reason(snapshot)


def with_links(snapshot: Snapshot, gpu: int, *, is_active: bool | None) -> Snapshot:
    links = tuple(
        structs.replace(link, is_active=is_active) if link.gpu == gpu else link
        for link in snapshot.nvlinks or ()
    )
    return structs.replace(snapshot, nvlinks=links)


def without_links_up(snapshot: Snapshot, gpus: Container[int] = range(64)) -> Snapshot:
    """Return *snapshot* with all links of *gpus* down; NVML names no far end of such a link."""
    links = tuple(
        structs.replace(link, is_active=False, peer=None, peer_kind=None)
        if link.gpu in gpus
        else link
        for link in snapshot.nvlinks or ()
    )
    return structs.replace(snapshot, nvlinks=links)


@pytest.mark.parametrize("name", sorted({path.name for path in NODES.iterdir()} - FAULTY))
def test_a_sound_machine_is_ok_and_needs_no_reason(name: str) -> None:
    assert verdict(shape(name)) == ("true", None)


def test_the_faults_of_a_broken_machine_are_named() -> None:
    assert verdict(shape("h100x8-nvswitch-2numa-broken")) == (
        "false",
        "GPU3 has 16 of 18 NVLinks up; firmware gives GPU4 no NUMA node",
    )


def test_a_lost_gpu_is_a_fault() -> None:
    assert verdict(with_gpu(DGX, 2, is_lost=True)) == ("false", "GPU2 is lost")


def test_a_gpu_that_only_the_bus_shows_is_a_fault() -> None:
    seen = (*(DGX.pci_gpus or ()), PciAddress(0, 0xFF, 0, 0))
    assert verdict(structs.replace(DGX, pci_gpus=seen)) == (
        "false",
        "0000:ff:00.0 is on the bus, but not among the driver's GPUs",
    )


def test_a_module_beside_nvswitches_that_lost_all_links_is_a_fault() -> None:
    assert verdict(with_links(DGX, 5, is_active=False)) == (
        "false",
        "GPU5 has 0 of 18 NVLinks up",
    )


def test_a_pcie_card_whose_bridge_was_never_fitted_is_none() -> None:
    node = shape("a100x4-pcie-bridged-2numa")
    assert verdict(without_links_up(node, gpus=(0, 1))) == ("true", None)
    assert verdict(without_links_up(node)) == ("true", None)


def test_a_module_without_nvswitches_that_lost_all_links_is_a_fault() -> None:
    node = shape("v100x8-cubemesh-2numa-4cx4")
    assert verdict(with_links(node, 0, is_active=False)) == (
        "false",
        "GPU0 has 0 of 6 NVLinks up",
    )


@pytest.mark.parametrize("name", ["b200x8-nvswitch-2numa-8cx7", "h100x8-vm-2numa-8vf"])
@pytest.mark.parametrize(
    "evidence",
    [{}, {"fabric": None}, {"module_id": None}, {"fabric": None, "module_id": None}],
    ids=["all", "module", "fabric", "name"],
)
def test_modules_whose_links_are_all_down_are_a_fault_without_any_switch(
    name: str, evidence: dict[str, Any]
) -> None:
    whole = without_links_up(shape(name))
    gpus = tuple(structs.replace(gpu, **evidence) for gpu in whole.gpus)
    ok, reason = verdict(structs.replace(whole, gpus=gpus))
    assert (ok, (reason or "").count("has 0 of 18 NVLinks up")) == ("false", 8)


def test_modules_that_list_no_link_at_all_are_not_called_ok() -> None:
    silent = structs.replace(shape("h100x8-vm-2numa-8vf"), nvlinks=())
    assert verdict(silent) == (None, None)
    off = NvidiaDriver(parameters={"NvLinkDisable": "1"})
    assert verdict(structs.replace(silent, nvidia=off)) == ("true", None)


def test_one_module_alone_may_have_all_its_links_down() -> None:
    whole = without_links_up(shape("h100x8-vm-2numa-8vf"))
    gpu = whole.gpus[0]
    own = tuple(link for link in whole.nvlinks or () if link.gpu == gpu.index)
    alone = structs.replace(
        whole, gpus=(gpu,), nvlinks=own, pci_gpus=None if gpu.pci is None else (gpu.pci,)
    )
    assert verdict(alone) == ("true", None)
    assert verdict(structs.replace(alone, nvlinks=())) == ("true", None)


@pytest.mark.parametrize("is_active", [False, None])
def test_what_a_gpu_in_mig_mode_says_of_its_links_is_no_fault(*, is_active: bool | None) -> None:
    partitioned = with_gpu(DGX, 0, mig=Mig(is_enabled=True))
    assert verdict(with_links(partitioned, 0, is_active=is_active)) == ("true", None)


def test_a_gpu_without_a_numa_node_is_no_fault_where_there_is_only_one() -> None:
    assert verdict(with_gpu(shape("l4x1-1numa"), 0, numa_node=None)) == ("true", None)


def test_a_gpu_that_the_fabric_refused_is_a_fault() -> None:
    refused = Fabric(state=FabricState.COMPLETED, status=999)
    assert verdict(with_gpu(DGX, 1, fabric=refused)) == (
        "false",
        "GPU1 could not join the NVLink fabric (status 999)",
    )


def test_gpus_of_several_partitions_are_a_fault() -> None:
    other = structs.replace(DOMAIN, clique_id=2)
    split = with_gpu(with_gpu(DGX, 0, fabric=DOMAIN), 1, fabric=other)
    gpus = tuple(gpu if gpu.index < 2 else structs.replace(gpu, fabric=None) for gpu in split.gpus)
    assert verdict(structs.replace(split, gpus=gpus)) == (
        "false",
        "the GPUs are in 2 NVLink partitions",
    )


@pytest.mark.parametrize(
    "unknown",
    [
        structs.replace(DGX, nvlinks=None),
        structs.replace(DGX, numa_nodes=None),
        structs.replace(DGX, pci_gpus=None),
        structs.replace(
            DGX, issues=(ProbeIssue(probe="nvml", subject="GPU3 nvml", reason="timeout"),)
        ),
        with_links(DGX, 0, is_active=None),
        with_gpu(DGX, 0, fabric=Fabric(state=FabricState.IN_PROGRESS)),
    ],
    ids=["links", "nodes", "bus", "nvml", "silent link", "registering"],
)
def test_what_cannot_be_told_is_not_called_ok(unknown: Snapshot) -> None:
    assert verdict(unknown) == (None, None)


def test_a_fault_counts_whatever_else_is_unknown() -> None:
    unknown = structs.replace(DGX, numa_nodes=None)
    assert verdict(with_gpu(unknown, 2, is_lost=True)) == ("false", "GPU2 is lost")


def test_a_reason_names_a_dozen_faults_and_counts_the_rest() -> None:
    seen = tuple(PciAddress(1, bus, 0, 0) for bus in range(20))
    reason = topology_reason(structs.replace(DGX, pci_gpus=seen)) or ""
    assert (reason.count(";"), reason.rpartition("; ")[2]) == (12, "and 8 more")
