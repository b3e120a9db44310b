"""Labels of the Node that ask for a free driver, as the daemon takes them."""

from datetime import UTC, datetime

from nodetopo.components.gpus.driver_pause import LONG_S, DriverPause
from nodetopo.model.operator_labels import MIG_STATE, UPGRADE_STATE

AT = datetime(2026, 11, 25, 22, 30, tzinfo=UTC)


class Clock:
    """Seconds that a test sets."""

    now = 0.0

    def __call__(self) -> float:
        """Return them."""
        return self.now


def node(**labels: str) -> dict[str, dict[str, str]]:
    return {"labels": dict(labels)}


def pause(clock: Clock | None = None) -> tuple[DriverPause, list[str]]:
    """Return a pause, and a list that grows with each change."""
    changes: list[str] = []
    made = DriverPause(clock or Clock(), lambda: AT)
    made.on_change = lambda: changes.append("changed")
    return made, changes


def reasons(made: DriverPause) -> list[tuple[str, bool]]:
    return [(notice.reason, notice.is_warning) for notice in made.notices()]


def test_a_pause_begins_and_ends_with_its_label() -> None:
    made, changes = pause()
    assert (made.claim, made.text) == (None, None)
    made.note(node(**{MIG_STATE: "pending"}))
    assert made.claim == "nvidia.com/mig.config.state=pending"
    assert made.text == (
        "nvidia.com/mig.config.state=pending has requested a free driver since 2026-11-25 22:30 UTC"
    )
    made.note(node())
    assert [made.claim, made.text] == [None, None]
    assert changes == ["changed"] * 2
    assert reasons(made) == [("DriverPaused", False), ("DriverResumed", False)]


def test_another_label_goes_on_with_the_same_pause() -> None:
    made, changes = pause()
    made.note(node(**{UPGRADE_STATE: "drain-required"}))
    made.note(node(**{UPGRADE_STATE: "pod-restart-required"}))
    assert made.claim == f"{UPGRADE_STATE}=pod-restart-required"
    assert changes == ["changed"]
    assert reasons(made) == [("DriverPaused", False)]


def test_a_node_that_is_gone_changes_nothing() -> None:
    made, _ = pause()
    made.note(node(**{MIG_STATE: "pending"}))
    made.note(None)
    assert made.claim is not None


def test_a_long_pause_is_a_warning_once_in_each_hour() -> None:
    clock = Clock()
    made, _ = pause(clock)
    made.note(node(**{UPGRADE_STATE: "upgrade-failed"}))
    assert reasons(made) == [("DriverPaused", False)]
    clock.now = LONG_S - 1
    assert reasons(made) == []
    clock.now = LONG_S
    assert reasons(made) == [("DriverPausedLong", True)]
    assert reasons(made) == []
    clock.now = 2 * LONG_S
    assert reasons(made) == [("DriverPausedLong", True)]
