"""What outlives a process and a boot, and documents that cannot be read."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from nodetopo import __version__
from nodetopo.components.gpus.health.ledger import view
from nodetopo.components.gpus.health.saved import SCHEMA, decode, encode, forgiven, lasting, resumed
from nodetopo.components.gpus.health.state import MAX_GPUS, HealthState
from nodetopo.errors import DecodeError
from nodetopo.model.gpu import EccErrors
from nodetopo.model.nvml_event import NvmlTrouble
from tests.components.gpus.health.gpu_history import (
    FAILED,
    PENDING,
    SOUND,
    A,
    B,
    Story,
    reasons,
    seen,
    trouble,
    with_links_down,
    xid,
)


def eventful() -> Story:
    """Return a node with something of every sort to remember."""
    story = Story().look(seen(remapped_rows=PENDING)).events(xid(95), xid(13), xid(79, on=B))
    story.wait(1).look(seen(remapped_rows=FAILED, is_lost=False)).wait(61).events(xid(13))
    return story.look(SOUND, trouble(NvmlTrouble.REFUSED, 4, 999)).wait(600)


def test_a_document_gives_back_the_state_it_was_made_of() -> None:
    state = eventful().state
    assert decode(encode(state)) == state


def test_a_document_names_its_schema_and_the_release_that_wrote_it() -> None:
    document = json.loads(encode(HealthState()))
    assert (document["schema"], document["release"]) == (SCHEMA, __version__)


def test_fields_of_a_newer_version_are_passed_over() -> None:
    document = json.loads(encode(eventful().state)) | {"weather": "fine"}
    document["gpus"][A]["colour"] = "green"
    assert decode(json.dumps(document)) == eventful().state


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"schema": "nodetopo-health/v2"}',
        '{"schema": "nodetopo-health/v1", "gpus": []}',
        '{"schema": "nodetopo-health/v1", "gpus": {"a": {"faults": [{"reason": "X"}]}}}',
        "[" * 100_000,
    ],
)
def test_what_is_no_such_document_is_refused(text: str) -> None:
    with pytest.raises(DecodeError):
        decode(text)


def test_a_document_with_more_gpus_than_any_node_has_is_refused() -> None:
    gpus: dict[str, object] = {f"GPU-{number}": {} for number in range(MAX_GPUS + 1)}
    with pytest.raises(DecodeError, match="more than"):
        decode(json.dumps({"schema": SCHEMA, "gpus": gpus}))


def test_a_restart_in_the_same_boot_keeps_every_verdict() -> None:
    story = eventful()
    after = resumed(decode(encode(story.state)), "one", story.now)
    assert view(after) == story.view


def test_a_restart_makes_evidence_begin_anew() -> None:
    story = Story().look().events(xid(95)).wait(1).look().wait(59)
    story.state = resumed(story.state, "one", story.now)
    assert story.wait(1).look().reason() == "Xid95"
    assert story.wait(60).look().reason() is None


def test_a_restart_does_not_shorten_a_quiet_hour() -> None:
    story = Story().look().events(xid(92)).wait(3000)
    story.state = resumed(story.state, "one", story.now)
    assert story.looks_for(3599).reason() == "Xid92"
    assert story.wait(1).look().reason() is None


def test_a_restart_forgets_no_reset_that_was_seen() -> None:
    def look(volatile: int) -> Story:
        return story.look(seen(recovery_action=None, ecc_errors=EccErrors(volatile=volatile)))

    story, written = Story(), HealthState()
    steps: list[Callable[[], Story]] = [
        lambda: story.events(xid(95)),
        lambda: look(3),
        lambda: look(0),
    ]
    for step in steps:
        step()
        story.wait(1)
        if lasting(story.state) != lasting(written):
            written = story.state
    story.state = resumed(decode(encode(written)), "one", story.now)
    look(0)
    story.wait(60)
    assert look(0).reason() is None


@pytest.mark.parametrize("wait_s", [0.0, 2.0])
@pytest.mark.parametrize(
    ("worn", "sound"),
    [
        ({"ecc_errors": EccErrors(volatile=3)}, {"ecc_errors": EccErrors(volatile=0)}),
        ({"retired_pages_pending": True}, {"retired_pages_pending": False}),
    ],
    ids=["errors", "pages"],
)
def test_a_reset_between_two_processes_ends_no_fault_of_the_second(
    worn: dict[str, Any], sound: dict[str, Any], wait_s: float
) -> None:
    before, after = seen(recovery_action=None, **worn), seen(recovery_action=None, **sound)
    story = Story().look(before).events(xid(95)).wait(1).look(before).wait(1)
    story.state = resumed(decode(encode(story.state)), "one", story.now)
    story.wait(wait_s).events(xid(119)).wait(2).looks_for(30, after)
    story.state = resumed(decode(encode(story.state)), "one", story.now)
    story.looks_for(600, after)
    assert [fault.reason for fault in story.state.gpus[A].faults] == ["Xid119"]


def test_a_restart_remembers_falls() -> None:
    story = Story().look()
    for _ in range(2):
        story.events(xid(95)).wait(1).looks_for(60)
        story.state = resumed(decode(encode(story.state)), "one", story.now)
    story.events(xid(95)).wait(1).looks_for(60)
    assert story.reason() == "Flapping"


def test_another_boot_ends_all_but_what_waits_for_a_person() -> None:
    story = Story().look(seen(remapped_rows=FAILED)).events(xid(79), xid(95, on=B))
    after = resumed(story.state, "two", 5.0)
    assert reasons(view(after)) == {A: "RowRemapFailed"}
    assert after.boot_id == "two"
    assert after.nvml == HealthState().nvml


def test_another_boot_ends_flapping() -> None:
    story = Story().look()
    for _ in range(3):
        story.events(xid(95)).wait(1).looks_for(60)
    assert story.reason() == "Flapping"
    assert not view(resumed(story.state, "two", 5.0))


@pytest.mark.parametrize(("before", "after"), [(None, "one"), ("one", None), (None, None)])
def test_a_boot_that_is_not_known_ends_nothing(before: str | None, after: str | None) -> None:
    story = Story().look().events(xid(79))
    state = resumed(replace(story.state, boot_id=before), after, story.now)
    assert reasons(view(state)) == {A: "Xid79"}
    assert state.boot_id == (before or after)


def test_times_that_lie_ahead_of_the_clock_stop_nothing() -> None:
    story = Story(now=1e9).look().events(xid(13)).look(SOUND, trouble(NvmlTrouble.REFUSED))
    story.state = resumed(story.state, "one", 10.0)
    story.now = 10.0
    for _ in range(4):
        story.wait(61).events(xid(13))
    assert story.reason() == "Xid13Repeated"
    assert story.look(SOUND, trouble(NvmlTrouble.REFUSED, 2)).wait(356).reason(B) == "NvmlRefuses"


def test_an_operators_pardon_ends_every_verdict_and_forgets_falls() -> None:
    story = Story().look(seen(remapped_rows=FAILED))
    for _ in range(3):
        story.events(xid(95, on=B), xid(79)).wait(1).looks_for(60)
    story.state = forgiven(story.state)
    assert not story.view
    assert not story.look().events(xid(95, on=B)).wait(1).looks_for(60).view


def test_a_pardon_forgets_a_gpu_that_is_gone() -> None:
    rest = replace(SOUND, gpus=SOUND.gpus[1:])
    story = Story().look().look(rest)
    assert story.reason() == "GpuMissing"
    story.state = forgiven(story.state)
    assert not story.look(rest).view


def test_what_moves_all_the_time_is_no_reason_to_write() -> None:
    story = Story().look().events(xid(95), xid(63), xid(13)).look()
    before = lasting(story.state)
    story.wait(1).events(xid(95), xid(13), xid(43)).look().wait(10).look()
    assert lasting(story.state) == before
    assert lasting(story.events(xid(48)).state) != before


def test_a_sound_node_has_nothing_to_write() -> None:
    assert lasting(Story().look().events(xid(43)).state) == lasting(HealthState())


def test_what_every_verdict_rests_on_is_a_reason_to_write() -> None:
    story = Story().look()
    steps: list[Callable[[], Story]] = [
        lambda: story.events(xid(92)),
        lambda: story.events(xid(79, on=None)),
        lambda: story.events(xid(79, on=B)),  # a boot ends it now, and no look
        lambda: story.look(with_links_down(1)),
        lambda: story.look(with_links_down(2)),
        lambda: story.look(seen(remapped_rows=FAILED)),
        lambda: story.look(SOUND, trouble(NvmlTrouble.REFUSED, 4, 999)),
        lambda: story.wait(120),  # a fresh container is wanted
        lambda: story.wait(600),
        lambda: story.look().wait(5),
    ]
    for step in steps:
        before = lasting(story.state)
        step()
        assert lasting(story.state) != before
