"""The loop that keeps every output of labels as the latest snapshot has them."""

import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from nodetopo.components.labels import levels_file
from nodetopo.components.labels.catalogue import is_complete, labels
from nodetopo.components.labels.completeness import remarks, unread
from nodetopo.components.labels.fabric import CLIQUE_KEY
from nodetopo.components.labels.label_rules import label_rules
from nodetopo.components.labels.levels import (
    MAX_TIERS,
    Platform,
    file_tiers,
    node_levels,
    platform,
    tiers,
)
from nodetopo.components.labels.outputs.chosen import label_outputs
from nodetopo.components.labels.outputs.output import DesiredLabels, LabelOutput
from nodetopo.components.labels.outputs.pacing import START_S, OutputSchedule
from nodetopo.components.labels.rules import LabelRules
from nodetopo.components.labels.settings import ANY, OFF, LabelSettings
from nodetopo.components.labels.topology_ok import OK_KEY, REASON_KEY, topology_reason
from nodetopo.errors import InputError
from nodetopo.kernel.loops import PeriodicLoop
from nodetopo.kernel.pacing import Clock, Spread, at_once
from nodetopo.kernel.store import SnapshotStore
from nodetopo.kubeapi.watch import NodeWatch
from nodetopo.model.snapshot import Snapshot

LOOK_S = 2.0
"""Interval for checking the watch's results, and for a second scan that proves an absence; neither
sends requests. Changes that come together are written together.
"""


class DesiredLabelsSource(Protocol):
    """Makes the desired labels of a snapshot; :class:`DesiredLabelsBuilder` is one."""

    @property
    def needs_node(self) -> bool:
        """Whether desired labels depend on the Node's labels."""

    def note(self, node_labels: Mapping[str, str], /) -> None:
        """Take the labels of the Node; any thread."""

    def is_news(self, snapshot: Snapshot, /) -> bool:
        """Return whether :meth:`of` may return another result than the last time."""

    def of(self, snapshot: Snapshot, /) -> DesiredLabels:
        """Return the labels to publish."""


class LabelsLoop(PeriodicLoop):
    """Publishes the labels of the latest snapshot; for one thread, with counters for any."""

    def __init__(
        self,
        settings: LabelSettings,
        store: SnapshotStore,
        *,
        outputs: Sequence[LabelOutput],
        desired: DesiredLabelsSource,
        watch: NodeWatch | None = None,
        clock: Clock = time.monotonic,
        spread: Spread = random.uniform,
        is_watch_wanted: bool = False,
    ) -> None:
        """Publish nothing yet.

        Args:
            settings: the Node, and the access to it.
            store: has the snapshots.
            outputs: the destinations of labels; without any, labels are only computed, and the
                API server is not asked.
            desired: derives labels from a snapshot.
            watch: of the Node, if one is already running.
            clock: for pauses.
            is_watch_wanted: whether others need the watch, regardless of the outputs.
            spread: random; with ``settings.once`` nothing waits.
        """
        spread = at_once if settings.once else spread
        self._is_once = settings.once
        self._clock = clock
        self._watch_from = clock() + spread(0.0, START_S)
        self._is_watched = watch is not None
        self._is_watch_wanted = is_watch_wanted
        # The watch of the Node, which may not be running yet.
        self.watch = watch or NodeWatch(settings.kubeconfig, settings.node_name)
        self._lanes = tuple(
            OutputSchedule(
                output,
                clock=clock,
                spread=spread,
                is_followed=partial(self._is_followed, output),
            )
            for output in outputs
        )
        self._store = store
        self._source = desired
        self._desired = DesiredLabels()
        self._absence = AbsenceProof()
        self._generation = 0
        self._uid: str | None = None
        self.watch.subscribe(self._note)  # last: a running watch calls it at once

    @property
    def needs_watch(self) -> bool:
        """Whether a watch is useful now; its start is spread like the first look."""
        if self._is_once or not self._lanes:
            return False
        has_looked = any(lane.output.needs_api and lane.has_looked for lane in self._lanes)
        is_time = self._clock() >= self._watch_from
        is_wanted = self._is_watch_wanted or self._source.needs_node
        return has_looked or (is_wanted and is_time)

    @property
    def desired(self) -> Mapping[str, str]:
        """The labels that every output is to have; empty before the first snapshot."""
        return self._desired.labels

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

    def step(self) -> float:
        """Do the due work; return the seconds until the next, if nothing changes."""
        current = self._store.current
        if current is None:
            return LOOK_S
        self._generation = current.generation
        if self._source.is_news(current.snapshot):
            self._desired = self._source.of(current.snapshot)
            self._absence.add(current.snapshot, frozenset(self._desired.labels))
        if not (self._desired.labels or self._absence.is_proven):
            return LOOK_S  # nothing was read yet, which proves nothing
        is_proven = self._absence.is_proven
        pauses = (lane.step(self._desired, is_proven=is_proven) for lane in self._lanes)
        return min(pauses, default=LOOK_S)

    def wait(self, stopping: threading.Event, seconds: float) -> None:
        """Wait for a new snapshot; start the watch of the Node once it is of use."""
        self._store.wait(self._generation, min(seconds, LOOK_S))
        if not self._is_watched and self.needs_watch:
            self._is_watched = True
            threading.Thread(
                target=self.watch.run, args=(stopping,), name="own node", daemon=True
            ).start()

    def _is_followed(self, output: LabelOutput) -> bool:
        """Return whether the watch shows every change of *output*."""
        return output.is_on_node and self.watch.is_sound

    def _note(self, node: Mapping[str, Any] | None) -> None:
        """Note the watch's metadata of the Node; called by its thread."""
        if node is None:
            return
        self._source.note(node.get("labels") or {})
        before, self._uid = self._uid, node.get("uid")
        for lane in self._lanes:
            # The first Node that is seen is news to an output that found none.
            is_new = self._uid != before and (before is not None or not lane.has_looked)
            lane.note(node, is_new=is_new)


