"""Keeps our lists of pods' devices away from allocations that the kubelet has not finished.

PodResources ``List`` refreshes the kubelet's record of devices in use: once a pod has ended, it is
rebuilt from what containers have, and lacks devices whose Allocate is not answered yet. The kubelet
then gives such a device to a second container (kubernetes 1.34.1, 1.36.3 and 1.37.1
pkg/kubelet/cm/devicemanager/manager.go, UpdateAllocatedDevices; docs/internals/kubelet-list.md).

So none of our threads lists between the moment when devices are chosen and the moment when the
kubelet has recorded them. One process has one kubelet, and so one gate: :data:`ADMISSIONS`.
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
"""How long after the answer to Allocate the kubelet may need to record it: its next statement."""

LISTED_S = 0.05
"""How long an answer to the kubelet waits for a list that is under way; lists take 1 to 20 ms."""


class AdmissionGate:
    """Tells lists when to wait; any thread can use it.

    *clock* returns seconds.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._changed = Condition()  # guards all below
        self._lists = 0
        self._allocations = 0
        self._closed_until = float("-inf")

    def reserved(self) -> None:
        """Note that the kubelet has reserved devices, and calls Allocate next."""
        with self._changed:
            self._closed_until = self._clock() + RESERVED_S

    def settle(self) -> None:
        """Close the gate for the devices that are chosen now, and wait for lists under way."""
        self.reserved()
        with self._changed:
            self._changed.wait_for(lambda: not self._lists, LISTED_S)

    def open(self) -> bool:
        """Note that the kubelet asks for a choice with nothing reserved: a list is safe now.

        It admits one pod at a time, so an earlier choice has become of use or not. Return whether
        no Allocate is under way, which cannot be with one kubelet.
        """
        with self._changed:
            self._closed_until = float("-inf")
            self._changed.notify_all()
            return not self._allocations

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
                self._closed_until = self._clock() + RECORDED_S
                self._changed.notify_all()

    @contextmanager
    def listing(self, limit_s: float) -> Iterator[None]:
        """Wait until nothing is being allocated, then keep choices waiting for the list.

        Raises:
            UnreadableError: the kubelet allocated devices all the time for *limit_s* seconds.
        """
        with self._changed:
            end = self._clock() + limit_s
            while (wait_s := self._wait_s(end)) > 0:
                self._changed.wait(wait_s)
            if self._wait_s(float("inf")) > 0:
                raise UnreadableError(
                    f"the kubelet has been allocating devices for {limit_s:g} s, when its list "
                    "must not be asked for",
                    "see whether Allocate of a device plugin hangs",
                )
            self._lists += 1
        try:
            yield
        finally:
            with self._changed:
                self._lists -= 1
                self._changed.notify_all()

    def _wait_s(self, end: float) -> float:
        """Return how long the gate stays closed, at most until *end*; the lock is held."""
        now = self._clock()
        left = self._closed_until - now
        if self._allocations:
            left = max(left, RECORDED_S)
        return min(left, end - now)


ADMISSIONS = AdmissionGate()
"""The gate of this process."""
