"""Keeps our lists of pods' devices away from allocations that the kubelet has not finished.

PodResources ``List`` refreshes the kubelet's record of devices in use: once a pod has ended, it is
rebuilt from what containers have, and lacks devices whose Allocate is not answered yet. The kubelet
then gives such a device to a second container (kubernetes 1.34.1, 1.36.3 and 1.37.1
pkg/kubelet/cm/devicemanager/manager.go, UpdateAllocatedDevices; docs/internals/kubelet-list.md).

So the daemon sends no list between the choice of devices and the kubelet's record of them. A client
that hangs up does not take a list back, and a kubelet without a CPU makes no progress in any time.
Two rules follow:

- a choice is answered only after the kubelet has ended every list that was sent;
- after a choice or an Allocate, a list is sent only to a kubelet that has answered another
  question since.

One process has one kubelet, and so one gate: :data:`ADMISSIONS`.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Condition
from time import monotonic

from nodetopo.errors import UnreadableError

RESERVED_S = 1.0
"""How long chosen devices wait for their Allocate: the kubelet calls it next, in the same function.
Without one, because another check failed, nothing is reserved any more."""

RECORDED_S = 0.1
"""How long a running kubelet may need for its next statement: to record the answer to Allocate."""

REPORT_S = 5.0
"""How often a choice that waits for a list reports it."""


class AdmissionGate:
    """Tells lists when to wait; any thread can use it.

    *clock* returns seconds.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._changed = Condition()  # guards all below
        self._lists = 0
        self._choices = 0
        self._allocations = 0
        self._closed_until = float("-inf")
        self._answers = 0  # choices and Allocates
        self._answers_seen = 0  # those that the kubelet has got since, as it answered a question

    @contextmanager
    def choosing(self, *, is_reserved: bool, waits: Callable[[float], None]) -> Iterator[None]:
        """Choose devices, which are answered at the end: then every list has ended.

        Args:
            is_reserved: whether the kubelet holds devices for the container already.
            waits: called every :data:`REPORT_S` while a list keeps the answer waiting, with the
                seconds waited so far. The kubelet sets no deadline.
        """
        with self._changed:
            self._choices += 1
            self._allocations += is_reserved  # under way already
        try:
            yield
        finally:
            with self._changed:
                self._choices -= 1
                self._allocations -= is_reserved
                began = self._clock()
                self._close(float("inf"))
                try:
                    while not self._changed.wait_for(lambda: not self._lists, REPORT_S):
                        waits(self._clock() - began)
                finally:  # an error answers the kubelet too: nothing is reserved then
                    self._close(RESERVED_S)

    @contextmanager
    def asking(self) -> Iterator[bool]:
        """Hold a choice's answer back for a list inside the call; say whether that list is safe.

        It is while the choice is not answered: nothing is reserved then. The kubelet admits one pod
        at a time, so earlier choices have come to an end, and other lists need not wait either.
        """
        with self._changed:
            is_safe = bool(self._choices) and not self._allocations
            if is_safe:
                self._closed_until = float("-inf")
                self._changed.notify_all()
                self._lists += 1
        try:
            yield is_safe
        finally:
            if is_safe:
                self.ended()

    @contextmanager
    def allocating(self) -> Iterator[None]:
        """Keep lists away while an Allocate is answered, and until the kubelet has recorded it."""
        with self._changed:
            self._allocations += 1
        try:
            yield
        finally:
            with self._changed:
                self._allocations -= 1
                self._close(RECORDED_S)

    def begin(self, limit_s: float, prove: Callable[[], object]) -> None:
        """Wait until a list is safe, then keep choices waiting until :meth:`ended`.

        Lists come one at a time: of a kubelet that answers none, one at most is under way.

        Args:
            limit_s: the longest wait.
            prove: asks the kubelet something else; returns once it has answered.

        Raises:
            UnreadableError: the kubelet allocated devices, or listed, all the time; or *prove*
                raised it.
        """
        end = self._clock() + limit_s
        while True:
            with self._changed:
                while (wait_s := self._wait_s()) > 0:
                    if (left_s := end - self._clock()) <= 0:
                        raise self._busy(limit_s)
                    self._changed.wait(min(wait_s, left_s))
                answers = self._answers
                if answers == self._answers_seen:
                    self._lists += 1
                    return
            prove()
            with self._changed:
                if answers == self._answers:
                    self._answers_seen = answers
                    self._closed_until = self._clock() + RECORDED_S

    def ended(self) -> None:
        """Note that the kubelet has ended a list, or that none was sent after :meth:`begin`."""
        with self._changed:
            self._lists -= 1
            self._changed.notify_all()

    def _close(self, seconds: float) -> None:
        """Close the gate after an answer to the kubelet, or before one; the lock is held."""
        self._answers += 1
        self._closed_until = self._clock() + seconds
        self._changed.notify_all()

    def _wait_s(self) -> float:
        """Return the seconds until a list can be sent, infinite if unknown; the lock is held."""
        if self._lists or self._allocations:
            return float("inf")
        return self._closed_until - self._clock()

    def _busy(self, limit_s: float) -> UnreadableError:
        """Return why no list was safe for *limit_s* seconds; the lock is held."""
        if self._lists:
            return UnreadableError(
                f"the kubelet has not answered an earlier list for {limit_s:g} s",
                "see whether the kubelet is overloaded or stopped",
            )
        if not self._allocations and self._answers == self._answers_seen:
            return UnreadableError(
                f"the kubelet took nearly {limit_s:g} s for a first answer",
                "see whether the kubelet is overloaded",
            )
        return UnreadableError(
            f"the kubelet has been allocating devices for {limit_s:g} s, when its list "
            "must not be asked for",
            "see whether Allocate of a device plugin hangs",
        )


ADMISSIONS = AdmissionGate()
"""The gate of this process."""
