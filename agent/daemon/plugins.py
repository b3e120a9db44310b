"""The device plugins of the node: one for each resource that the latest snapshot offers."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

import structlog

from agent.config.settings import Settings
from agent.daemon.placement import Placement, Placements
from agent.daemon.plugin_plan import Plan
from agent.daemon.state_files import KnownGpus
from agent.deviceplugin import sockets
from agent.deviceplugin.allocation_log import Asked
from agent.deviceplugin.devices import Minors, remembered
from agent.deviceplugin.plugin import DevicePlugin, PluginState
from agent.deviceplugin.resources import Offer, Refusal, Resource, offer, offerable
from agent.deviceplugin.settings import PluginSettings
from agent.errors import InputError
from agent.health.status import HealthView
from agent.model.gpu import Gpu
from agent.model.snapshot import Snapshot


class Desk:
    """Answers for one resource by the placement that it has now, which may be another later."""

    def __init__(self, placement: Placement) -> None:
        self.placement = placement

    def prefer(
        self, available: Sequence[str], required: Sequence[str], size: int
    ) -> tuple[str, ...]:
        """Return the ids for the kubelet."""
        return self.placement.prefer(available, required, size)

    def explain(self, ids: Sequence[str], asked: Asked | None) -> Mapping[str, object]:
        """Return the keys of the log line for *ids*."""
        return self.placement.explain(ids, asked)


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A resource, the plugin that offers it, and what chooses among its devices."""

    resource: Resource
    plugin: DevicePlugin
    desk: Desk
    plan: Plan

    @property
    def placement(self) -> Placement:
        """What chooses among the devices now."""
        return self.desk.placement


