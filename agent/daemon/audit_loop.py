"""The loop that judges the node by the rules of ``nodetopo audit``, for metrics and the log."""

import threading
from collections.abc import Callable
from dataclasses import replace

import structlog

from agent.config.settings import Settings, roots
from agent.daemon.check_terms import Judged, TermsFile, judged
from agent.daemon.running_pods import HeldPods, unanswered
from agent.errors import UnreadableError
from agent.model.snapshot import Snapshot
from agent.probes.discover import with_audit_facts
from agent.store import SnapshotStore

AUDIT_S = 600.0
"""How often the node is judged. Settings change with a roll-out, or by hand; a look costs 0.1 s of
CPU, the first 0.4 s."""


class NodeAudit:
    """Judges the node; one thread runs it, any may read what it found.

    It knows what the agent may read on the node. What the API server alone tells, as the requests
    of pods, it does not ask for: rules on that are ``unknown`` here.

    Attributes:
        found: what the last look found; ``None`` before the first, and where it failed.
    """

    def __init__(
        self,
        settings: Settings,
        store: SnapshotStore,
        terms: TermsFile,
        *,
        read: Callable[[Snapshot], Snapshot] | None = None,
    ) -> None:
        """Begin with nothing judged.

        Args:
            settings: where the node's files are.
            store: where the machine comes from.
            terms: severities and waivers.
            read: completes a snapshot by what only audits need; ``None``: from *settings*.
        """
        self._roots = roots(settings)
        self._store = store
        self._terms = terms
        self._held = HeldPods(settings)
        self._read = read or self._whole
        self._problem: str | None = None
        self.found: Judged | None = None

    def run(self, stopping: threading.Event) -> None:
        """Judge until *stopping* is set."""
        while not stopping.is_set():
            stopping.wait(self.step())
        self._held.close()

    def step(self) -> float:
        """Judge once; return the seconds until the next look."""
        current = self._store.current
        if current is None:
            return 1.0  # the first scan goes on
        from agent.checks.catalogue import AUDIT  # noqa: PLC0415 - 0.4 s of CPU, after GPUs

        try:
            self._take(judged(self._read(current.snapshot), AUDIT, self._terms.terms()))
        except Exception as error:  # noqa: BLE001 - a file of anybody's must not end what offers GPUs
            self._failed(error)
        return AUDIT_S

    def _failed(self, error: Exception) -> None:
        """Know nothing until the next look; a problem that lasts is told of once."""
        problem = repr(error)
        if problem != self._problem:
            log = structlog.get_logger()
            log.error("node not audited: a bug of ours", problem=problem, exc_info=error)
        self.found, self._problem = None, problem

    def _take(self, found: Judged) -> None:
        before = None if self.found is None else self.found.broken
        self.found, self._problem = found, None
        if found.broken != before:
            structlog.get_logger().info(
                "node audited", broken=sorted(found.broken), **dict(found.counts)
            )

    def _whole(self, snapshot: Snapshot) -> Snapshot:
        whole = with_audit_facts(snapshot, self._roots)
        try:
            return self._held.beside_state(whole)
        except UnreadableError as error:
            return replace(whole, issues=(*whole.issues, unanswered(error)))
