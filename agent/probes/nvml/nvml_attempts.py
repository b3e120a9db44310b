"""How often NVML failed to give a reading, and how long it is left alone for it."""

from collections.abc import Callable
from dataclasses import replace

from agent.errors import NvmlUnavailable
from agent.model.nvml_event import NvmlStatus, NvmlTrouble

FIRST_DELAY_S = 1.0
"""Wait before the second attempt; doubles with every failure in a row."""

MAX_DELAY_S = 60.0
"""Longest wait between attempts; a driver that comes back is noticed within it."""

_NO_LIBRARY = (12, 13)
"""``NVML_ERROR_LIBRARY_NOT_FOUND``, and ``…FUNCTION_NOT_FOUND`` for what every driver has."""


class Attempts:
    """Keeps the account of attempts; :attr:`status` may be read by any thread.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._delay_s = FIRST_DELAY_S
        self._not_before = float("-inf")
        self._last: NvmlUnavailable | None = None
        self.status = NvmlStatus()

    def check(self) -> None:
        """Raise again what was raised last while NVML is left alone for it; counts as nothing."""
        wait = self._not_before - self._clock()
        if wait <= 0 or self._last is None:
            return
        # The cause stays as it is: it goes into snapshots, which must not differ by the seconds
        # that are left.
        cure = f"{self._last.cure}; next attempt in {wait:.0f} s"
        raise NvmlUnavailable(self._last.cause, cure, code=self._last.code)

    def succeeded(self) -> None:
        """There is a reading."""
        self._delay_s = FIRST_DELAY_S
        self.status = NvmlStatus()

    def refused(self, error: NvmlUnavailable) -> NvmlUnavailable:
        """Return *error* after :meth:`failed`, its trouble told by its code."""
        has_library = error.code not in _NO_LIBRARY
        trouble = NvmlTrouble.REFUSED if has_library else NvmlTrouble.NO_LIBRARY
        self.failed(trouble, error)
        if has_library:
            self.status = replace(self.status, code=error.code)
        return error

    def failed(self, trouble: NvmlTrouble, error: NvmlUnavailable) -> NvmlUnavailable:
        """Count a failure, leave NVML alone for a while, return *error*."""
        self.missed(trouble, error)
        self._last = error
        self._not_before = self._clock() + self._delay_s
        self._delay_s = min(MAX_DELAY_S, self._delay_s * 2)
        return error

    def missed(self, trouble: NvmlTrouble, error: NvmlUnavailable) -> NvmlUnavailable:
        """Count a failure that cost nothing, so that the next attempt need not wait."""
        self.status = NvmlStatus(
            trouble=trouble, failures=self.status.failures + 1, cause=error.cause
        )
        return error
