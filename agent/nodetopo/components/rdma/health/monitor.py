"""The current health of this node's HCAs, fed by scans and by a cheap look between them."""

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from msgspec.structs import replace

from nodetopo.components.gpus.health.monitor import MAX_NOTICES
from nodetopo.components.rdma.health.hca import (
    HcaRules,
    HcaSighting,
    after_sightings,
    is_unsettled,
    sightings,
    view,
)
from nodetopo.components.rdma.health.notices import hca_notices
from nodetopo.components.rdma.health.probe import HcaProbe, PortCounters
from nodetopo.components.rdma.health.saved import HCAS_FILE, SCHEMA, SavedHcas, resumed, saved
from nodetopo.deviceplugin.state_file import StateFile, boot_file
from nodetopo.kernel.loops import PeriodicLoop
from nodetopo.kernel.settings.kept import boot_state
from nodetopo.kernel.settings.own import KernelSettings, roots
from nodetopo.model.hca_health import HcaHealthView
from nodetopo.model.notice import Notice
from nodetopo.model.snapshot import Snapshot
from nodetopo.rdma.identity import KnownHca, remembered_hcas

LOOK_S = 5.0
"""Between two looks at the ports: with the confirmation of a fault, a port that is down is out of
the device list within ten seconds."""

UNSETTLED_S = 2.0
"""The same while a fault waits for its confirmation."""

PORTS_A_LOOK = 32
"""Ports for which :data:`LOOK_S` holds; with hundreds of virtual functions there are fewer looks,
so that an hour of them costs as much: below a second of CPU."""

COUNTERS_S = 60.0
"""Between two readings of the error counters."""


SCAN_PAUSE_S = 30.0
"""Shortest pause between scans requested because RDMA devices were added or removed."""


def configured_hca_health(
    settings: KernelSettings, on_change: Callable[[], None]
) -> "HcaHealthMonitor | None":
    """Return the health of the HCAs; ``None`` where *settings* switch it off."""
    if not settings.health_checks:
        return None
    is_simulated = settings.machine is not None or settings.snapshot is not None
    probe = None if is_simulated or settings.or_simulate else HcaProbe(roots(settings).sysfs)
    kept = boot_state(settings, HCAS_FILE)
    return HcaHealthMonitor(
        HcaRules(recovery_s=settings.recovery_s),
        probe,
        None if kept is None else hcas_file(*kept),
        on_change=on_change,
    )


def hcas_file(path: Path, boot_id: str) -> StateFile[SavedHcas]:
    """Return the file *path* of the HCAs that one boot has shown."""
    return boot_file(
        path,
        SavedHcas,
        what="HCAs of this boot",
        schema=SCHEMA,
        boot_id=boot_id,
        loss="an HCA that is gone leaves the node's capacity, and a recovering one is available",
    )


