"""The loop that evaluates the health checks, so that no scrape waits for them."""

from nodetopo.checks.waivers import Overrides
from nodetopo.components.audit.catalogue import HEALTH
from nodetopo.components.audit.check_terms import CheckSummary, OverridesFile, summarize
from nodetopo.kernel.loops import PeriodicLoop
from nodetopo.kernel.store import SnapshotStore
from nodetopo.outage import Outage

LOOK_S = 5.0
"""How often the loop looks for a new snapshot or other overrides."""


class HealthLoop(PeriodicLoop):
    """Evaluates the health checks; one thread runs it, any thread can read the results.

    Attributes:
        found: the results; ``None`` before the first.
    """

    def __init__(self, store: SnapshotStore, overrides: OverridesFile) -> None:
        """Evaluate nothing yet."""
        self._store = store
        self._overrides = overrides
        self._evaluated: tuple[int, Overrides] | None = None
        self._problem = Outage()
        self.found: CheckSummary | None = None

    def step(self) -> float:
        """Evaluate the checks where that gives another result."""
        try:
            self._evaluate()
        except Exception as error:  # noqa: BLE001 - a fault in a rule must not end the daemon
            self.found = None
            self._problem.raised("health not checked", error)
        else:
            self._problem.ended()
        return LOOK_S

    def _evaluate(self) -> None:
        current, overrides = self._store.current, self._overrides.current()
        if current is not None and self._evaluated != (current.generation, overrides):
            self.found = summarize(current.snapshot, HEALTH, overrides)
            self._evaluated = current.generation, overrides
