"""Lists and allocations keep out of each other's way."""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

from nodetopo.errors import UnreadableError
from nodetopo.probes.kubelet import gate as module
from nodetopo.probes.kubelet.gate import RECORDED_S, RESERVED_S, AdmissionGate

LONG_S = 60.0


def proved() -> None:
    """Answer as a kubelet that runs."""


def stopped() -> None:
    """Answer as a kubelet that gets no CPU."""
    raise UnreadableError("no answer", "wait")


def ignored(_: float) -> None:
    """Report nothing."""


@contextmanager
def in_thread(work: Callable[[], None]) -> Iterator[threading.Thread]:
    """Do *work* in another thread, which has ended at the end."""
    thread = threading.Thread(target=work)
    thread.start()
    yield thread
    thread.join(LONG_S)
    assert not thread.is_alive()


class Clocked:
    """A gate whose time the test tells."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.gate = AdmissionGate(lambda: self.now_s)

    def choose(self, *, is_reserved: bool = False) -> AbstractContextManager[None]:
        """Choose devices, and answer."""
        return self.gate.choosing(is_reserved=is_reserved, waits=ignored)

    def list(self, prove: Callable[[], object] = proved) -> None:
        """List at once, or raise UnreadableError."""
        self.gate.begin(0, prove)
        self.gate.ended()

    def list_later(self) -> None:
        """List once the kubelet has answered a question, and time for a statement has passed."""
        with pytest.raises(UnreadableError):
            self.list()
        self.now_s += RECORDED_S
        self.list()


@pytest.fixture
def clocked() -> Clocked:
    return Clocked()


def test_a_list_waits_until_an_allocation_is_answered() -> None:
    gate, order = AdmissionGate(), list[str]()

    def lists() -> None:
        gate.begin(LONG_S, proved)
        order.append("listed")
        gate.ended()

    thread = threading.Thread(target=lists)
    with gate.allocating():
        thread.start()
        thread.join(RECORDED_S * 3)
        order.append("answered")
    thread.join(LONG_S)
    assert order == ["answered", "listed"]


def test_a_list_after_an_allocation_waits_for_a_kubelet_that_answers_something(
    clocked: Clocked,
) -> None:
    with clocked.gate.allocating():
        pass
    clocked.now_s += LONG_S  # a kubelet without a CPU has recorded nothing, whatever the time
    with pytest.raises(UnreadableError, match="no answer"):
        clocked.list(stopped)
    clocked.list_later()
    clocked.list(stopped)  # once is enough


def test_a_list_waits_for_what_was_chosen(clocked: Clocked) -> None:
    with clocked.choose():
        pass
    with pytest.raises(UnreadableError, match="allocating devices for 0 s"):
        clocked.list()
    clocked.now_s += RESERVED_S  # no Allocate came
    clocked.list_later()


def test_an_allocate_that_comes_during_the_question_makes_it_worthless(clocked: Clocked) -> None:
    def prove() -> None:
        with clocked.gate.allocating():
            pass

    with clocked.choose():
        pass
    clocked.now_s += RESERVED_S
    with pytest.raises(UnreadableError):
        clocked.list(prove)
    clocked.now_s += RECORDED_S
    with pytest.raises(UnreadableError, match="no answer"):
        clocked.list(stopped)


def test_reserved_devices_close_the_gate_before_the_choice(clocked: Clocked) -> None:
    with clocked.choose(is_reserved=True):
        clocked.now_s += LONG_S  # however long the choice takes
        with pytest.raises(UnreadableError):
            clocked.list()
        with clocked.gate.asking() as is_safe:
            assert not is_safe


def test_a_list_inside_a_call_opens_the_gate_and_is_waited_for(clocked: Clocked) -> None:
    with clocked.choose():
        pass
    with clocked.choose():
        with clocked.gate.asking() as is_safe:
            assert is_safe
            with pytest.raises(UnreadableError, match="earlier list"):
                clocked.list()
        clocked.list_later()


def test_a_list_inside_a_call_is_refused_during_an_allocate(clocked: Clocked) -> None:
    with clocked.choose(), clocked.gate.allocating(), clocked.gate.asking() as is_safe:
        assert not is_safe


def test_a_list_of_a_call_that_was_answered_is_refused(clocked: Clocked) -> None:
    """A thread that got no CPU until then must neither list nor open the gate."""
    with clocked.choose():
        pass
    with clocked.gate.asking() as is_safe:
        assert not is_safe
    with pytest.raises(UnreadableError):
        clocked.list()


def test_a_choice_waits_for_a_list_however_long_and_reports_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "REPORT_S", 0.01)
    gate, order, has_reported = AdmissionGate(), list[str](), threading.Event()

    def chooses() -> None:
        with gate.choosing(is_reserved=False, waits=lambda _: has_reported.set()):
            pass
        order.append("chosen")

    gate.begin(0, proved)
    with in_thread(chooses):
        assert has_reported.wait(LONG_S)
        order.append("ended")
        gate.ended()
    assert order == ["ended", "chosen"]


def test_no_list_begins_while_a_choice_waits_for_another(clocked: Clocked) -> None:
    clocked.gate.begin(0, proved)
    with pytest.raises(UnreadableError, match="not answered an earlier list for 0 s"):
        clocked.list()
    clocked.gate.ended()
    clocked.list()


def test_an_allocation_that_fails_opens_the_gate_too(clocked: Clocked) -> None:
    with pytest.raises(RuntimeError), clocked.gate.allocating():
        raise RuntimeError
    clocked.now_s += RECORDED_S
    clocked.list_later()


def test_a_report_that_fails_leaves_the_gate_as_any_answer_does(
    clocked: Clocked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "REPORT_S", 0.01)
    clocked.gate.begin(0, proved)
    failing = clocked.gate.choosing(is_reserved=False, waits=_fails)
    with pytest.raises(ZeroDivisionError), failing:
        pass
    clocked.gate.ended()
    clocked.now_s += RESERVED_S
    clocked.list_later()


def test_a_slow_proof_is_not_taken_for_an_allocation(clocked: Clocked) -> None:
    with clocked.gate.allocating():
        pass
    clocked.now_s += RECORDED_S
    with pytest.raises(UnreadableError, match="for a first answer"):
        clocked.list()


def _fails(_: float) -> None:
    raise ZeroDivisionError
