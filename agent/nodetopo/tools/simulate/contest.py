"""Compares policies, ours and other allocators', on one machine with the same jobs."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import exp
from types import MappingProxyType

from nodetopo.allocation.engines import engine_for
from nodetopo.allocation.facts import facts
from nodetopo.allocation.masks import bits, positions
from nodetopo.allocation.remainder import Later, later_masks
from nodetopo.allocation.rules import Model, Policy, Rules
from nodetopo.allocation.terms import Terms
from nodetopo.errors import InputError
from nodetopo.model.snapshot import Snapshot
from nodetopo.tools.simulate.jobs import Step, Uniform, normal
from nodetopo.tools.simulate.outcome import Outcome
from nodetopo.tools.simulate.replay import Placer, replay
from nodetopo.tools.simulate.rivals import RIVALS, Chooser
from nodetopo.tools.simulate.yardstick import Yardstick

OURS = tuple(policy.value for policy in Policy)

NOISE = 1.0
"""Of the noisy run times, the standard deviation of their logarithm: two of three are between
0.37 and 2.7 times the true one. A choice: people's limits and histories are no better."""

EXPECTING: Mapping[str, float] = MappingProxyType({"best-ends": 0.0, "best-ends-noisy": NOISE})
"""``best`` where run times are expected, by name, with their noise."""

POLICIES = (*OURS, *EXPECTING, *RIVALS)
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
        self._best = Ours(snapshot, Rules(policy=Policy.BEST, model=model))

    def run(self, policy: str, steps: Sequence[Step], source: Uniform) -> Outcome:
        """Return the outcome of *policy* for the jobs of *steps*; *source* is for its draws.

        Raises:
            InputError: the policy cannot run on this machine.
        """
        if policy in EXPECTING:
            held: dict[int, int] = {}
            ends = expected_ends(steps, EXPECTING[policy], source)
            return replay(steps, Expecting(self._best, held, ends), self.yardstick, held)
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
        self._known: dict[tuple[int, int, Later], int] = {}

    def place(self, free: int, size: int, later: Later = ()) -> int:
        """Return the set of *size* within *free*; both are masks of positions."""
        chosen = self._known.get((free, size, later))
        if chosen is None:
            chosen = self._engine.best(free=free, required=0, size=size, later=later)
            self._known[free, size, later] = chosen
        return chosen


class Expecting:
    """Our policy with known ends of the running jobs, but not of the new job."""

    crashes = 0

    def __init__(self, policy: Ours, held: Mapping[int, int], ends: Mapping[int, float]) -> None:
        """Place by *policy*; *held* are the GPUs of each running job, *ends* when each ends."""
        self._policy = policy
        self._held = held
        self._ends = ends

    def place(self, free: int, size: int) -> int:
        """Return the set of *size* within *free*; both are masks of positions."""
        ends = {gpu: self._ends[job] for job, mask in self._held.items() for gpu in bits(mask)}
        return self._policy.place(free, size, later_masks(ends))


def expected_ends(steps: Iterable[Step], noise: float, source: Uniform) -> dict[int, float]:
    """Return when each job is expected to end, seconds: its start, and its run time with *noise*.

    The factor is log-normal, and *noise* the standard deviation of its logarithm.
    """
    ends: dict[int, float] = {}
    for at_s, job, _, is_start in steps:
        if is_start:
            ends[job] = at_s
        else:
            factor = exp(noise * normal(source)) if noise else 1.0
            ends[job] += (at_s - ends[job]) * factor
    return ends


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
