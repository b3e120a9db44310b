"""Looks: what a scan shows of a GPU, and which evidence ends a verdict."""

from typing import Any

import pytest
from msgspec.structs import replace

from nodetopo.components.gpus.health.rules import HealthRules
from nodetopo.model.gpu import EccErrors, RemappedRows
from nodetopo.model.gpu_health import HealthClass
from nodetopo.model.nvml_event import NvmlTrouble
from nodetopo.model.pci import PcieLink
from nodetopo.model.snapshot import Snapshot
from tests.components.gpus.health.gpu_history import (
    FAILED,
    PARTED,
    PENDING,
    REMAPPED,
    SOUND,
    A,
    B,
    Story,
    gpu,
    node,
    reasons,
    seen,
    trouble,
    with_links_down,
    xid,
)

ON_BUS = SOUND.pci_gpus or ()
NARROW = PcieLink(width=4, max_width=16)


@pytest.mark.parametrize(
    ("snapshot", "reason", "kind"),
    [
        (seen(is_lost=True), "GpuLost", HealthClass.RESET),
        (seen(recovery_action=1), "ResetRequired", HealthClass.RESET),
        (seen(recovery_action=2), "RebootRequired", HealthClass.REBOOT),
        (seen(recovery_action=3), "DrainPeersRequired", HealthClass.RESET),
        (seen(recovery_action=4), "DrainAndResetRequired", HealthClass.RESET),
        (seen(recovery_action=5), "ImexRecoveryRequired", HealthClass.DEGRADED),
        (seen(recovery_action=6), "BusResetRequired", HealthClass.RESET),
        (seen(recovery_action=7), "RebootRequired", HealthClass.REBOOT),
        (seen(recovery_action=42), "UnknownRecoveryRequired", HealthClass.DEGRADED),
        (seen(remapped_rows=FAILED), "RowRemapFailed", HealthClass.RMA),
        (seen(is_over_sram_threshold=True), "SramThresholdExceeded", HealthClass.RMA),
        (seen(remapped_rows=PENDING), "RowRemapPending", HealthClass.DEGRADED),
        (seen(retired_pages_pending=True), "PageRetirementPending", HealthClass.DEGRADED),
        (with_links_down(1), "NvLinksDown", HealthClass.DEGRADED),
        (seen(pcie=NARROW), "PcieLanesMissing", HealthClass.DEGRADED),
        (replace(SOUND, pci_gpus=ON_BUS[1:]), "GpuOffBus", HealthClass.RESET),
        (replace(SOUND, gpus=SOUND.gpus[1:]), "GpuMissing", HealthClass.RESET),
    ],
)
def test_what_a_look_shows_is_judged_at_once_and_of_that_gpu_alone(
    snapshot: Snapshot, reason: str, kind: HealthClass
) -> None:
    story = Story().look().look(snapshot)
    assert reasons(story.view) == {A: reason}
    health = story.health()
    assert health.kind is kind
    assert health.is_healthy == (kind is HealthClass.DEGRADED)


@pytest.mark.parametrize(
    "snapshot",
    [
        seen(is_lost=True),
        seen(recovery_action=1),
        seen(recovery_action=2),
        seen(remapped_rows=PENDING),
        with_links_down(2),
        seen(pcie=NARROW),
        replace(SOUND, pci_gpus=ON_BUS[1:]),
        replace(SOUND, gpus=SOUND.gpus[1:]),
    ],
)
def test_what_was_seen_is_over_once_it_was_gone_for_a_while(snapshot: Snapshot) -> None:
    story = Story().look().look(snapshot).wait(1).look()
    assert story.reason() is not None
    assert story.wait(59.9).look().reason() is not None
    assert story.wait(0.1).look().reason() is None


@pytest.mark.parametrize(
    "link", [None, PcieLink(), PcieLink(width=4), PcieLink(width=8, max_width=8)]
)
def test_lanes_that_are_unknown_or_all_there_are_no_fault(link: PcieLink | None) -> None:
    assert Story().look(seen(pcie=link)).reason() is None


def test_missing_lanes_keep_no_other_fault_alive() -> None:
    """The lanes can be missing for as long as the GPU is in its slot."""
    narrow = seen(pcie=NARROW)
    story = Story().look(narrow).look(seen(pcie=NARROW, is_lost=True)).wait(1)
    assert story.look(narrow).reason() == "GpuLost"
    assert story.wait(60).look(narrow).reason() == "PcieLanesMissing"
    assert story.wait(100_000).look(narrow).health().is_degraded


def test_time_alone_ends_nothing() -> None:
    assert Story().look(seen(is_lost=True)).look().wait(10_000).reason() == "GpuLost"


def test_evidence_that_breaks_off_begins_anew() -> None:
    story = Story().look(seen(is_lost=True)).wait(1).look().wait(50).look(seen(is_lost=True))
    assert story.wait(1).look().wait(59).look().reason() == "GpuLost"
    assert story.wait(1).look().reason() is None


