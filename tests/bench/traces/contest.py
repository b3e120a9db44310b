"""Compares policies, ours and other allocators', on one machine with the same jobs."""

from collections.abc import Callable, Iterable, Sequence

from nodetopo.allocation.engines import engine_for
from nodetopo.allocation.facts import facts
from nodetopo.allocation.masks import positions
from nodetopo.allocation.rules import Model, Policy, Rules
from nodetopo.allocation.terms import Terms
from nodetopo.errors import InputError
from nodetopo.model.snapshot import Snapshot
from tests.bench.traces.jobs import Step, Uniform
from tests.bench.traces.outcome import Outcome
from tests.bench.traces.replay import Placer, replay
from tests.bench.traces.rivals import RIVALS, Chooser
from tests.bench.traces.yardstick import Yardstick

OURS = tuple(policy.value for policy in Policy)

POLICIES = (*OURS, *RIVALS)
"""Every name that :class:`Contest` takes."""


class Contest:
    """Run *policies* on the machine of *snapshot*; *model* gives the bandwidth for all of them."""

    def __init__(self, snapshot: Snapshot, policies: Iterable[str], model: Model) -> None:
        self._snapshot = snapshot
        self.policies = tuple(policies)
        self.yardstick = Yardstick(snapshot, model)
        self._ours = {
            name: Ours(snapshot, Rules(policy=Policy(name), model=model))
            for name in self.policies
            if name in OURS
        }

    def run(self, policy: str, steps: Sequence[Step], source: Uniform) -> Outcome:
        """Return the outcome of *policy* for the jobs of *steps*; *source* is for its draws.

        Raises:
            InputError: the policy cannot run on this machine.
        """
        placer: Placer = self._ours.get(policy) or Rival(RIVALS[policy](self._snapshot, source))
        return replay(steps, placer, self.yardstick)


def obstacle(policy: str, snapshot: Snapshot, source: Callable[[], Uniform]) -> str | None:
    """Return why *policy* cannot run on this machine; ``None`` where it can."""
    try:
        if policy in RIVALS:
            RIVALS[policy](snapshot, source())
    except InputError as error:
        return error.cause
    return None


class Ours:
    """One of our policies on one machine; every answer is computed once."""

    crashes = 0

    def __init__(self, snapshot: Snapshot, rules: Rules) -> None:
        self._engine = engine_for(Terms(facts(snapshot), rules))
        self._known: dict[tuple[int, int], int] = {}

    def place(self, free: int, size: int) -> int:
        """Return the set of *size* within *free*; both are masks of positions."""
        chosen = self._known.get((free, size))
        if chosen is None:
            chosen = self._engine.best(free=free, required=0, size=size)
            self._known[free, size] = chosen
        return chosen


class Rival:
    """The policy of another allocator on one machine."""

    def __init__(self, chooser: Chooser) -> None:
        self._chooser = chooser

    @property
    def crashes(self) -> int:
        """How many answers would have crashed the original program."""
        return self._chooser.crashes

    def place(self, free: int, size: int) -> int:
        """Return the set of *size* within *free*; both are masks of positions."""
        return sum(1 << chosen for chosen in self._chooser(positions(free), size))
