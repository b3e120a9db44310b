"""NVML as a whole: silence, refusals, other versions, nothing at all."""

import pytest
from msgspec.structs import replace

from nodetopo.components.gpus.health.saved import forgiven, resumed
from nodetopo.model.nvml_event import NvmlTrouble
from nodetopo.model.snapshot import Snapshot
from tests.components.gpus.health.gpu_history import SOUND, A, B, Story, reasons, seen, trouble, xid

NO_ANSWER, REFUSED = NvmlTrouble.NO_ANSWER, NvmlTrouble.REFUSED


def test_two_scans_without_an_answer_change_nothing() -> None:
    story = Story().look()
    for failures in (1, 2):
        story.wait(20).look(SOUND, trouble(NO_ANSWER, failures))
    assert not story.view


def test_the_third_scan_without_an_answer_makes_every_gpu_unhealthy() -> None:
    story = Story().look()
    for failures in (1, 2, 3):
        story.wait(20).look(SOUND, trouble(NO_ANSWER, failures))
    assert reasons(story.view) == {A: "NvmlUnresponsive", B: "NvmlUnresponsive"}
    assert not story.health().is_healthy
    assert story.health().said == "NVML gives no reading: NVML said so"


def test_the_same_attempt_told_again_is_one() -> None:
    story = Story().look()
    for _ in range(8):
        story.wait(20).look(SOUND, trouble(NO_ANSWER, 2))
    assert not story.view


def test_refusals_before_a_silence_are_no_part_of_it() -> None:
    story = Story().look().look(SOUND, trouble(REFUSED, 7)).look(SOUND, trouble(NO_ANSWER, 8))
    assert not story.look(SOUND, trouble(NO_ANSWER, 9)).view
    assert story.look(SOUND, trouble(NO_ANSWER, 10)).view


def test_a_call_that_is_stuck_for_minutes_counts_without_new_attempts() -> None:
    story = Story().look().look(SOUND, trouble(NO_ANSWER)).wait(179)
    assert not story.view
    assert story.wait(1).reason() == "NvmlUnresponsive"


def test_refusals_before_a_call_that_is_stuck_are_no_part_of_its_minutes() -> None:
    story = Story().look().look(SOUND, trouble(REFUSED)).wait(170)
    story.look(SOUND, trouble(NO_ANSWER, 2)).wait(179)
    assert not story.view
    assert story.wait(1).reason() == "NvmlUnresponsive"


def test_the_minutes_without_a_library_are_no_refusals() -> None:
    story = Story().look().look(SOUND, trouble(NvmlTrouble.NO_LIBRARY)).wait(300)
    story.look(SOUND, trouble(REFUSED, 2, 999)).wait(119)
    assert not story.state.nvml.wants_fresh
    assert story.wait(1).state.nvml.wants_fresh


@pytest.mark.parametrize("kind", [NO_ANSWER, REFUSED])
def test_the_time_that_no_process_of_ours_was_there_is_no_trouble_by_itself(
    kind: NvmlTrouble,
) -> None:
    story = Story().look().look(SOUND, trouble(kind, 1, 999)).wait(1)
    story.state = resumed(story.state, "one", story.now + 3600)
    assert not story.wait(3601).view
    assert not story.look().wait(5).view


def test_a_silence_ends_soon_after_the_next_reading() -> None:
    story = Story().look().look(SOUND, trouble(NO_ANSWER, 3)).wait(60).look()
    assert story.wait(4.9).reason() == "NvmlUnresponsive"
    assert not story.wait(0.1).view


def test_a_silence_that_goes_on_after_one_reading_does_not_end() -> None:
    story = Story().look().look(SOUND, trouble(NO_ANSWER, 3)).look()
    story.wait(2).look(SOUND, trouble(NO_ANSWER, 1)).wait(60)
    assert story.reason() == "NvmlUnresponsive"
    assert story.look().wait(4.9).reason() == "NvmlUnresponsive"
    assert story.wait(0.1).reason() is None


def test_a_reading_between_two_looks_breaks_a_silence() -> None:
    story = Story().look().look(SOUND, trouble(REFUSED, 7)).look(SOUND, trouble(NO_ANSWER, 9))
    for failures in (1, 2):
        story.look(SOUND, trouble(NO_ANSWER, failures))
    assert not story.view
    assert story.look(SOUND, trouble(NO_ANSWER, 3)).view


def test_what_is_wrong_with_a_gpu_itself_is_said_first() -> None:
    story = Story().look().events(xid(79)).look(SOUND, trouble(NO_ANSWER, 3))
    assert reasons(story.view) == {A: "Xid79", B: "NvmlUnresponsive"}


def test_a_gpu_that_was_degraded_is_unhealthy_in_a_silence_and_degraded_after() -> None:
    story = Story().look().events(xid(92)).look(SOUND, trouble(NO_ANSWER, 3))
    assert not story.health().is_healthy
    assert story.look().wait(5).reason() == "Xid92"


def test_silence_counts_towards_no_fall() -> None:
    story = Story().look()
    for _ in range(5):
        story.look(SOUND, trouble(NO_ANSWER, 3)).look().wait(5)
    assert not story.view


