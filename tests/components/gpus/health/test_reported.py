"""Events: what each makes of a GPU, alone, again and again, and without a GPU's name."""

import pytest

from nodetopo.components.gpus.health.rules import HealthRules
from nodetopo.components.gpus.health.state import MAX_FAULTS, MAX_GPUS
from nodetopo.model.gpu_health import GpuHealth, HealthClass
from nodetopo.model.nvml_event import EventKind
from nodetopo.model.xid import MAX_CODES, TABLE
from tests.components.gpus.health.gpu_history import A, B, Story, reasons, told, xid


@pytest.mark.parametrize(
    ("code", "is_healthy", "is_degraded", "kind"),
    [
        (63, True, True, HealthClass.DEGRADED),
        (999, True, True, HealthClass.DEGRADED),
        (95, False, False, HealthClass.RESET),
        (79, False, False, HealthClass.REBOOT),
    ],
)
def test_an_xid_gives_its_class_to_its_gpu_alone(
    code: int, is_healthy: bool, is_degraded: bool, kind: HealthClass
) -> None:
    story = Story().look().events(xid(code))
    health = story.health()
    assert (health.is_healthy, health.is_degraded) == (is_healthy, is_degraded)
    assert (health.reason, health.kind) == (f"Xid{code}", kind)
    assert story.health(B) == GpuHealth()


@pytest.mark.parametrize("code", [code for code, it in TABLE.items() if it.kind == "app"])
def test_an_application_fault_leaves_the_gpu_sound(code: int) -> None:
    assert not Story().look().events(xid(code, count=100_000)).view


def test_a_verdict_says_what_happened_and_what_ends_it() -> None:
    said = Story().look().events(xid(79)).health().said
    assert said == "XID 79, the GPU fell off the bus; it needs a reboot of the node"


def test_the_worst_of_several_faults_speaks() -> None:
    story = Story().look().events(xid(63), xid(79), xid(95))
    assert story.reason() == "Xid79"


def test_an_event_before_the_first_look_counts() -> None:
    assert Story().events(xid(79)).look().reason() == "Xid79"


def test_an_operator_may_ignore_a_code() -> None:
    story = Story(HealthRules(classes={79: HealthClass.APP}))
    assert not story.look().events(xid(79)).view


def test_an_operator_may_have_a_code_wait_for_a_person() -> None:
    story = Story(HealthRules(classes={74: HealthClass.RMA})).look().events(xid(74))
    assert story.health().kind is HealthClass.RMA
    assert story.looks_for(3600).looks_for(7200).reason() == "Xid74"


@pytest.mark.parametrize("code", [13, 31])
def test_application_faults_that_repeat_degrade_the_gpu(code: int) -> None:
    story = Story().look()
    for _ in range(4):
        story.events(xid(code)).wait(61)
    assert not story.view
    story.events(xid(code))
    assert story.reason() == f"Xid{code}Repeated"
    assert story.health().is_healthy
    assert story.health().is_degraded


def test_a_burst_of_one_fault_is_one_occurrence() -> None:
    story = Story().look()
    for _ in range(59):
        story.events(xid(13, count=1000)).wait(1)
    assert not story.view


def test_faults_that_are_far_apart_are_not_repeated() -> None:
    story = Story().look()
    for _ in range(20):
        story.events(xid(31)).wait(901)
    assert not story.view


@pytest.mark.parametrize("code", [45, 43, 94, 68])
def test_other_application_faults_never_count_as_repeated(code: int) -> None:
    story = Story().look()
    for _ in range(100):
        story.events(xid(code)).wait(61)
    assert not story.view


def test_an_ignored_code_does_not_count_as_repeated() -> None:
    story = Story(HealthRules(classes={13: HealthClass.APP})).look()
    for _ in range(20):
        story.events(xid(13)).wait(61)
    assert not story.view


def test_an_event_without_a_gpu_concerns_every_gpu_until_a_look_clears_it() -> None:
    story = Story().look().events(xid(79, on=None))
    assert reasons(story.view) == {A: "Xid79", B: "Xid79"}
    assert not story.looks_for(60).view


def test_events_without_a_gpu_count_towards_no_fall() -> None:
    story = Story().look()
    for _ in range(5):
        story.events(xid(79, on=None), told(EventKind.UNAVAILABLE, on=None)).wait(1).looks_for(60)
    assert not story.view


def test_an_event_without_a_gpu_does_not_soften_one_with_it() -> None:
    for batch in ((xid(79), xid(79, on=None)), (xid(79, on=None), xid(79))):
        story = Story().look().events(*batch).looks_for(60)
        assert reasons(story.view) == {A: "Xid79"}
        assert story.health().kind is HealthClass.REBOOT


def test_an_unavailable_gpu_is_unhealthy_until_it_was_reset() -> None:
    story = Story().look().events(told(EventKind.UNAVAILABLE))
    assert story.reason() == "GpuUnavailable"
    assert not story.looks_for(60).view


@pytest.mark.parametrize("kind", [EventKind.MIG_CHANGE, EventKind.RECOVERY_ACTION])
def test_an_event_that_only_asks_for_a_look_changes_no_verdict(kind: EventKind) -> None:
    assert not Story().look().events(told(kind), told(kind, on=None)).view


def test_an_event_of_no_kind_of_xid_is_survived() -> None:
    assert not Story().look().events(told(EventKind.XID)).view


def test_memory_is_bounded_by_gpus_and_codes() -> None:
    story = Story().look()
    story.events(*(xid(code) for code in range(2000)))
    record = story.state.gpus[A]
    assert len(record.windows) <= MAX_CODES + len(TABLE) + 1
    assert len(record.faults) == MAX_FAULTS
    assert story.reason() == "Xid151"
    story.events(*(xid(79, on=f"GPU-{number}") for number in range(1000)))
    assert len(story.state.gpus) == MAX_GPUS


def test_codes_beyond_the_bound_are_one_and_still_degrade() -> None:
    story = Story().look().events(*(xid(code) for code in range(1000, 1000 + MAX_CODES)))
    story.events(xid(5000), xid(6000))
    windows = story.state.gpus[A].windows
    assert (len(windows), windows[0].xid) == (MAX_CODES + 1, 0)
    assert story.health().is_degraded


def test_codes_that_came_long_ago_make_room() -> None:
    story = Story().look().events(*(xid(code) for code in range(1000, 1256)))
    story.wait(3600).events(xid(5000))
    assert [window.xid for window in story.state.gpus[A].windows] == [5000]