class Offering:
    """Keep a plugin for each resource; resources come and go with snapshots and settings.

    Those who change what is served wait for one another; any may read it meanwhile.
    """

    def __init__(
        self,
        settings: Settings,
        socket_dir: Path,
        placements: Placements,
        *,
        is_simulated: bool = False,
        known: KnownGpus | None = None,
    ) -> None:
        """Serve nothing yet; *known* remembers GPUs over a restart of the process.

        Raises:
            InputError: no socket fits into the path of *socket_dir*, or a setting does not do.
            UnreadableError: the node lacks what a setting requires.
        """
        self._socket_dir = socket_dir
        self._is_simulated = is_simulated
        self._turn = threading.Lock()  # of those who change what is below
        self._plan = self._planned(settings, placements)
        self._known = known
        self._gpus: tuple[Gpu, ...] = () if known is None else known.load()
        self._is_stopped = False
        self._health: HealthView = MappingProxyType({})
        self._offered = Offer(resources=())
        self._file_warnings: tuple[str, ...] = ()
        self._taken: Snapshot | None = None
        self._served: Mapping[str, Served] = MappingProxyType({})  # replaced, never changed
        self._warn(self._plan)

    @property
    def taken(self) -> Snapshot | None:
        """The snapshot that all the rest is about; ``None`` before the first."""
        return self._taken

    @property
    def served(self) -> tuple[Served, ...]:
        """What is served now, whole GPUs first, then by name."""
        return tuple(self._served.values())

    @property
    def refusals(self) -> tuple[Refusal, ...]:
        """What that snapshot has that is not offered, and why."""
        return self._offered.refusals

    @property
    def states(self) -> Mapping[str, PluginState]:
        """Where each plugin stands, by resource."""
        return {name: one.plugin.state for name, one in self._served.items()}

    @property
    def is_registered(self) -> bool:
        """Whether the kubelet has all that there is to offer; not before it is known what."""
        return self._taken is not None and all(it.is_registered for it in self.states.values())

    @property
    def lost(self) -> tuple[PluginState, ...]:
        """The plugins that reach no kubelet again without a restart of the process."""
        states = self.states.values()
        return tuple(state for state in states if state.is_detached or not state.is_running)

    def take(self, snapshot: Snapshot, health: HealthView = MappingProxyType({})) -> None:
        """Offer what *snapshot* has from now on, each GPU as healthy as *health* says.

        A resource that it lacks is taken back.
        """
        with self._turn:
            if self._is_stopped:
                return
            self._gpus = remembered(self._gpus, snapshot)
            self._health = health
            self._offer(snapshot)
            self._taken = snapshot

    def reconfigure(self, settings: Settings, placements: Placements) -> None:
        """Offer what the snapshot has as *settings* ask for, from now on.

        A plugin whose resource keeps its name, and what containers are given, goes on without
        a new registration; its devices and its placement may change. Any other ends before its
        successor begins, so that no two of ours ever serve one resource.

        Raises:
            InputError: a setting does not do; then nothing has changed.
            UnreadableError: the node lacks what a setting requires; the same.
        """
        plan = self._planned(settings, placements)
        with self._turn:
            if self._is_stopped:
                return
            self._plan = plan
            self._warn(plan)
            if self._taken is not None:
                self._offer(self._taken)

    def prepare(self) -> None:
        """Work out now what requests would have to wait for; nobody else waits meanwhile.

        It takes seconds on an irregular box of 16 GPUs, and nothing the second time.
        """
        for one in self.served:
            one.placement.prepare()

    def stop(self) -> None:
        """Leave the kubelet, all at once; it counts the devices for some minutes more."""
        with self._turn:  # what is being started is served when it is our turn
            self._is_stopped = True
            served = self.served
        with ThreadPoolExecutor(max(1, len(served)), thread_name_prefix="stop") as pool:
            for one in served:
                pool.submit(one.plugin.stop)

    def _planned(self, settings: Settings, placements: Placements) -> Plan:
        plan = Plan.of(settings, placements, is_simulated=self._is_simulated)
        sockets.check_path_lengths(settings.resource_name, plan.directories(self._socket_dir))
        return plan

    def _offer(self, snapshot: Snapshot) -> None:
        """Make what is served what the plan and *snapshot* ask for."""
        minors = self._plan.minors()
        known = replace(snapshot, gpus=self._gpus)
        offered = offer(known, self._plan.rules, minors, self._health)
        self._tell(offered)
        self._tell_of_files(self._write(known, minors))  # before a container may need them
        kept = self._release({resource.name for resource in offered.resources})
        self._served = MappingProxyType(
            {one.resource.name: one for one in self._serve_all(offered.resources, snapshot, kept)}
        )
        self._offered = offered

    def _release(self, offered: set[str]) -> Mapping[str, Served]:
        """End the plugins that cannot go on, and return those that can."""
        kept = {}
        for name, one in self._served.items():
            if name not in offered:
                one.plugin.retire()
            elif one.plan.plugin != self._plan.plugin:
                one.plugin.stop()
            else:
                kept[name] = one
        return kept

    def _serve_all(
        self, resources: Sequence[Resource], snapshot: Snapshot, kept: Mapping[str, Served]
    ) -> Iterator[Served]:
        for resource in resources:
            problem = _path_problem(resource.name, self._plan.directories(self._socket_dir))
            if problem is None:
                yield self._serve(resource, snapshot, kept.get(resource.name))
            else:  # the others may have shorter names
                log = structlog.get_logger()
                log.error("resource not served", resource=resource.name, problem=problem)

    def _serve(self, resource: Resource, snapshot: Snapshot, before: Served | None) -> Served:
        plan = self._plan
        if before is None:
            desk = Desk(self._placed(plan.placements.placement(resource), snapshot, resource))
            plugin = self._plugin(resource.name, desk, plan.plugin)
        else:
            desk, plugin = before.desk, before.plugin
            is_same = plan.places_like(before.plan)
            placement = desk.placement if is_same else plan.placements.placement(resource)
            desk.placement = self._placed(placement, snapshot, resource)
        plugin.update(resource.devices)
        if before is None:
            plugin.start()
        return Served(resource=resource, plugin=plugin, desk=desk, plan=plan)

    def _placed(self, placement: Placement, snapshot: Snapshot, resource: Resource) -> Placement:
        """Return *placement* with *resource* on *snapshot*, unless that knows no GPU."""
        if snapshot.gpus:
            placement.take(snapshot, resource, self._health)
        return placement

    def _plugin(self, name: str, desk: Desk, settings: PluginSettings) -> DevicePlugin:
        return DevicePlugin(
            name,
            self._socket_dir,
            desk.prefer,
            settings,
            structlog.get_logger(),
            explain=desk.explain,
            registration=self._plan.registration(self._socket_dir),
            plugins_registry=self._plan.settings.plugins_registry_dir,
        )

    def _warn(self, plan: Plan) -> None:
        for text in plan.warnings:
            structlog.get_logger().warning("setting", about=text)

    def _write(self, known: Snapshot, minors: Minors) -> tuple[str, ...]:
        """Write the host's files that containers get to see; return what is wrong with them."""
        if self._known is not None:
            self._known.save(known.gpus)
        plan = self._plan
        offered = replace(known, gpus=tuple(offerable(known.gpus, plan.rules)))
        return (
            *(() if plan.cdi is None else plan.cdi.update(offered, minors)),
            *(() if plan.nccl is None else plan.nccl.update(known)),
        )

    def _tell_of_files(self, warnings: tuple[str, ...]) -> None:
        for text in warnings:
            if text not in self._file_warnings:
                structlog.get_logger().warning("files for containers", about=text)
        self._file_warnings = warnings

    def _tell(self, offered: Offer) -> None:
        """Log what is new about what is offered, and what is not."""
        log = structlog.get_logger()
        for refusal in offered.refusals:
            if refusal in self._offered.refusals:
                continue
            if refusal.resource is None:
                log.warning("devices not offered", reason=refusal.reason)
            else:
                log.error("resource not offered", resource=refusal.resource, reason=refusal.reason)
        for name in offered.unused_exclusions:
            if name not in self._offered.unused_exclusions:
                log.warning("exclusion names no GPU", name=name)
        names = {resource.unshared_name for resource in offered.resources}
        if names == {resource.unshared_name for resource in self._offered.resources}:
            return
        log.info("resources offered", resources=[resource.name for resource in offered.resources])
        offered_names = names | {resource.name for resource in offered.resources}
        if unused := sorted(self._plan.named() - offered_names):
            log.info("settings not used", resources=unused)


def _path_problem(resource: str, directories: Sequence[Path]) -> str | None:
    try:
        sockets.check_path_lengths(resource, directories)
    except InputError as error:
        return str(error)
    return None
