"""Lists and allocations keep out of each other's way."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from nodetopo.errors import UnreadableError
from nodetopo.probes.kubelet.gate import RECORDED_S, RESERVED_S, AdmissionGate

LONG_S = 60.0


@contextmanager
def beside(work: Callable[[], None]) -> Iterator[None]:
    """Do *work* in another thread, which has ended at the end."""
    thread = threading.Thread(target=work)
    thread.start()
    yield
    thread.join(LONG_S)
    assert not thread.is_alive()


def test_a_list_waits_until_an_allocation_is_answered_and_recorded() -> None:
    gate, order = AdmissionGate(), list[str]()

    def lists() -> None:
        with gate.listing(LONG_S):
            order.append("listed")

    thread = threading.Thread(target=lists)
    with gate.allocating():
        thread.start()
        thread.join(RECORDED_S * 3)
        order.append("answered")
    thread.join(LONG_S)
    assert order == ["answered", "listed"]


def test_a_list_waits_for_what_was_chosen() -> None:
    now = [0.0]
    gate = AdmissionGate(lambda: now[0])
    gate.settle()
    with pytest.raises(UnreadableError, match="allocating devices for 0 s"), gate.listing(0):
        pass
    now[0] += RESERVED_S
    with gate.listing(0):  # no Allocate came
        pass


def test_reserved_devices_close_the_gate_before_the_choice() -> None:
    now = [0.0]
    gate = AdmissionGate(lambda: now[0])
    gate.reserved()
    with pytest.raises(UnreadableError), gate.listing(0):
        pass


def test_the_next_call_with_nothing_reserved_opens_the_gate() -> None:
    gate = AdmissionGate(lambda: 0.0)
    gate.settle()
    assert gate.open()
    with gate.listing(0):
        pass
    with gate.allocating():
        assert not gate.open()


def test_a_choice_waits_for_a_list_under_way_and_no_longer_than_it_may() -> None:
    gate, order = AdmissionGate(), list[str]()

    def chooses() -> None:
        gate.settle()
        order.append("chosen")

    with gate.listing(0), beside(chooses):
        pass  # never ends on its own: the choice goes on without it
    assert order == ["chosen"]


def test_an_allocation_that_fails_opens_the_gate_too() -> None:
    now = [0.0]
    gate = AdmissionGate(lambda: now[0])
    with pytest.raises(RuntimeError), gate.allocating():
        raise RuntimeError
    now[0] += RECORDED_S
    with gate.listing(0):
        pass