class AbsenceProof:
    """Proof that absent labels are absent for good.

    A single scan can be wrong unnoticed: the proof takes two consecutive complete scans with the
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
        complete = keys if is_complete(scan) else None
        is_same = complete is not None and complete == self._keys
        self.is_proven = is_same and (self.is_proven or scan is not self._scan)
        self._scan, self._keys = scan, complete


class DesiredLabelsBuilder:
    """Builds the desired labels by the settings in force, and reports each remark once.

    Args:
        settings: returns the settings in force; label settings unrelated to resources stay fixed.
        tiers: the tiers of the node.
        tell: takes each remark.
    """

    def __init__(
        self, settings: Callable[[], LabelSettings], tiers: "NodeTiers", tell: Callable[[str], None]
    ) -> None:
        self._settings = settings
        self._tiers = tiers
        self._report = tell
        self._last: tuple[Snapshot, LabelSettings, Tiers] | None = None
        self._remarks: frozenset[str] = frozenset()

    @property
    def needs_node(self) -> bool:
        """Whether labels depend on the labels of the Node."""
        return self._tiers.needs_labels

    def note(self, node_labels: Mapping[str, str]) -> None:
        """Take the Node's labels; any thread."""
        self._tiers.note(node_labels)

    def is_news(self, snapshot: Snapshot) -> bool:
        """Return whether *snapshot* may yield other labels than the last one."""
        if self._last is None:
            return True
        last, settings, tiers = self._last
        is_same = last is snapshot and settings is self._settings()
        return not is_same or tiers != self._tiers.tiers()

    def of(self, snapshot: Snapshot) -> DesiredLabels:
        """Return the labels to publish for *snapshot*."""
        settings, tiers = self._settings(), self._tiers.tiers()
        self._last = snapshot, settings, tiers
        rules = label_rules(settings, tiers or {})
        before, self._remarks = self._remarks, frozenset(remarks(snapshot, rules))
        for text in sorted(self._remarks - before):
            self._report(text)
        return desired_labels(snapshot, rules, are_tiers_known=tiers is not None)


def desired_labels(
    snapshot: Snapshot, rules: LabelRules, *, are_tiers_known: bool = True
) -> DesiredLabels:
    """Return the labels of *snapshot* by *rules*; ``are_tiers_known=False``: tiers stay."""
    desired = labels(snapshot, rules)
    doubtful = unread(snapshot, rules)
    if not are_tiers_known:
        doubtful |= {f"{rules.prefix}tier-{tier}" for tier in range(MAX_TIERS)}
    missing = doubtful - desired.keys()
    ok_key = rules.own(OK_KEY)
    annotations: dict[str, str] | None = None
    if ok_key in desired or (ok_key not in missing and is_complete(snapshot)):
        reason = topology_reason(snapshot)  # the reason, if the topology is not as built
        annotations = {} if reason is None else {rules.own(REASON_KEY): reason}
    return DesiredLabels(labels=desired, unread=missing, annotations=annotations)


Tiers = Mapping[str, str] | None
"""Value by tier; ``None`` while unknown."""


class NodeTiers:
    """The tiers of the node in its cluster's network, by its Node's labels or a file.

    Any thread can note labels, or ask.

    Raises:
        InputError: the file of levels cannot be used.
    """

    def __init__(self, settings: LabelSettings) -> None:
        path = settings.topology_levels_file
        self._node = settings.node_name
        self._file = None if path is None else levels_file.load_levels(path)
        self._wanted = settings.topology_levels
        self._only: Platform | None = None
        if self._wanted not in (OFF, ANY):
            self._only = platform(self._wanted)
        self._labels: Mapping[str, str] | None = None
        for key in () if self._file is None else self._file.labels:
            # Tiers made of tiers would never come to rest.
            if key.startswith(f"{settings.label_prefix}tier-"):
                cause = f"{path}: levels.labels: {key} is made from these labels itself"
                raise InputError(cause, "name the label that tells the place, of another program")

    @property
    def needs_labels(self) -> bool:
        """Whether tiers depend on the labels of the Node."""
        if self._wanted != OFF:  # the file can name fewer tiers than the labels
            return True
        file = self._file
        return file is not None and bool(file.labels) and not file.nodes.get(self._node)

    def note(self, labels: Mapping[str, str]) -> None:
        """Take the Node's current labels, from any writer."""
        self._labels = dict(labels)

    def tiers(self) -> Tiers:
        """Return value by tier; ``None`` while they depend on unknown labels.

        The file's tiers take precedence.
        """
        if self._labels is None and self.needs_labels:
            return None
        labels = self._labels or {}
        found: dict[str, str] = {}
        if self._wanted != OFF:
            found |= tiers(node_levels(labels, self._only))
        if self._file is not None:
            found |= file_tiers(self._file, self._node, labels)
        return found


def configured_outputs(
    settings: LabelSettings, names: Sequence[str] | None = None
) -> tuple[LabelOutput, ...]:
    """Return the outputs *names*, or the outputs of *settings*, for the Node of *settings*."""
    is_shared = settings.publish_clique == "auto"
    return label_outputs(
        settings.label_outputs if names is None else names,
        kubeconfig=settings.kubeconfig,
        node=settings.node_name,
        nfd_file=settings.nfd_file,
        namespace=settings.namespace,
        pod=settings.pod_name,
        yields=frozenset({CLIQUE_KEY}) if is_shared else frozenset(),
    )
