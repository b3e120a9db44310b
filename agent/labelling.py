"""Keep the Node's labels as the latest snapshot has them."""

import threading

import structlog

from agent.config.settings import Settings
from agent.errors import ApiUnavailable, InputError
from agent.labels.catalogue import is_complete, labels
from agent.publish.node_labels import NodeLabelPublisher
from agent.publish.retry_pause import RetryPause
from agent.store import SnapshotStore, Versioned

RECHECK_S = 300.0
"""Re-read the Node this often to put back labels that somebody removed: the budget is one read
per node in five minutes."""

RETRY_S = (1.0, 300.0)
"""First and longest pause after the API server refused, doubled in between, full jitter."""


class Labelling:
    """Publishes what the store holds; one thread runs it, any may read its counters."""

    def __init__(self, settings: Settings, store: SnapshotStore) -> None:
        self._publisher = NodeLabelPublisher(settings.kubeconfig, settings.node_name)
        self._store = store
        self.writes = 0
        self.errors = 0

    def run(self, stopping: threading.Event) -> None:
        """Publish each new snapshot, and now and then the last one again."""
        first_s, last_s = RETRY_S
        generation, pause = 0, RetryPause(first_s, last_s, least_s=first_s)
        while not stopping.is_set():
            current = self._store.wait(generation, RECHECK_S) or self._store.current
            if current is None or stopping.is_set():
                continue
            try:
                self._publish(current)
            except (ApiUnavailable, InputError) as error:
                self.errors += 1
                structlog.get_logger().warning("labels not published", error=str(error))
                stopping.wait(pause.next_s(getattr(error, "retry_after_s", None)))
            else:
                generation = current.generation
                pause.reset()

    def _publish(self, current: Versioned) -> None:
        wanted = labels(current.snapshot)
        if not wanted:
            return  # nothing was read yet, which proves nothing
        if self._publisher.publish(wanted, complete=is_complete(current.snapshot)):
            self.writes += 1
            log = structlog.get_logger()
            log.info("labels published", labels=len(wanted), generation=current.generation)
