"""The loop that audits the node by the rules of ``nodetopo audit``, for metrics and the log."""

from collections.abc import Callable

import structlog
from msgspec.structs import replace

from nodetopo.components.audit.catalogue import AUDIT
from nodetopo.components.audit.check_terms import CheckSummary, OverridesFile, summarize
from nodetopo.errors import UnreadableError
from nodetopo.kernel.loops import PeriodicLoop
from nodetopo.kernel.running_pods import Published, RunningPods, kubelet_issue, listed_pods
from nodetopo.kernel.settings.own import KernelSettings, roots
from nodetopo.kernel.shown import ListedPods
from nodetopo.kernel.store import SnapshotStore
from nodetopo.model.snapshot import Snapshot
from nodetopo.outage import Outage
from nodetopo.probes.discover import with_audit_facts

AUDIT_S = 600.0
"""How often the node is audited. Settings change with a roll-out, or by hand; an audit costs 0.1 s
of CPU, the first 0.4 s."""


class AuditLoop(PeriodicLoop):
    """Audits the node; one thread runs it, any thread can read the result.

    It uses the node's readable facts. It does not ask the API server, so rules on requests of pods
    are ``unknown`` here.

    Attributes:
        found: the result of the last audit; ``None`` before the first and after a failure.
        listed: the pods of that audit; ``None`` if the kubelet did not list them.
    """

    def __init__(
        self,
        settings: KernelSettings,
        store: SnapshotStore,
        overrides: OverridesFile,
        *,
        read: Callable[[Snapshot], Snapshot] | None = None,
        published: Callable[[], Published] = lambda: None,
    ) -> None:
        """Audit nothing yet.

        Args:
            settings: locate the node's files.
            store: has the machine.
            overrides: severities and waivers.
            read: adds the facts that only audits need; ``None`` reads them by *settings*.
            published: returns the devices that DRA drivers publish for the node.
        """
        self._roots = roots(settings)
        self._store = store
        self._overrides = overrides
        self._pods = RunningPods(settings, published)
        self._read = read or self.with_audit_inputs
        self._problem = Outage()
        self.found: CheckSummary | None = None
        self.listed: ListedPods | None = None

    def step(self) -> float:
        """Audit once; return the seconds until the next audit."""
        current = self._store.current
        if current is None:
            return 1.0  # the first scan is still running
        log = structlog.get_logger()
        before = self.found
        try:
            snapshot = self._read(current.snapshot)
            found = summarize(snapshot, AUDIT, self._overrides.current())
        except Exception as error:  # noqa: BLE001 - a fault in a rule must not end the daemon
            self.found = self.listed = None
            self._problem.raised("node not audited", error)
            return AUDIT_S
        self._problem.ended()
        self.found, self.listed = found, listed_pods(snapshot)
        if before is None or found.broken != before.broken:
            log.info("node audited", broken=sorted(found.broken), **dict(found.counts))
        return AUDIT_S

    def close(self) -> None:
        """Close the connection to the kubelet."""
        self._pods.close()

    def with_audit_inputs(self, snapshot: Snapshot) -> Snapshot:
        """Return *snapshot* with the files that only audits need, and with the running pods."""
        whole = with_audit_facts(snapshot, self._roots)
        try:
            return self._pods.read_beside_state(whole)
        except UnreadableError as error:
            return replace(whole, issues=(*whole.issues, kubelet_issue(error)))
