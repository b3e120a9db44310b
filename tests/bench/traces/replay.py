"""One policy on one schedule of jobs."""

from collections import Counter
from collections.abc import Sequence
from typing import Protocol

from tests.bench.traces.jobs import Step
from tests.bench.traces.outcome import Choice, Outcome, outcome
from tests.bench.traces.yardstick import Yardstick


class Placer(Protocol):
    """A way to choose GPUs; masks are of positions among the snapshot's GPUs."""

    @property
    def crashes(self) -> int:
        """How many answers so far would have crashed the original program."""
        ...

    def place(self, free: int, size: int) -> int:
        """Return *size* GPUs of *free*."""
        ...


def replay(steps: Sequence[Step], placer: Placer, yardstick: Yardstick) -> Outcome:
    """Return the outcome of *placer* for the jobs of *steps* on an empty machine.

    Raises:
        ValueError: it chose GPUs that are in use, or not as many as requested.
    """
    free = yardstick.everyone
    held: dict[int, int] = {}
    choices: Counter[Choice] = Counter()
    seconds_free: dict[int, float] = {}
    before_s = steps[0].at_s if steps else 0.0
    for at_s, job, gpus, is_start in steps:
        seconds_free[free] = seconds_free.get(free, 0.0) + at_s - before_s
        before_s = at_s
        if not is_start:
            free |= held.pop(job)
            continue
        chosen = placer.place(free, gpus)
        if chosen & ~free or chosen.bit_count() != gpus:
            raise ValueError(f"{gpus} of {free:#x}: chose {chosen:#x}")
        choices[free, chosen] += 1
        held[job] = chosen
        free ^= chosen
    return outcome(choices, seconds_free, placer.crashes, yardstick)
