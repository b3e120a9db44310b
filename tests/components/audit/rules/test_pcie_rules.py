"""The rules on PCIe beside width and presence: slots, peer access, ACS, the IOMMU, payloads."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from nodetopo.checks.rule import Finding, Verdict
from nodetopo.model.gpu import ConfidentialCompute, Gpu
from nodetopo.model.nvlink import P2pStatus, PeerAccess, ReportedPair
from nodetopo.model.pci import IommuType, PciBridge, PcieLink, PciFunction
from nodetopo.model.snapshot import Snapshot
from tests.components.audit.judge import HOST, healthy, result, with_gpu

BOARD = "rtxpro6000-pcie-8"
"""Two GPUs behind each of four PCIe switches, and no HCA."""

GPU0, GPU1 = (f"{gpu.name} {gpu.pci}" for gpu in healthy(BOARD).gpus[:2])


def with_bridges(snapshot: Snapshot, change: Callable[[PciBridge], PciBridge]) -> Snapshot:
    return replace(snapshot, bridges=tuple(map(change, snapshot.bridges or ())))


def port_of_gpu0(snapshot: Snapshot) -> PciBridge:
    path = snapshot.gpus[0].path
    assert path is not None
    return next(it for it in snapshot.bridges or () if it.address == path.hops[-2])


def with_port(name: str, **facts: object) -> Snapshot:
    """Return a machine with the port above GPU0 changed."""
    whole = healthy(name)
    port = port_of_gpu0(whole)
    return with_bridges(
        whole,
        lambda it: replace(it, **facts) if it == port else it,  # by name
    )


def function(**facts: object) -> Callable[[Gpu], Gpu]:
    return lambda gpu: replace(
        gpu,
        function=replace(gpu.function or PciFunction(), **facts),  # by name
    )


def as_guest(snapshot: Snapshot) -> Snapshot:
    return replace(snapshot, host=replace(HOST, is_vm=True))


def unplaced(snapshot: Snapshot) -> Snapshot:
    """Return a machine of which nobody knows whether it is a virtual one."""
    cpu = snapshot.cpu and replace(snapshot.cpu, is_virtual=None)
    gpus = tuple(replace(gpu, virtualization=None) for gpu in snapshot.gpus)
    return replace(snapshot, cpu=cpu, host=None, gpus=gpus)


def test_a_gpu_is_as_wide_as_its_slot_lets_it_be() -> None:
    narrow = PcieLink(generation=5, width=8, max_generation=5, max_width=16)
    machine = with_gpu(healthy(BOARD), 0, lambda gpu: replace(gpu, pcie=narrow))
    in_x8 = with_bridges(
        machine,
        lambda it: (
            replace(it, link=replace(narrow, max_width=8)) if it == port_of_gpu0(machine) else it
        ),
    )
    assert [it.expected for it in result("PCI-001", machine).findings] == ["x16"]
    assert result("PCI-001", in_x8).verdict is Verdict.PASS
    assert [it.observed for it in result("PCI-003", in_x8).findings] == ["a slot of Gen5 x8"]


@pytest.mark.parametrize("control", [0x04, 0x08, 0x20])
def test_a_bridge_that_turns_peers_away_is_named_with_those_it_parts(control: int) -> None:
    found = result("PCI-005", with_port("dgx-h100", acs_control=0x01 | control))
    port = port_of_gpu0(healthy()).address
    (finding,) = found.findings
    assert (found.verdict, finding.subject) == (Verdict.FAIL, f"bridge {port}")
    assert finding.observed.endswith("between GPU0 0000:1b:00.0 and mlx5_0 0000:18:00.0")
    assert finding.observed.startswith(f"ACS control 0x00{1 | control:02x} (")


def test_a_bridge_between_two_gpus_counts_too() -> None:
    found = result("PCI-005", with_port(BOARD, acs_control=0x1D))
    assert [it.observed for it in found.findings] == [
        f"ACS control 0x001d (request redirect, completion redirect) between {GPU0} and {GPU1}"
    ]


def test_of_several_pairs_one_with_an_hca_is_named_and_the_others_are_counted() -> None:
    found = result("PCI-005", with_port("dgx-a100", acs_control=0x1D))
    assert [it.observed.partition(" between ")[2] for it in found.findings] == [
        "GPU0 0000:07:00.0 and mlx5_0 0000:0c:00.0, and 2 more pairs"
    ]


@pytest.mark.parametrize("control", [0x00, 0x01, 0x13, 0x5D])
def test_bits_that_turn_no_peer_away_pass(control: int) -> None:
    assert result("PCI-005", with_port("dgx-h100", acs_control=control)).verdict is Verdict.PASS


def test_acs_above_the_switch_that_both_share_is_no_matter() -> None:
    whole = healthy()
    path = whole.gpus[0].path
    assert path is not None
    shared = with_bridges(
        whole, lambda it: replace(it, acs_control=0x1D) if it.address == path.hops[0] else it
    )
    assert result("PCI-005", shared).verdict is Verdict.PASS


def test_a_config_space_that_only_root_can_read_leaves_acs_unknown() -> None:
    found = result("PCI-005", with_port("dgx-h100", acs_control=None))
    port = port_of_gpu0(healthy()).address
    assert (found.verdict, found.missing) == (
        Verdict.UNKNOWN,
        (f"ACS control (read as root) of {port}",),
    )


@pytest.mark.parametrize("code", ["PCI-003", "PCI-004", "PCI-005", "PCI-006", "PCI-007"])
def test_a_virtual_machine_is_passed_over(code: str) -> None:
    assert result(code, as_guest(healthy(BOARD))).skipped == "a virtual machine"


@pytest.mark.parametrize("code", ["PCI-003", "PCI-004", "PCI-005", "PCI-006", "PCI-007"])
def test_what_could_be_a_virtual_machine_is_unknown(code: str) -> None:
    found = result(code, unplaced(healthy(BOARD)))
    assert (found.verdict, found.missing) == (
        Verdict.UNKNOWN,
        ("whether this is a virtual machine",),
    )


@pytest.mark.parametrize("code", ["PCI-004", "PCI-005", "PCI-007"])
def test_a_gpu_of_unknown_place_leaves_the_pairs_unknown(code: str) -> None:
    lost = with_gpu(healthy(BOARD), 0, lambda gpu: replace(gpu, path=None))
    found = result(code, lost)
    assert (found.verdict, found.missing) == (
        Verdict.UNKNOWN,
        (f"place on the PCI bus of {GPU0}",),
    )


@pytest.mark.parametrize("code", ["PCI-005", "PCI-007"])
def test_devices_that_share_no_switch_need_nothing(code: str) -> None:
    reason = "no GPU shares a PCIe switch with an HCA or another GPU"
    assert result(code, healthy("l40s-pcie-4")).skipped == reason


@pytest.mark.parametrize("kind", [IommuType.DMA, IommuType.DMA_FQ])
def test_translated_addresses_are_a_warning(kind: IommuType) -> None:
    found = result("PCI-006", with_gpu(healthy(BOARD), 0, function(iommu_type=kind, iommu_group=7)))
    assert (found.verdict, found.findings) == (
        Verdict.WARN,
        (
            Finding(
                subject=GPU0,
                observed=f"IOMMU group 7 translates ({kind.value})",
                expected="identity, or no IOMMU",
            ),
        ),
    )


@pytest.mark.parametrize(
    "facts",
    [
        {"iommu_type": None, "iommu_group": None},  # no IOMMU in use
        {"iommu_type": IommuType.UNMANAGED},  # given to a virtual machine
        {"iommu_type": IommuType.BLOCKED},
    ],
)
def test_addresses_that_nobody_translates_pass(facts: dict[str, object]) -> None:
    assert result("PCI-006", with_gpu(healthy(), 0, function(**facts))).verdict is Verdict.PASS


@pytest.mark.parametrize(
    "silent", [lambda gpu: replace(gpu, function=None), function(iommu_type=None, iommu_group=3)]
)
def test_an_unread_group_is_unknown(silent: Callable[[Gpu], Gpu]) -> None:
    found = result("PCI-006", with_gpu(healthy(), 0, silent))
    assert (found.verdict, found.missing) == (
        Verdict.UNKNOWN,
        ("IOMMU group of GPU0 0000:1b:00.0",),
    )


def test_grace_and_a_single_gpu_may_have_their_addresses_translated() -> None:
    tray, edge = healthy("gb200-nvl72"), healthy("l40s-pcie-4")
    single = replace(edge, gpus=edge.gpus[:1])
    assert result("PCI-006", tray).skipped == "GPUs that share addresses with the CPU"
    assert result("PCI-006", single).skipped == "no peer of the GPU"


def test_peers_with_unequal_payloads_are_a_warning() -> None:
    found = result("PCI-007", with_gpu(healthy(BOARD), 0, function(max_payload=512)))
    assert (found.verdict, found.findings) == (
        Verdict.WARN,
        (
            Finding(
                subject=f"{GPU0} and {GPU1}",
                observed="512 and 256 bytes",
                expected="the same maximum payload",
            ),
        ),
    )


def test_a_bridge_that_takes_less_than_a_gpu_sends_is_a_warning() -> None:
    found = result("PCI-007", with_port(BOARD, max_payload=128))
    port = port_of_gpu0(healthy(BOARD)).address
    assert [(it.subject, it.observed) for it in found.findings] == [
        (GPU0, f"256 bytes, and 128 at bridge {port} above it")
    ]


def test_a_payload_that_only_root_can_read_is_unknown() -> None:
    found = result("PCI-007", with_gpu(healthy(BOARD), 0, function(max_payload=None)))
    assert found.missing == (f"maximum payload (read as root) of {GPU0}",)


def with_access(status: P2pStatus | None) -> Snapshot:
    whole = healthy(BOARD)
    way = PeerAccess(read=status, write=P2pStatus.OK)
    first = next(it for it in whole.pairs if {it.a, it.b} == {"GPU0", "GPU1"})
    pair = ReportedPair(a="GPU0", b="GPU1", closeness=first.closeness, forward=way, backward=way)
    return replace(whole, pairs=tuple(pair if it == first else it for it in whole.pairs))


def test_peer_access_that_the_machine_denies_behind_one_switch_is_a_warning() -> None:
    found = result("PCI-004", with_access(P2pStatus.CHIPSET_NOT_SUPPORTED))
    assert (found.verdict, found.findings) == (
        Verdict.WARN,
        (
            Finding(
                subject=f"{GPU0} and {GPU1}",
                observed="chipset-not-supported",
                expected="peer access",
            ),
        ),
    )


@pytest.mark.parametrize("status", [P2pStatus.GPU_NOT_SUPPORTED, P2pStatus.NOT_SUPPORTED])
def test_gpus_that_cannot_access_peers_at_all_are_no_fault(status: P2pStatus) -> None:
    assert result("PCI-004", with_access(status)).verdict is Verdict.PASS


def test_peer_access_that_nvml_does_not_tell_is_unknown() -> None:
    assert result("PCI-004", with_access(None)).missing == (f"peer access of {GPU0} and {GPU1}",)


def test_confidential_computing_has_no_peer_access() -> None:
    secret = replace(healthy(BOARD), confidential_compute=ConfidentialCompute(is_enabled=True))
    assert result("PCI-004", secret).skipped == "confidential computing"


@pytest.mark.parametrize(
    ("link", "slot"),
    [
        (PcieLink(max_generation=4, max_width=16), "Gen4 x16"),
        (PcieLink(max_generation=5, max_width=8), "Gen5 x8"),
    ],
)
def test_a_slot_that_gives_less_is_a_remark(link: PcieLink, slot: str) -> None:
    found = result("PCI-003", with_port(BOARD, link=link))
    assert (found.verdict, found.findings) == (
        Verdict.PASS,
        (Finding(subject=GPU0, observed=f"a slot of {slot}", expected="Gen5 x16"),),
    )


def test_a_slot_of_unknown_speed_is_unknown() -> None:
    assert result("PCI-003", with_port(BOARD, link=None)).missing == ("greatest PCIe link of GPU0",)
