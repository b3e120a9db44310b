"""When each loop of the daemon last came around, for liveness."""

import time


class Beats:
    """Loops tell that they live; any thread may."""

    def __init__(self) -> None:
        """Know of no loop."""
        self._last: dict[str, float] = {}

    def beat(self, loop: str) -> None:
        """Note that *loop* came around now."""
        self._last[loop] = time.monotonic()

    def silence_s(self) -> float:
        """Return for how long the slowest of the loops has not come around; 0 before the first."""
        beats = tuple(self._last.values())  # other threads add to it
        return time.monotonic() - min(beats) if beats else 0.0
