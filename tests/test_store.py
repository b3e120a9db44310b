"""The store: whole values, generations that mean change, waiters that always wake."""

import threading
from datetime import UTC, datetime

from msgspec.structs import replace

from nodetopo.kernel.store import SnapshotStore, Versioned
from nodetopo.machines.bundled import machine

NODE = machine("l40s-pcie-4")


def test_a_new_store_has_no_snapshot() -> None:
    assert SnapshotStore().current is None


def test_publishing_a_change_raises_the_generation() -> None:
    store = SnapshotStore()
    assert [store.publish(NODE), store.publish(replace(NODE, node="other"))] == [1, 2]


def test_a_later_capture_of_the_same_facts_keeps_the_generation_and_the_newer_time() -> None:
    store = SnapshotStore()
    store.publish(NODE)
    later = replace(NODE, captured_at=datetime(2030, 1, 1, tzinfo=UTC))
    assert store.publish(later) == 1
    assert store.current == Versioned(later, 1)


def test_waiting_returns_a_generation_published_before() -> None:
    store = SnapshotStore()
    store.publish(NODE)
    assert store.wait(after=0, timeout_s=0) == Versioned(NODE, 1)


def test_waiting_wakes_on_the_next_change() -> None:
    store = SnapshotStore()
    store.publish(NODE)
    found: list[Versioned | None] = []
    waiter = threading.Thread(target=lambda: found.append(store.wait(after=1, timeout_s=60)))
    waiter.start()
    changed = replace(NODE, node="other")
    store.publish(changed)
    waiter.join(120)
    assert found == [Versioned(changed, 2)]


def test_waiting_gives_up_after_its_time() -> None:
    assert SnapshotStore().wait(after=0, timeout_s=0.01) is None


def test_closing_wakes_waiters_without_a_snapshot() -> None:
    store = SnapshotStore()
    found: list[Versioned | None] = [Versioned(NODE, 99)]
    waiter = threading.Thread(target=lambda: found.append(store.wait(after=0, timeout_s=60)))
    waiter.start()
    store.close()
    waiter.join(120)
    assert found[1:] == [None]