def test_a_new_error_breaks_evidence_off() -> None:
    story = Story().look().events(xid(95)).look().wait(50).events(xid(95)).wait(10).look()
    assert story.reason() == "Xid95"
    assert story.wait(59).look().reason() == "Xid95"
    assert story.wait(1).look().reason() is None


def test_a_look_without_a_reading_breaks_evidence_off() -> None:
    story = Story().look().events(xid(95)).look().wait(50)
    story.look(SOUND, trouble(NvmlTrouble.REFUSED)).wait(10).look()
    assert story.wait(59).look().reason() == "Xid95"
    assert story.wait(1).look().reason() is None


def test_an_xid_for_a_reset_is_over_when_the_driver_says_that_nothing_is_open() -> None:
    story = Story().look().events(xid(95)).look(seen(recovery_action=1)).wait(30)
    assert story.looks_for(60, seen(recovery_action=1)).reason() == "Xid95"
    assert story.looks_for(60).reason() is None


def test_a_driver_that_says_nothing_of_recovery_leaves_it_to_a_reset_that_shows() -> None:
    silent = seen(recovery_action=None)
    story = Story().look(silent).events(xid(95)).looks_for(100_000, silent)
    assert story.reason() == "Xid95"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"remapped_rows": PENDING}, {"remapped_rows": REMAPPED}),
        ({"retired_pages_pending": True}, {"retired_pages_pending": False}),
        ({"ecc_errors": EccErrors(volatile=3)}, {"ecc_errors": EccErrors(volatile=0)}),
    ],
)
def test_a_reset_that_shows_is_evidence_where_the_driver_says_nothing(
    before: dict[str, object], after: dict[str, object]
) -> None:
    worn, sound = seen(recovery_action=None, **before), seen(recovery_action=None, **after)
    story = Story().look(worn).events(xid(95)).wait(1).look(worn)
    assert story.wait(1).looks_for(60, sound).reason() is None


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"remapped_rows": PENDING}, {"remapped_rows": REMAPPED}),
        ({"retired_pages_pending": True}, {"retired_pages_pending": False}),
        ({"ecc_errors": EccErrors(volatile=3)}, {"ecc_errors": EccErrors(volatile=0)}),
        ({"recovery_action": 1}, {"recovery_action": 0}),
    ],
)
@pytest.mark.parametrize("untold", [False, True])
def test_an_error_between_the_scans_that_show_a_reset_can_have_followed_it(
    before: dict[str, Any], after: dict[str, Any], untold: bool
) -> None:
    silent = {"recovery_action": None}
    story = Story().look(seen(**silent | before)).wait(30).events(xid(95)).wait(5)
    if untold:  # a driver that does not report the fact this time proves nothing
        story.look(seen(**silent | dict.fromkeys(before))).wait(5)
    story.look(seen(**silent | after)).wait(1).looks_for(1000, seen(**silent))
    assert story.reason() == "Xid95"


def test_a_reset_before_the_error_is_no_evidence() -> None:
    worn, sound = seen(recovery_action=None, remapped_rows=PENDING), seen(recovery_action=None)
    story = Story().look(worn).wait(1).look(sound).wait(1).events(xid(95))
    assert story.looks_for(1000, sound).reason() == "Xid95"


def test_memory_that_still_waits_for_a_reset_keeps_an_xid_for_one() -> None:
    story = Story().look().events(xid(48)).looks_for(600, seen(remapped_rows=PENDING))
    assert story.reason() == "Xid48"


def test_links_that_stay_down_keep_an_xid_for_a_reset() -> None:
    story = Story().look().events(xid(74)).looks_for(600, with_links_down(1))
    assert story.reason() == "Xid74"
    assert story.looks_for(60).reason() is None


def test_an_xid_for_a_reboot_outlasts_every_look() -> None:
    story = Story().look().events(xid(79)).looks_for(100_000).looks_for(100_000)
    assert story.reason() == "Xid79"


def test_a_failed_remap_outlasts_every_look() -> None:
    sound = seen(
        remapped_rows=RemappedRows(
            correctable=0, uncorrectable=0, is_pending=False, has_failed=False
        )
    )
    story = Story().look(seen(remapped_rows=FAILED)).looks_for(100_000, sound)
    assert story.reason() == "RowRemapFailed"


def test_an_exceeded_sram_threshold_outlasts_every_look() -> None:
    story = Story().look(seen(is_over_sram_threshold=True))
    story.looks_for(100_000, seen(is_over_sram_threshold=False)).looks_for(100_000)
    assert story.reason() == "SramThresholdExceeded"
    assert not story.health().is_healthy


def test_a_failed_remap_does_not_keep_other_faults_from_ending() -> None:
    story = Story().look(seen(remapped_rows=FAILED)).events(xid(64))
    story.looks_for(60, seen(remapped_rows=FAILED))
    assert [fault.reason for fault in story.state.gpus[A].faults] == ["RowRemapFailed"]


def test_a_degraded_gpu_is_sound_again_after_a_quiet_hour() -> None:
    story = Story().look().events(xid(92)).looks_for(3599)
    assert story.reason() == "Xid92"
    assert story.wait(1).look().reason() is None


