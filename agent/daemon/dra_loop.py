"""Our DRA driver on this node: keeps its socket, its slices and the health of its devices.

Data flows one way: snapshot, health and prepared claims → pool → slices. The order of devices
follows from which GPUs claims have, so it is written anew whenever the kubelet prepares a claim or
gives one up. That is later than the scheduler's decision by the start of a pod; until then a claim
that comes next is allocated by the order before, which is sound, and maybe not the best.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import structlog

from agent.config.settings import Settings
from agent.daemon.logs import LastProblem
from agent.daemon.loops import PeriodicLoop
from agent.daemon.plugins import PluginSet
from agent.dra.devices import UNHEALTHY, Conditions
from agent.dra.pool import Pool
from agent.dra.slices import Group, changes
from agent.draplugin.claims import claim_reader
from agent.draplugin.prepared import PreparedClaims
from agent.draplugin.server import DraServer
from agent.draplugin.service import DeviceVerdict, DraServicer, HealthServicer
from agent.errors import ApiUnavailable, UnreadableError
from agent.formats.responses import part
from agent.health.status import GpuHealth, HealthView
from agent.kubeapi.apply import FIELD_MANAGER, Connect, connection
from agent.kubeapi.backoff import RETRY_S, RetryPause
from agent.kubeapi.client import FORBIDDEN, NOT_FOUND
from agent.kubeapi.watch import NODES
from agent.model.dra import DRIVER, SLICES
from agent.model.node import unshared
from agent.model.snapshot import Snapshot
from agent.probes.kubelet.podresources import PodResources

if TYPE_CHECKING:
    from pathlib import Path

    from agent.daemon.gpu_health import GpuHealthMonitor
    from agent.kubeapi.slices import Slices, SliceWatch
    from agent.model.gpu import Gpu

TICK_S = 1.0
"""How often snapshot, health and socket are compared with what was published last."""

SETTLE_S = 0.1
"""Pause after a change, for more of them: the kubelet prepares the claims of a pod one by one."""

HELD_LOOK_S = 30.0
"""How often the kubelet is asked which GPUs pods have by a device plugin."""

CLAIMS_FILE = "claims.json"
"""Beside the health file, on tmpfs: a boot ends every container."""


class DraLoop(PeriodicLoop):
    """Runs the driver; one thread runs it, any may read its counters.

    Attributes:
        writes: slices written or deleted.
        errors: attempts to write that failed.
        problem: why the slices are not what they should be; ``None`` if they are.
    """

    def __init__(
        self,
        settings: Settings,
        plugins: PluginSet,
        health: GpuHealthMonitor | None,
        watch: SliceWatch,
        *,
        state_file: Path | None,
        evicts: Callable[[], bool] = lambda: False,
    ) -> None:
        """Serve nothing yet.

        Args:
            health: ``None`` where GPUs are not watched.
            watch: of the node's slices; somebody else runs it.
            state_file: where prepared claims outlive the process; ``None`` keeps them in memory.
            evicts: whether pods with an unhealthy GPU are evicted; asked at every step.
        """
        self.writes = 0
        self.errors = 0
        self.problem: str | None = None
        self._evicts = evicts
        self._node = settings.node_name
        self._plugins = plugins
        self._health = health
        self._watch = watch
        self._wake = threading.Event()
        self._pool: Pool | None = None
        self._gpus: tuple[Gpu, ...] = ()  # of the pool
        self._connect: Connect = connection(settings.kubeconfig)
        self._prepared = PreparedClaims(
            state_file,
            self._node,
            claim_reader(connection(settings.kubeconfig), self._node),
            lambda device: None if self._pool is None else self._pool.backing(device),
            plugins.cdi_names,
        )
        self._prepared.on_change = self._wake.set
        self._health_servicer = HealthServicer(self._node)
        self._server = DraServer(
            settings.plugins_registry_dir, DraServicer(self._prepared), self._health_servicer
        )
        self._kubelet = PodResources(settings.pod_resources_socket)
        self._held: frozenset[str] = frozenset()
        self._held_due = 0.0
        self._held_problem = LastProblem()
        self._since: dict[str, str] = {}
        self._order: tuple[Pool, frozenset[str], Conditions, Sequence[Group]] | None = None
        self._published: tuple[Sequence[Group], Slices] | None = None  # what the slices agree with
        self._owner: Mapping[str, Any] | None = None
        self._pause = RetryPause(*RETRY_S, least_s=0.0)
        self._problem = LastProblem()
        watch.subscribe(self._wake.set)

    @property
    def is_registered(self) -> bool:
        """Whether the kubelet has taken the driver."""
        return self._server.registrar.is_registered

    @property
    def not_served(self) -> str | None:
        """Why claims do not get GPUs of this node; ``None`` if they do."""
        if self.problem is not None:
            return f"slices not published: {self.problem}"
        if self.is_registered:
            return None
        return self._server.problem or f"the kubelet does not have the DRA driver {DRIVER}"

    @property
    def pool(self) -> Pool | None:
        """What is published; ``None`` before the first scan."""
        return self._pool

    @property
    def prepared(self) -> PreparedClaims:
        """The claims that containers may use."""
        return self._prepared

    def step(self) -> float:
        """Bring socket, health and slices up to date; return the seconds until the next step."""
        self._wake.clear()
        snapshot = self._plugins.published
        if snapshot is None:
            return TICK_S
        self._take(snapshot)
        self._server.keep_up()
        self._look_for_held()
        now = self._conditions()
        assert self._pool is not None, "it was taken above"
        if (refusal := self._pool.refusal) is not None:
            self._report(refusal)
            return TICK_S
        groups = self._ordered(self._pool, now)
        observed = self._watch.slices
        # A kubelet that starts deletes all slices of the node, and an unregistered driver would
        # leave pods waiting.
        if observed is None or not self.is_registered:
            return TICK_S
        agreed = self._published
        if agreed is not None and agreed[0] is groups and agreed[1] is observed:
            return TICK_S
        ours = {
            name: each
            for name, each in observed.items()
            if each.get("spec", {}).get("driver") == DRIVER
        }
        try:
            self._publish(self._pool, groups, ours)
        except ApiUnavailable as error:
            self.errors += 1
            self._report(str(error))
            self._published = None
            return TICK_S + self._pause.next_s(error.retry_after_s)
        self._pause.reset()
        self._report(None)
        self._published = groups, observed
        return TICK_S

    def wait(self, stopping: threading.Event, seconds: float) -> None:
        """Wait for news."""
        if self._wake.wait(seconds):
            stopping.wait(SETTLE_S)

    def run(self, stopping: threading.Event) -> None:
        """Run until *stopping* is set; slices and prepared claims stay for the next process."""

        def wake() -> None:
            stopping.wait()
            self._wake.set()

        threading.Thread(target=wake, name="dra wake", daemon=True).start()
        super().run(stopping)

    def close(self) -> None:
        """Leave the kubelet, which deletes the slices if no other process of ours comes in 30 s."""
        self._server.stop()
        self._kubelet.close()

    def _take(self, snapshot: Snapshot) -> None:
        """Make the pool that of *snapshot*, if that says anything new about it."""
        gpus = self._plugins.offerable(snapshot)
        if self._pool is None or self._pool.snapshot is not snapshot or gpus != self._gpus:
            rules = self._plugins.placement_rules(snapshot)
            self._pool, self._gpus = Pool.of(snapshot, gpus, rules), gpus

    def _ordered(self, pool: Pool, now: Conditions) -> Sequence[Group]:
        """Return the devices in their order; the same object while nothing that decides it changes.

        To work it out takes 20 ms of CPU for 8 GPUs.
        """
        used = self._prepared.used
        before = self._order
        if before is None or before[0] is not pool or (before[1], before[2]) != (used, now):
            groups = pool.groups(used, now)
            self._health_servicer.update(_verdicts(pool, groups, now))
            self._order = before = pool, used, now, groups
        return before[3]

    def _look_for_held(self) -> None:
        """Find GPUs that pods have by a device plugin: from before this driver, or another's."""
        if time.monotonic() < self._held_due:
            return
        self._held_due = time.monotonic() + HELD_LOOK_S
        assert self._pool is not None, "the caller took a snapshot"
        uuids = {gpu.uuid: gpu.id for gpu in self._pool.snapshot.gpus if gpu.uuid is not None}
        try:
            pods = self._kubelet.assigned()
        except UnreadableError as error:
            if self._held_problem.is_new(str(error)):
                structlog.get_logger().warning("GPUs in use not known", problem=str(error))
            return
        self._held_problem.is_new(None)
        ids = {
            unshared(name)
            for pod in pods
            for container in pod.containers
            for devices in container.devices or ()
            for name in devices.ids
        }
        held = frozenset(uuids[name] for name in ids if name in uuids)
        if held != self._held:
            structlog.get_logger().info("GPUs held by a device plugin", gpus=sorted(held))
        self._held = held

    def _conditions(self) -> Conditions:
        """Return what keeps GPUs from being allocated, with the time since when."""
        health: dict[str, GpuHealth] = dict(self._view())
        assert self._pool is not None, "the caller took a snapshot"
        for gpu in self._pool.snapshot.gpus:
            if gpu.is_lost and health.get(gpu.id, GpuHealth()).is_healthy:
                health[gpu.id] = GpuHealth(is_healthy=False, reason="GpuLost", said="it is lost")
        unsound = {name for name, verdict in health.items() if not verdict.is_healthy}
        troubled = unsound | self._held
        before = self._observed_since() if troubled - self._since.keys() else {}
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        self._since = {
            name: self._since.get(name) or before.get(name) or now for name in sorted(troubled)
        }
        return Conditions(
            health=health,
            since=self._since,
            held=self._held,
            evicts=self._evicts(),
        )

    def _view(self) -> HealthView:
        return {} if self._health is None else self._health.view

    def _observed_since(self) -> Mapping[str, str]:
        """Return since when the slices have tainted single GPUs, so that a new process goes on."""
        assert self._pool is not None, "the caller took a snapshot"
        singles = {each.name: each.gpus[0] for each in self._pool.sets if each.is_single}
        found = {}
        for each in (self._watch.slices or {}).values():
            for device in each.get("spec", {}).get("devices") or ():
                taints = device.get("taints") or ()
                since = next((it.get("timeAdded") for it in taints), None)
                if device.get("name") in singles and since is not None:
                    found[singles[device["name"]]] = str(since)
        return found

    def _publish(
        self, pool: Pool, groups: Sequence[Group], observed: Mapping[str, Mapping[str, Any]]
    ) -> None:
        """Write what differs.

        Raises:
            ApiUnavailable: something could not be written; what was before it is.
        """
        todo = changes(self._node, self._node_reference(), pool.counter_sets, groups, observed)
        api = self._connect()
        for body in todo.applied:
            path = f"{SLICES}/{body['metadata']['name']}"
            answer = api.apply(path, {"fieldManager": FIELD_MANAGER, "force": "true"}, body)
            if answer.status not in (200, 201):
                raise _refusal(f"PATCH {api.host}{path}", answer.status, answer.problem)
            self.writes += 1
        for name in todo.deleted:
            path = f"{SLICES}/{name}"
            answer = api.delete(path)
            if answer.status not in (200, 202, NOT_FOUND):
                raise _refusal(f"DELETE {api.host}{path}", answer.status, answer.problem)
            self.writes += 1
        if todo:
            devices = sum(len(group.devices) for group in groups)
            structlog.get_logger().info(
                "slices published",
                written=len(todo.applied),
                deleted=len(todo.deleted),
                devices=devices,
            )

    def _node_reference(self) -> Mapping[str, Any] | None:
        """Return the owner of the slices; ``None`` where the Node cannot be read yet."""
        if self._owner is None:
            answer = self._connect().get_metadata(f"{NODES}/{self._node}", {"resourceVersion": "0"})
            uid = part(answer.body, "metadata").get("uid") if answer.status == 200 else None
            if uid is not None:
                self._owner = {"apiVersion": "v1", "kind": "Node", "name": self._node, "uid": uid}
        return self._owner

    def _report(self, problem: str | None) -> None:
        self.problem = problem
        if self._problem.is_new(problem) and problem is not None:
            structlog.get_logger().warning("slices not published", problem=problem)


def _refusal(request: str, status: int, problem: str) -> ApiUnavailable:
    cure = "it is tried again later"
    if status == FORBIDDEN:
        cure = "grant `create`, `patch` and `delete` on resourceslices to the agent's account"
    if status == NOT_FOUND:
        cure = "DRA needs Kubernetes 1.34: turn dra off on older clusters"
    return ApiUnavailable(f"{request}: {problem}", cure)


def _verdicts(pool: Pool, groups: Sequence[Group], now: Conditions) -> Mapping[str, DeviceVerdict]:
    """Return the health of every device, for the status of pods that have it."""
    found = {}
    for group in groups:
        for device in group.devices:
            is_tainted = any(taint["key"] == UNHEALTHY for taint in device.get("taints", ()))
            message = ""
            backing = pool.backing(device["name"]) if is_tainted else None
            if backing is not None:
                verdicts = (now.health.get(gpu) for gpu in backing.gpus)
                message = "; ".join(
                    it.said or it.reason or "unhealthy"
                    for it in verdicts
                    if it and not it.is_healthy
                )
            found[device["name"]] = DeviceVerdict(is_healthy=not is_tainted, message=message)
    return found
