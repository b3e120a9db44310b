"""Our DRA driver on this node: keeps its socket, its slices and the health of its devices.

Data flows one way: snapshot, health, prepared claims and devices held elsewhere → pool → slices.
The order of devices depends on the claimed GPUs, so it is recomputed whenever the kubelet prepares
or releases a claim. That lags the scheduler's decision by the start of a pod; until then the next
claim is allocated by the previous order, which is valid but might not be the best.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import structlog

from nodetopo.backoff import API_RETRY_S, Backoff
from nodetopo.components.dra.conditions import ConditionsKeeper, ForeignDevices
from nodetopo.components.dra.devices import Conditions
from nodetopo.components.dra.driver.claims import claim_reader
from nodetopo.components.dra.driver.prepared import PreparedClaims
from nodetopo.components.dra.driver.server import DraServer
from nodetopo.components.dra.driver.service import DeviceHealth, DeviceVerdict, DraServicer
from nodetopo.components.dra.form import SETS, form
from nodetopo.components.dra.held import TIMEOUT_S, HeldDevices
from nodetopo.components.dra.notices import DraNotices
from nodetopo.components.dra.pool import BackingDevices, Pool, named_set
from nodetopo.components.dra.publisher import FieldsDropped, SlicePublisher, own
from nodetopo.components.dra.served_fields import ServedFields
from nodetopo.components.dra.settings import DraSettings
from nodetopo.components.dra.slices import Group
from nodetopo.errors import ApiUnavailable, UnreadableError
from nodetopo.kernel.loops import PeriodicLoop
from nodetopo.kubeapi.apply import connection
from nodetopo.model.dra import DRIVER, ClaimedDevice
from nodetopo.model.notice import Notice
from nodetopo.model.snapshot import Snapshot
from nodetopo.outage import Outage
from nodetopo.probes.kubelet.podresources import PodResources

if TYPE_CHECKING:
    from pathlib import Path

    from nodetopo.kernel.offers import OfferedGpus, Verdicts
    from nodetopo.kubeapi.slices import Slices, SliceWatch
    from nodetopo.model.gpu import Gpu

Claimed: TypeAlias = Mapping[str, tuple[str, ...]]
"""Ids of the GPUs of each device that prepared claims have, by its name."""

TICK_S = 0.5
"""Interval between comparisons with the published slices. Including the write, a GPU given out by a
device plugin is free in the slices for less than a second.
"""

SETTLE_S = 0.1
"""Pause after a change, for more of them: the kubelet prepares the claims of a pod one by one."""

LONGEST_SETTLE_S = 2.0
"""The same while a call of the kubelet is in progress: each of its claims is read first."""


class DraLoop(PeriodicLoop):
    """Runs the driver; one thread runs it, any thread can read its counters."""

    def __init__(
        self,
        settings: DraSettings,
        plugins: OfferedGpus,
        health: Verdicts | None,
        watch: SliceWatch,
        *,
        state_file: Path | None,
        evicts: Callable[[], bool] = lambda: False,
        report: Callable[[Iterable[Notice]], None] = lambda _: None,
        is_off: bool = False,
    ) -> None:
        """Serve nothing yet.

        Args:
            health: ``None`` where health is not watched.
            watch: of the node's slices; run by the caller.
            state_file: keeps prepared claims across restarts; ``None`` keeps them in memory.
            evicts: whether pods with an unhealthy GPU are evicted; asked at every step.
            report: takes notices for people, and never blocks.
            is_off: only release claims, withdraw the slices, and end with the last claim.
        """
        # Why the slices are wrong or missing; None if they are right.
        self.problem: str | None = None
        self._settings = settings
        self._is_off = is_off
        self._evicts = evicts
        self._plugins = plugins
        self._health = health
        self._watch = watch
        self._wake = threading.Event()
        self._pool: Pool | None = None
        self._has_pool = threading.Event()
        self._gpus: tuple[Gpu, ...] = ()  # of the pool
        self._form = SETS  # that was asked for
        node, connect = settings.node_name, connection(settings.kubeconfig)
        self._held = HeldDevices(
            PodResources(settings.pod_resources_socket, timeout_s=TIMEOUT_S),
            settings.device_plugin_dir,
        )
        self._foreign = ForeignDevices(self._held)
        self._served = ServedFields(connect)
        self._publisher = SlicePublisher(node, connect, self._served)
        self._keeper = ConditionsKeeper()
        self._report_notices = report
        self._notices = DraNotices(report)
        self._prepared = PreparedClaims(
            state_file,
            node,
            claim_reader(connection(settings.kubeconfig), node),
            self._backing,
            plugins.cdi_names,
            refusal=self._refusal,
            users=self._users,
            # After an error, the kubelet would try again only a minute later.
            await_node=self._has_pool.wait,
        )
        self._prepared.on_change = self._wake.set
        self._prepared.is_off = is_off
        self._device_health = DeviceHealth(node)
        self._servicer = DraServicer(self._prepared)
        self._server = DraServer(settings.plugins_registry_dir, self._servicer, self._device_health)
        self._newer: Path | None = None
        self._order: tuple[Pool, Claimed, Conditions, Sequence[Group]] | None = None
        # The state that the slices agree with.
        self._published: tuple[Sequence[Group], Slices] | None = None
        self._noted: Slices | None = None  # the slices that show the kept fields
        self._pause = Backoff(*API_RETRY_S, least_s=0.0)
        self._problem = Outage()
        watch.subscribe(self._wake.set)

    @property
    def is_registered(self) -> bool:
        return self._server.registrar.is_registered

    @property
    def not_served(self) -> str | None:
        """Why claims do not get GPUs of this node, or are not released; ``None`` if they are."""
        if self._newer is not None:
            return None
        if self._is_off:
            problem = self._server.problem
            return None if problem is None else f"claims are left and not given up: {problem}"
        if self.problem is not None:
            return f"slices not published: {self.problem}"
        if self.is_registered:
            return None
        return self._server.problem or f"the kubelet does not have the DRA driver {DRIVER}"

    @property
    def pool(self) -> Pool | None:
        """The published pool; ``None`` before the first scan."""
        return self._pool

    @property
    def prepared(self) -> PreparedClaims:
        return self._prepared

    @property
    def writes(self) -> int:
        return self._publisher.writes

    @property
    def errors(self) -> int:
        """Attempts to write that failed."""
        return self._publisher.errors

    @property
    def foreign_gpus(self) -> int:
        """How many GPUs another DRA driver has as well."""
        return len(self._foreign.found)

    @property
    def dropped(self) -> frozenset[str]:
        """Fields of slices that the API server does not keep."""
        return self._served.dropped

    def step(self) -> float | None:
        """Bring socket, health and slices up to date; return the seconds until the next step.

        ``None`` once the driver is off and no claim is left.
        """
        self._wake.clear()
        self._prepared.refresh()
        self._report_notices(self._prepared.notices())
        snapshot = self._plugins.published
        if snapshot is None and not self._prepared.claims and self._prepared.is_complete:
            return TICK_S
        self._server.keep_up()
        self._note_newer()
        if self._is_off:
            return self._withdraw()
        if snapshot is None:
            return TICK_S
        self._held.keep_up()
        slices = self._watch.slices
        if slices is not None:
            self._served.keep_up(self._watch.connections)
            if slices is not self._noted:
                self._served.note(each.get("spec", {}) for each in own(slices).values())
                self._noted = slices
        pool = self._take(snapshot)
        groups = self._ordered(pool, self._conditions(pool, slices))
        # A kubelet that starts deletes all slices of the node, and an unregistered driver would
        # leave pods waiting. Of two processes the newer one writes.
        # GPUs that are remembered lack most attributes, which claims select by.
        is_ours = self._newer is None and self._plugins.has_read
        is_quiet = slices is None or not is_ours or not self._served.is_answered
        if slices is None or is_quiet or not self.is_registered:
            return TICK_S
        return self._keep_published(pool, groups, slices)

    def wait(self, stopping: threading.Event, seconds: float) -> None:
        """Wait for news; at the end, wait for its sources to end."""
        if not self._wake.wait(seconds):
            return
        for _ in range(round(LONGEST_SETTLE_S / SETTLE_S)):
            if stopping.wait(SETTLE_S) or not self._servicer.is_busy:
                return

    def run(self, stopping: threading.Event) -> None:
        """Run until *stopping* is set; slices and prepared claims stay for the next process."""

        def wake() -> None:
            stopping.wait()
            self._wake.set()

        threading.Thread(target=wake, name="dra wake", daemon=True).start()
        super().run(stopping)

    def close(self) -> None:
        """Leave the kubelet, which deletes the slices unless our next process starts in 30 s."""
        self._server.stop()
        self._held.close()

    def _note_newer(self) -> None:
        """Record whether another process has taken over, and the end of that process."""
        before, self._newer = self._newer, self._server.newer()
        if self._newer == before:
            return
        log = structlog.get_logger()
        if self._newer is not None:
            log.info("another nodetopo publishes the slices", socket=str(self._newer))
        else:
            self._published = None
            log.info("slices published by this process again")

    def _take(self, snapshot: Snapshot) -> Pool:
        """Return the pool of *snapshot*; the same object while its inputs are unchanged."""
        settings, served = self._settings, self._served
        wanted = form(
            served.release,
            settings.dra_devices,
            settings.dra_set_sizes,
            served.dropped,
            has_admin=settings.dra_admin_devices,
        )
        gpus = self._plugins.offerable(snapshot)
        pool = self._pool
        kept = self._prepared.used_devices
        if (
            pool is None
            or pool.snapshot is not snapshot
            or (gpus, wanted) != (self._gpus, self._form)
            or not pool.holds(kept)
        ):
            rules = self._plugins.placement_rules(snapshot)
            pool = Pool.of(snapshot, gpus, rules, form=wanted, kept=kept)
            self._pool, self._gpus, self._form = pool, gpus, wanted
            self._has_pool.set()
        return pool

    def _ordered(self, pool: Pool, now: Conditions) -> Sequence[Group]:
        """Return the devices in order; the same object while its inputs are unchanged.

        Computing it takes some 5 ms of CPU for 8 GPUs.
        """
        claimed = self._prepared.used_devices
        before = self._order
        if before is None or before[0] is not pool or (before[1], before[2]) != (claimed, now):
            used = {gpu for gpus in claimed.values() for gpu in gpus}
            groups = pool.groups(used, now, claimed)
            self._device_health.update(_verdicts(pool, now))
            self._order = before = pool, claimed, now, groups
        return before[3]

    def _conditions(self, pool: Pool, slices: Slices | None) -> Conditions:
        """Return the conditions of GPUs; all GPUs are barred while conditions are unknown."""
        snapshot = pool.snapshot
        known = self._held.known
        held = {gpu.id for gpu in snapshot.gpus} if known is None else known.gpus(snapshot)
        foreign: Mapping[str, str] = {}
        if slices is not None:
            foreign = self._foreign.look(slices, snapshot)
            self._notices.report_foreign(foreign)
        return self._keeper.conditions(
            pool,
            slices,
            {} if self._health is None else self._health.view,
            held=held,
            foreign=foreign,
            evicts=self._evicts(),
        )

    def _keep_published(self, pool: Pool, groups: Sequence[Group], slices: Slices) -> float:
        """Write the differences; return the seconds until the next step."""
        if self._held.known is None and not own(slices):
            self._report(f"GPUs in use not known: {self._held.problem}")
            return TICK_S
        agreed = self._published
        if agreed is not None and agreed[0] is groups and agreed[1] is slices:
            return TICK_S
        self._published = None
        try:
            self._publisher.publish(pool, groups, own(slices))
        except FieldsDropped:
            self._notices.report_dropped(self._served.dropped, self._served.version)
            return 0.0
        except ApiUnavailable as error:
            return self._failed(error)
        self._pause.reset()
        self._notices.report_dropped(self._served.dropped, self._served.version)
        self._report(self._held.problem if self._held.known is None else None)
        self._published = None if self._publisher.is_ahead else (groups, slices)
        return TICK_S

    def _withdraw(self) -> float | None:
        """Delete our slices; return the seconds until the next step, ``None`` at the end."""
        if not self._prepared.claims and self._are_claims_over():
            structlog.get_logger().info("DRA driver ends: no claim is prepared any longer")
            return None
        slices = self._watch.slices
        try:
            for name in own(slices or {}) if self._newer is None else ():
                self._publisher.delete(name)
        except ApiUnavailable as error:
            return self._failed(error)
        self._pause.reset()
        self._report(None)
        return TICK_S

    def _are_claims_over(self) -> bool:
        """Return whether no pod has a claim that is not known."""
        if self._prepared.is_complete:
            return True
        self._held.keep_up()
        return self._held.known is not None and not self._held.known.own

    def _users(self) -> tuple[ClaimedDevice, ...] | None:
        known = self._held.look()
        return None if known is None else known.own

    def _failed(self, error: ApiUnavailable) -> float:
        self._publisher.errors += 1
        self._report(str(error))
        return TICK_S + self._pause.next_s(error.retry_after_s)

    def _backing(self, name: str) -> BackingDevices | None:
        """Return the hardware behind a device that is or was published, in any form."""
        pool = self._pool
        if pool is None:
            raise UnreadableError("the node has not been read yet", "it is tried again later")
        return pool.backing(name) or named_set(name, pool)

    def _refusal(self, devices: Sequence[BackingDevices]) -> str | None:
        """Return the other user of a GPU of *devices*; ``None`` without one."""
        pool, known = self._pool, self._held.look()
        assert pool is not None, "devices are of a pool"
        if known is None:
            return f"it is not known which GPUs pods have: {self._held.problem}"
        given = known.gpus(pool.snapshot)
        claimed = self._foreign.claimed(known, pool.snapshot)
        uuids = {gpu.id: gpu.uuid for gpu in pool.snapshot.gpus}
        for device in devices:
            for gpu in device.gpus:
                theirs = given.get(gpu, frozenset())
                if device.is_part:
                    theirs = theirs & {*device.uuids, uuids[gpu]}
                if theirs:
                    return f"a pod has {', '.join(sorted(theirs))} by a device plugin"
                if gpu in claimed:
                    return f"a pod may have {gpu} by a claim of the DRA driver {claimed[gpu]}"
        return None

    def _report(self, problem: str | None) -> None:
        self.problem = problem
        if self._problem.changed(problem) and problem is not None:
            structlog.get_logger().warning("slices not published", problem=problem)


def _verdicts(pool: Pool, now: Conditions) -> Mapping[str, DeviceVerdict]:
    """Return the health of every device that a pod can have, published now or not."""
    present = {gpu.id for gpu in pool.snapshot.gpus}
    gpus = {name: backing.gpus for name, backing in pool.backings.items()}
    found = {}
    for name, ids in {**pool.kept, **gpus}.items():
        verdicts = (now.health.get(gpu) for gpu in ids)
        reasons = [
            verdict.said or verdict.reason or "unhealthy"
            for verdict in verdicts
            if verdict and not verdict.is_healthy
        ]
        reasons += [f"{gpu} is gone" for gpu in ids if gpu not in present]
        found[name] = DeviceVerdict(is_healthy=not reasons, message="; ".join(reasons))
    return found
