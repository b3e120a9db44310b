"""Our own policies as the replay sees them."""

from agent.allocation.engines import choose
from agent.allocation.facts import facts
from agent.allocation.rules import Rules
from agent.model.snapshot import Snapshot


class Ours:
    """One policy on one machine; every answer is worked out once."""

    crashes = 0

    def __init__(self, snapshot: Snapshot, rules: Rules) -> None:
        self._engine = choose(facts(snapshot), rules)
        self._known: dict[tuple[int, int], int] = {}

    def place(self, free: int, size: int) -> int:
        """Return the set of *size* within *free*; both are masks of positions."""
        chosen = self._known.get((free, size))
        if chosen is None:
            chosen = self._engine.best(free=free, required=0, size=size)
            self._known[free, size] = chosen
        return chosen