def test_a_degraded_gpu_is_sound_again_soon_after_a_reset() -> None:
    story = Story().look().events(xid(63)).wait(1).look(seen(remapped_rows=PENDING)).wait(1)
    assert story.looks_for(60, seen(remapped_rows=REMAPPED)).reason() is None


def test_a_contained_memory_error_degrades_while_a_row_waits() -> None:
    story = Story().look().events(xid(94)).look(seen(remapped_rows=PENDING))
    assert (story.reason(), story.health().is_healthy) == ("RowRemapPending", True)


def test_mig_mode_takes_links_down_and_degrades_nothing() -> None:
    parted = node(gpu(0, mig=PARTED), gpu(1), nvlinks=with_links_down(4).nvlinks)
    story = Story().look().look(parted)
    assert story.reason() is None
    assert story.events(xid(95)).looks_for(60, parted).reason() is None


def test_links_that_were_never_up_are_not_missed() -> None:
    assert not Story().look(with_links_down(4)).look(with_links_down(4)).view


def test_links_that_nvml_does_not_tell_of_are_no_fault_and_no_evidence() -> None:
    untold = replace(SOUND, nvlinks=None)
    story = Story().look().look(untold)
    assert not story.view
    assert story.events(xid(95)).looks_for(600, untold).reason() == "Xid95"


def test_an_unread_bus_says_nothing() -> None:
    assert not Story().look().look(replace(SOUND, pci_gpus=None)).view


def test_a_gpu_that_the_bus_never_showed_is_not_missed_there() -> None:
    other_machine = replace(SOUND, pci_gpus=ON_BUS[1:])
    assert not Story().look(other_machine).look(other_machine).view


def test_a_bus_without_any_gpu_is_not_believed_while_nvml_answers() -> None:
    assert not Story().look().look(replace(SOUND, pci_gpus=())).view


def test_a_gpu_off_the_bus_is_noticed_while_nvml_hangs() -> None:
    off = replace(SOUND, pci_gpus=ON_BUS[1:])
    story = Story().look().look(off, trouble(NvmlTrouble.NO_ANSWER))
    assert reasons(story.view) == {A: "GpuOffBus"}


def test_a_gpu_that_vanished_stays_known_by_its_name() -> None:
    story = Story().look().look(replace(SOUND, gpus=SOUND.gpus[1:]))
    assert story.state.gpus[A].name == "GPU0"
    assert story.looks_for(100_000, replace(SOUND, gpus=SOUND.gpus[1:])).reason() == "GpuMissing"


def test_an_old_reading_proves_nothing_of_a_gpu() -> None:
    story = Story().look().look(seen(recovery_action=1), trouble(NvmlTrouble.REFUSED))
    assert not story.view


def test_an_old_reading_is_no_sign_of_a_reset() -> None:
    silent = seen(recovery_action=None)
    worn = seen(recovery_action=None, remapped_rows=PENDING)
    story = Story().look(silent).events(xid(95)).wait(1)
    story.look(worn, trouble(NvmlTrouble.REFUSED)).wait(1)
    assert story.looks_for(600, silent).reason() == "Xid95"


def test_a_gpu_without_a_uuid_is_not_judged() -> None:
    nameless = node(replace(gpu(0), uuid=None, is_lost=True), gpu(1))
    assert not Story().look(nameless).view


def test_a_gpu_that_falls_for_the_third_time_stays_so() -> None:
    story = Story().look()
    for _ in range(2):
        story.events(xid(95)).wait(1).looks_for(60)
        assert story.reason() is None
        story.wait(3600)
    story.events(xid(95)).wait(1).looks_for(60)
    assert story.reason() == "Flapping"
    assert not story.health().is_healthy
    assert story.looks_for(100_000).reason() == "Flapping"


def test_falls_that_are_days_apart_are_forgotten() -> None:
    story = Story().look()
    for _ in range(10):
        story.events(xid(95)).wait(1).looks_for(60).wait(43_200)
    assert story.reason() is None


def test_more_faults_of_a_gpu_that_is_down_are_no_further_falls() -> None:
    story = Story().look()
    for code in (95, 48, 62, 46, 110):
        story.events(xid(code)).wait(70)
    story.looks_for(60)
    assert story.reason() is None


def test_the_time_of_evidence_can_be_chosen() -> None:
    story = Story(HealthRules(recovery_s=300)).look(seen(is_lost=True)).looks_for(299)
    assert story.reason() == "GpuLost"
    assert story.wait(1).look().reason() is None


def test_a_lost_gpu_leaves_the_others_alone() -> None:
    story = Story().look()
    for _ in range(10):
        story.look(seen(is_lost=True)).wait(60)
    assert B not in story.view


def test_a_degraded_gpu_is_said_to_be_given_out_last() -> None:
    story = Story().look(seen(pcie=NARROW))
    assert story.health().said == (
        "its PCIe link has 4 of 16 lanes; "
        "it is allocated last until scans have shown no fault for a while"
    )