class HcaHealthMonitor:
    """Keeps the verdicts ready for any thread; one thread reads sysfs, without waiting for others.

    A call of :meth:`take` never waits for a file: a driver with unresponsive firmware can block for
    a minute (mlx5, MLX5_CMD_TIMEOUT_MSEC). Before the first :meth:`take` only the HCAs of the file
    are known; after :meth:`rest` none is, and nothing is read.

    Args:
        probe: reads this node's sysfs; ``None`` for simulated HCAs, which change only by scans.
        file: keeps HCAs and verdicts across restarts; ``None`` keeps them in memory.
        clock: monotonic seconds since boot, the same in every process.
        on_change: called after :attr:`view` changed, by the thread that changed it.
    """

    def __init__(
        self,
        rules: HcaRules,
        probe: HcaProbe | None,
        file: StateFile[SavedHcas] | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        on_change: Callable[[], None],
    ) -> None:
        self._rules = rules
        self._probe = probe
        self._clock = clock
        self._on_change = on_change
        # Called when RDMA devices have been added, removed or renamed since the last scan, so that
        # another scan would show it.
        self.on_other_hcas: Callable[[], None] = lambda: None
        self._lock = threading.Lock()
        self._file = file
        before = None if file is None else file.load().content
        self._written = before or SavedHcas()
        self._known, self._state = resumed(self._written, clock())
        self._unseen = frozenset(self._state)  # by this process
        self._view: HcaHealthView = view(self._state, rules)
        self._notices: deque[Notice] = deque(maxlen=MAX_NOTICES)
        self._scanned: frozenset[str] | None = None  # names of all HCAs in the last scan
        self._asked: frozenset[str] | None = None  # names for which a scan was asked for
        self._asked_at = float("-inf")
        self._counters: PortCounters = MappingProxyType({})
        self._counted_at = float("-inf")

    @property
    def known(self) -> tuple[KnownHca, ...]:
        """The HCAs that scans have shown, lost ones included, in an order that does not change."""
        return self._known

    @property
    def view(self) -> HcaHealthView:
        """The verdicts, by key; replaced as a whole, never changed."""
        return self._view

    @property
    def unhealthy(self) -> frozenset[str]:
        """The keys of the HCAs that the kubelet must not hand out."""
        return frozenset(key for key, health in self._view.items() if not health.is_healthy)

    @property
    def counters(self) -> PortCounters:
        """The error counters of each port, at most a minute old."""
        return self._counters

    @property
    def pause_s(self) -> float:
        """How long to wait until the next :meth:`look`."""
        ports = sum(len(hca.hca.ports) for hca in self._known)
        looks = max(1, -(-ports // PORTS_A_LOOK))
        return looks * (UNSETTLED_S if is_unsettled(self._state) else LOOK_S)

    def notices(self) -> tuple[Notice, ...]:
        """Return the notices since the last call, and forget them."""
        with self._lock:
            taken = tuple(self._notices)
            self._notices.clear()
        return taken if self._file is None else (*self._file.notices(), *taken)

    def take(self, snapshot: Snapshot) -> None:
        """Take the result of a scan: the HCAs and their names.

        The scan also gives the first verdict on new HCAs, and on those of the file. Verdicts on
        others come only from a look, as a scan might be old; without a probe, every scan gives
        verdicts. A repeated snapshot changes nothing.
        """
        with self._lock:
            self._known = remembered_hcas(self._known, snapshot)
            seen = sightings(self._known, snapshot)
            if snapshot.hcas is not None:
                listed = (*snapshot.hcas, *(snapshot.management_hcas or ()))
                self._scanned = frozenset(hca.name for hca in listed)
                if self._scanned == self._asked:
                    self._asked = None
            is_judged = self._probe is None
            judged = self._unseen.union(key for key in seen if key not in self._state)
            is_changed = self._become(
                {
                    key: sighting if is_judged or key in judged else None
                    for key, sighting in seen.items()
                }
            )
            if snapshot.hcas is not None:
                self._unseen = frozenset()
        if is_changed:
            self._on_change()

    def look(self) -> None:
        """Look at the HCAs that are known, and save what has changed.

        Once a minute their error counters are read too. One thread at a time.
        """
        self._take_late()
        probe, known = self._probe, self._known
        if probe is not None and known:
            self._look(probe, known)
        self._save()

    def _look(self, probe: HcaProbe, known: tuple[KnownHca, ...]) -> None:
        seen = probe.look(known)
        with self._lock:
            # A scan can have changed the HCAs meanwhile.
            is_changed = self._become({hca.key: seen.get(hca.key) for hca in self._known})
            is_other = self._asks_for_scan(probe.listing)
        if is_other:
            self.on_other_hcas()
        if is_changed:
            self._on_change()
        if self._clock() - self._counted_at >= COUNTERS_S:
            self._counted_at = self._clock()
            self._counters = probe.counters(known)

    def rest(self) -> None:
        """Forget all HCAs: none is offered any more."""
        if not self._known:
            return
        with self._lock:
            self._known = ()
            self._scanned = None
            self._counters = MappingProxyType({})
            self._state = MappingProxyType({})
            self._view = MappingProxyType({})
            self._notices.clear()

    def _take_late(self) -> None:
        """Join what the file has, if the start could not read it, with what is known by now."""
        late = None if self._file is None else self._file.late()
        if late is None:
            return
        with self._lock:
            self._written = late
            known, before = resumed(late, self._clock())
            ours = {hca.key for hca in self._known}
            self._known += tuple(replace(it, is_lost=True) for it in known if it.key not in ours)
            self._unseen |= frozenset(key for key in before if key not in ours)
            state = {**before, **self._state}
            for key, earlier in before.items():
                if state[key].fault is None and earlier.fault is not None:
                    state[key] = earlier
                falls = {*earlier.falls, *state[key].falls}
                state[key] = replace(state[key], falls=tuple(sorted(falls)))
            self._state, self._view = MappingProxyType(state), view(state, self._rules)
        self._on_change()

    def _save(self) -> None:
        """Save what a restart must not lose, if it has changed; a failure is tried again."""
        if self._file is None:
            return
        with self._lock:
            now = saved(self._known, self._state)
        if now != self._written and self._file.save(now):
            self._written = now

    def _asks_for_scan(self, listing: frozenset[str] | None) -> bool:
        """Return whether the listed names call for a scan.

        If a scan disagrees with the directory, it is not requested again.
        """
        if listing is None or self._scanned is None or listing == self._scanned:
            return False
        now = self._clock()
        if listing == self._asked or now - self._asked_at < SCAN_PAUSE_S:
            return False
        self._asked, self._asked_at = listing, now
        return True

    def _become(self, seen: Mapping[str, HcaSighting | None]) -> bool:
        """Advance the state by the sightings *seen*; return whether a verdict changed."""
        after = after_sightings(self._state, seen, self._clock(), self._rules)
        self._notices.extend(hca_notices(self._state, after, self._rules))
        self._state = after
        verdicts = view(after, self._rules)
        is_changed = verdicts != self._view
        if is_changed:  # an equal view stays the same object: readers compare identity
            self._view = verdicts
        return is_changed


class HcaLoop(PeriodicLoop):
    """Looks at the HCAs between two scans."""

    def __init__(self, monitor: HcaHealthMonitor) -> None:
        self._monitor = monitor

    def step(self) -> float:
        self._monitor.look()
        return self._monitor.pause_s
