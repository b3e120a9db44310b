"""Keep every output of labels as the latest snapshot has them."""

import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from agent.config.settings import Settings
from agent.kubeapi.node_watch import NodeWatch
from agent.labels.catalogue import is_complete
from agent.model.snapshot import Snapshot
from agent.publish.labels.label_wish import LabelWish
from agent.publish.labels.output import LabelOutput
from agent.publish.labels.pacing import START_S, Clock, LabelLane, Spread, at_once
from agent.store import SnapshotStore

LOOK_S = 2.0
"""How often there is a look at what a watch saw, and for a second scan that proves an absence;
neither asks anybody. Changes that come together are written together, too."""


class Wishes(Protocol):
    """Desired labels of a snapshot; see :mod:`agent.daemon.label_wishes`."""

    @property
    def needs_node(self) -> bool:
        """Whether the labels of the Node matter."""

    def note(self, node_labels: Mapping[str, str], /) -> None:
        """Take the labels of the Node; any thread."""

    def is_news(self, snapshot: Snapshot, /) -> bool:
        """Tell whether :meth:`of` may return something else than the last time."""

    def of(self, snapshot: Snapshot, /) -> LabelWish:
        """Return what to publish."""


class Labelling:
    """Publishes what the store holds; one thread runs it, any may read its counters."""

    def __init__(
        self,
        settings: Settings,
        store: SnapshotStore,
        *,
        outputs: Sequence[LabelOutput],
        wishes: Wishes,
        watch: NodeWatch | None = None,
        clock: Clock = time.monotonic,
        spread: Spread = random.uniform,
    ) -> None:
        """Begin with nothing published.

        Args:
            settings: which Node, and how to reach it.
            store: where snapshots come from.
            outputs: where labels go.
            wishes: which labels a snapshot makes.
            watch: of the Node, if there is one that runs already.
            clock: for pauses.
            spread: by chance; with ``settings.once`` nothing waits.
        """
        spread = at_once if settings.once else spread
        self._is_once = settings.once
        self._clock = clock
        self._watch_from = clock() + spread(0.0, START_S)
        self._is_watched = watch is not None
        self._watch = watch or NodeWatch(settings.kubeconfig, settings.node_name)
        self._lanes = tuple(
            LabelLane(one, clock=clock, spread=spread, is_followed=self._is_followed(one))
            for one in outputs
        )
        self._store = store
        self._wishes = wishes
        self._wish = LabelWish()
        self._evidence = Evidence()
        self._generation = 0
        self._uid: str | None = None
        self._watch.subscribe(self._note)  # the last: a watch that runs tells at once

    @property
    def watch(self) -> NodeWatch:
        """What follows the Node; it may not run yet."""
        return self._watch

    @property
    def writes(self) -> int:
        """How many writes were made, to all outputs."""
        return sum(lane.writes for lane in self._lanes)

    @property
    def errors(self) -> int:
        """How many attempts failed, of all outputs."""
        return sum(lane.errors for lane in self._lanes)

    @property
    def refused(self) -> int:
        """How many labels were kept back, because an output would not take them."""
        return sum(len(lane.output.refused) for lane in self._lanes)

    def run(self, stopping: threading.Event) -> None:
        """Publish what is new, and put back what others change, until *stopping* is set."""
        while not stopping.is_set():
            self._store.wait(self._generation, min(self.step(), LOOK_S))
            if not self._is_watched and self._wants_watch():
                self._is_watched = True
                watch = threading.Thread(
                    target=self._watch.run, args=(stopping,), name="own node", daemon=True
                )
                watch.start()

    def step(self) -> float:
        """Do what is due; return the seconds until more will be, if nothing changes."""
        current = self._store.current
        if current is None:
            return LOOK_S
        self._generation = current.generation
        if self._wishes.is_news(current.snapshot):
            self._wish = self._wishes.of(current.snapshot)
            self._evidence.add(current.snapshot, frozenset(self._wish.labels))
        if not self._wish.labels:
            return LOOK_S  # nothing was read yet, which proves nothing
        is_proven = self._evidence.is_proven
        return min(lane.step(self._wish, is_proven=is_proven) for lane in self._lanes)

    def _is_followed(self, output: LabelOutput) -> Callable[[], bool]:
        return lambda: output.is_on_node and self._watch.is_sound

    def _wants_watch(self) -> bool:
        """Tell whether a watch is of use by now; its start is spread, as the first look is."""
        if self._is_once:
            return False
        has_looked = any(lane.output.needs_api and lane.has_looked for lane in self._lanes)
        is_time = self._clock() >= self._watch_from
        return has_looked or (self._wishes.needs_node and is_time)

    def _note(self, node: Mapping[str, Any] | None) -> None:
        """Take what the watch saw; called by its thread."""
        if node is None:
            return
        self._wishes.note(node.get("labels") or {})
        before, self._uid = self._uid, node.get("uid")
        for lane in self._lanes:
            # The first Node that is seen is news to one that found none.
            is_new = self._uid != before and (before is not None or not lane.has_looked)
            lane.note(node, is_new=is_new)


class Evidence:
    """Whether labels that are not there have been proven to have no reason.

    One scan can be wrong without knowing: it takes two in a row, each complete, with the
    same labels.
    """

    def __init__(self) -> None:
        self._scan: Snapshot | None = None
        self._keys: frozenset[str] | None = None
        self.is_proven = False

    def add(self, scan: Snapshot, keys: frozenset[str]) -> None:
        """Add *scan*, which makes the labels *keys*.

        Other settings, or another place of the node, make other labels of the same scan: that
        is no second one.
        """
        found = keys if is_complete(scan) else None
        is_same = found is not None and found == self._keys
        self.is_proven = is_same and (self.is_proven or scan is not self._scan)
        self._scan, self._keys = scan, found
