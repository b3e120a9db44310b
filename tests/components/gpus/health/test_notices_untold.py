"""Looks at a GPU of which the driver tells less than before, and looks that came too early."""

import pytest

from nodetopo.model.gpu import EccErrors
from nodetopo.model.snapshot import Snapshot
from tests.components.gpus.health.gpu_history import PARTED, PENDING, Story, gpu, node, seen, xid


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ({"recovery_action": 1}, "ResetRequired"),
        ({"recovery_action": 2}, "RebootRequired"),
        ({"remapped_rows": PENDING}, "RowRemapPending"),
        ({"retired_pages_pending": True}, "PageRetirementPending"),
    ],
)
def test_what_the_driver_told_holds_while_it_does_not_tell(
    bad: dict[str, object], reason: str
) -> None:
    silent = seen(recovery_action=None, remapped_rows=None, retired_pages_pending=None)
    story = Story().look().look(seen(**bad)).wait(1).looks_for(100_000, silent)
    assert story.reason() == reason
    assert story.looks_for(60).reason() is None


def test_a_driver_that_stopped_to_tell_of_rows_shows_no_reset() -> None:
    silent = {"recovery_action": None, "retired_pages_pending": None}
    story = Story().look(seen(remapped_rows=PENDING, **silent)).events(xid(95)).wait(1)
    story.looks_for(600, node(gpu(0, mig=PARTED, remapped_rows=None, **silent), gpu(1)))
    assert story.reason() == "Xid95"


def test_an_answer_of_before_is_no_word_of_the_driver_now() -> None:
    story = Story().look().events(xid(95)).wait(1)
    assert story.looks_for(600, seen(recovery_action=None)).reason() == "Xid95"


def test_a_count_of_errors_that_was_not_told_for_a_while_still_shows_a_reset() -> None:
    def told(errors: EccErrors | None) -> Snapshot:
        return seen(recovery_action=None, ecc_errors=errors)

    worn = told(EccErrors(volatile=3))
    story = Story().look(worn).events(xid(95)).wait(1).look(worn).wait(1)
    story.look(told(None)).wait(1).looks_for(60, told(EccErrors(volatile=0)))
    assert story.reason() is None


def test_a_reset_that_shows_ends_what_the_driver_told_before_it() -> None:
    silent = {"recovery_action": None, "remapped_rows": None, "retired_pages_pending": None}
    worn = seen(recovery_action=1, remapped_rows=PENDING, ecc_errors=EccErrors(volatile=3))
    story = Story().look(worn).wait(1)
    story.looks_for(60, seen(ecc_errors=EccErrors(volatile=0), **silent))
    assert story.reason() is None


def test_a_reading_that_began_before_an_error_is_no_evidence_that_it_is_over() -> None:
    story = Story().look().wait(10).events(xid(95)).wait(1).look(took_s=2)
    assert story.wait(60).look().reason() == "Xid95"
    assert story.wait(60).look().reason() is None


def test_a_reset_that_a_reading_shows_was_no_later_than_it_began() -> None:
    def told(volatile: int) -> Snapshot:
        return seen(recovery_action=None, ecc_errors=EccErrors(volatile=volatile))

    story = Story().look(told(3)).wait(10).events(xid(95)).wait(1).look(told(0), took_s=2)
    assert story.looks_for(600, told(0)).reason() == "Xid95"