@pytest.mark.parametrize(
    ("kind", "code", "reason"),
    [
        (REFUSED, 999, "NvmlRefuses"),
        (REFUSED, 18, "NvmlVersionMismatch"),
        (REFUSED, None, "NvmlRefuses"),
        (NvmlTrouble.DIED, None, "NvmlDied"),
        (NvmlTrouble.NO_LIBRARY, None, "NvmlLibraryGone"),
    ],
)
def test_other_trouble_leaves_gpus_as_they_were_for_ten_minutes(
    kind: NvmlTrouble, code: int | None, reason: str
) -> None:
    story = Story().look().events(xid(92, on=B)).look(SOUND, trouble(kind, 1, code))
    for failures in range(2, 11):
        story.wait(60).look(SOUND, trouble(kind, failures, code))
    assert reasons(story.view) == {B: "Xid92"}
    assert reasons(story.wait(60).view) == {A: reason, B: reason}
    assert not story.look().wait(5).health().is_degraded


def test_trouble_that_ends_in_time_was_none() -> None:
    story = Story().look()
    for _ in range(5):
        story.look(SOUND, trouble(REFUSED)).wait(500).look().wait(10)
    assert not story.view


@pytest.mark.parametrize("kind", NvmlTrouble)
def test_no_deadline_of_nvml_passes_in_a_pause(kind: NvmlTrouble) -> None:
    story = Story().look().look(SOUND, trouble(kind, 1, 999))
    story.wait(2, is_paused=True).wait(100_000, is_paused=True)
    assert not story.view
    assert not story.state.nvml.wants_fresh
    # A trouble that outlasts the pause begins with it.
    assert not story.wait(1).look(SOUND, trouble(kind, 2, 999)).view
    assert not story.state.nvml.wants_fresh


def test_a_verdict_on_nvml_outlasts_a_pause_until_a_reading() -> None:
    story = Story().look().look(SOUND, trouble(REFUSED)).wait(100_000).wait(9, is_paused=True)
    assert story.reason() == "NvmlRefuses"
    assert story.wait(100_000, is_paused=True).look().wait(100).look().reason() is None


def test_a_node_that_never_had_a_gpu_has_no_verdicts() -> None:
    story = Story().look(Snapshot(), trouble(NvmlTrouble.NO_LIBRARY)).wait(100_000)
    assert not story.view
    assert not story.state.nvml.wants_fresh


def test_a_fresh_container_is_wanted_once_nvml_refused_for_minutes() -> None:
    story = Story().look().look(SOUND, trouble(REFUSED, 1, 999))
    assert not story.wait(119).state.nvml.wants_fresh
    assert story.wait(1).state.nvml.wants_fresh
    assert not story.look().state.nvml.wants_fresh


@pytest.mark.parametrize(
    ("kind", "code", "snapshot"),
    [
        (REFUSED, 18, SOUND),
        (REFUSED, 9, SOUND),
        (NO_ANSWER, None, SOUND),
        (NvmlTrouble.DIED, None, SOUND),
        (NvmlTrouble.NO_LIBRARY, None, SOUND),
        (REFUSED, 999, replace(SOUND, pci_gpus=())),
        (REFUSED, 999, replace(SOUND, pci_gpus=None)),
    ],
)
def test_a_fresh_container_is_not_wanted_where_it_would_not_help(
    kind: NvmlTrouble, code: int | None, snapshot: Snapshot
) -> None:
    story = Story().look().look(snapshot, trouble(kind, 1, code)).wait(10_000)
    assert not story.state.nvml.wants_fresh


def test_a_fresh_container_is_wanted_once_an_hour_however_many_processes_there_were() -> None:
    story, wanted = Story().look(), []
    for minute in range(180):  # the container begins anew whenever it wants to
        story.look(SOUND, trouble(REFUSED, 1, 999)).wait(60)
        if story.state.nvml.wants_fresh:
            wanted.append(minute)
            story.state = resumed(story.state, "one", story.now)
    assert wanted == [1, 61, 121]


def test_attempts_of_the_next_process_count_on() -> None:
    story = Story().look().look(SOUND, trouble(NO_ANSWER, 2))
    story.state = resumed(story.state, "one", story.now)
    assert story.look(SOUND, trouble(NO_ANSWER, 1)).reason() == "NvmlUnresponsive"


def test_a_lost_gpu_is_unhealthy_before_in_and_after_a_silence() -> None:
    lost = seen(is_lost=True)
    story = Story().look().look(lost).look(lost, trouble(NO_ANSWER, 3))
    assert story.reason() == "GpuLost"
    assert story.look(lost).wait(10).reason() == "GpuLost"


def test_a_pardon_in_a_silence_makes_no_gpu_healthy() -> None:
    story = Story().look().look(SOUND, trouble(NO_ANSWER, 3))
    story.state = forgiven(story.state)
    story.look(SOUND, trouble(NO_ANSWER, 4))
    assert reasons(story.view) == {A: "NvmlUnresponsive", B: "NvmlUnresponsive"}
