"""The device plugins of the node: one for each resource that the latest snapshot offers."""

import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import MappingProxyType

import structlog
from msgspec import Struct
from msgspec.structs import replace

from nodetopo.allocation.measured import BandwidthTable
from nodetopo.allocation.rules import Rules as PlacementRules
from nodetopo.components.gpus.hand_over_files import HandOverFiles
from nodetopo.components.gpus.own_pods import OwnPods, PodChoice
from nodetopo.components.gpus.placement import Placement, placement_rules
from nodetopo.components.gpus.plan import PluginPlan
from nodetopo.components.gpus.settings import GpuSettings
from nodetopo.components.gpus.state_files import KnownGpus
from nodetopo.deviceplugin import sockets
from nodetopo.deviceplugin.devices import Minors, remembered
from nodetopo.deviceplugin.hand_over import HandOver
from nodetopo.deviceplugin.keeper import PluginKeeper, Servable
from nodetopo.deviceplugin.plugin import Absence, DevicePlugin, PluginState
from nodetopo.deviceplugin.resources import Offer, Refusal, Resource, offer, offerable
from nodetopo.deviceplugin.response import GpuAnswers
from nodetopo.deviceplugin.settings import Strategy
from nodetopo.kernel.offers import Companion, NoCompanion
from nodetopo.kernel.places import Places
from nodetopo.kernel.requester import Requesters
from nodetopo.model.gpu import Gpu
from nodetopo.model.gpu_health import HealthView
from nodetopo.model.snapshot import Snapshot
from nodetopo.topology.neighbours import NOBODY, ServedByDra


class ServedResource(Struct, frozen=True, kw_only=True):
    """A resource, the plugin that offers it, and the placement that chooses its devices."""

    resource: Resource
    plugin: DevicePlugin
    placement: Placement
    plan: PluginPlan


class PluginSet:
    """Offers the GPUs of snapshots by the settings, and lets a companion offer other devices.

    Threads that change what is served wait for one another; any thread can read it meanwhile.
    """

    def __init__(
        self,
        settings: GpuSettings,
        socket_dir: Path,
        table: BandwidthTable | None,
        *,
        is_simulated: bool = False,
        known: KnownGpus | None = None,
        companion: Callable[[], Companion] = NoCompanion,
        requesters: Requesters | None = None,
        pods: OwnPods | None = None,
    ) -> None:
        """Serve nothing yet.

        Args:
            settings: the resources to offer, and the way to offer them.
            socket_dir: where the kubelet's socket is.
            table: measured bandwidths, if there are any.
            is_simulated: the GPUs do not exist.
            known: remembers GPUs over a restart of the process.
            companion: returns the current companion, which offers other devices.
            requesters: find the container of a call; ``None`` where none is looked up.
            pods: have the policies of pods; ``None`` where these do not count.

        Raises:
            InputError: no socket fits into the path of *socket_dir*, or a setting is invalid.
            UnreadableError: the node lacks what a setting requires.
        """
        self._socket_dir = socket_dir
        self._is_simulated = is_simulated
        self._companion = companion
        self._requesters, self._pods = requesters, pods
        self._lock = threading.Lock()  # held while changing the attributes below
        self._plan, self._places = self._planned(settings, table)
        self._known = known
        self._gpus: tuple[Gpu, ...] = () if known is None else known.load()
        self._is_stopped = False
        self._health: HealthView = MappingProxyType({})
        self._served_by_dra = NOBODY
        self._heeded = NOBODY
        self._offer = Offer(resources=())
        self._files = HandOverFiles(is_simulated=is_simulated)
        # The snapshot that is offered; ``None`` before the first.
        self.taken: Snapshot | None = None
        # The snapshot with lost GPUs; a new object only if more than its time differs.
        self.published: Snapshot | None = None
        # Whether NVML was read since the start; until then GPUs are those of a file.
        self.has_read = False
        self._keeper = PluginKeeper[ServedResource]()
        self._log_warnings()

    @property
    def has_claims(self) -> bool:
        """Whether pods have claims of our disabled DRA driver (:class:`HandOverFiles`)."""
        return self._files.has_claims

    @has_claims.setter
    def has_claims(self, has_claims: bool) -> None:
        self._files.has_claims = has_claims

    def with_lost(self, snapshot: Snapshot) -> Snapshot:
        """Return *snapshot* with the GPUs that have disappeared since startup added back."""
        return replace(snapshot, gpus=remembered(self._gpus, snapshot))

    def offerable(self, snapshot: Snapshot) -> tuple[Gpu, ...]:
        """Return the GPUs of *snapshot* that the settings do not exclude."""
        return tuple(offerable(snapshot.gpus, self._plan.rules))

    def placement_rules(self, snapshot: Snapshot) -> PlacementRules:
        """Return the rules that choose whole GPUs of *snapshot*."""
        return placement_rules(
            snapshot, *self._plan.placement_of(self._plan.settings.resource_name)
        )

    def cdi_names(self, uuids: Collection[str]) -> tuple[str, ...]:
        """Return the CDI names of GPUs and MIG devices, with those of channels and features.

        Raises:
            UnreadableError: our specification on the host does not define one of them.
        """
        return self._files.cdi_names(self._plan, uuids)

    @property
    def served(self) -> tuple[ServedResource, ...]:
        """The served resources, whole GPUs first, then by name."""
        return tuple(self._keeper.served.values())

    @property
    def served_by_dra(self) -> ServedByDra:
        """The GPUs and resources that are not offered because DRA drivers give them out."""
        return self._heeded

    @property
    def refusals(self) -> tuple[Refusal, ...]:
        """Devices of that snapshot that are not offered, and why."""
        return (*self._offer.refusals, *self._companion().refusals)

    @property
    def cdi_problem(self) -> str | None:
        """Why our CDI specification is wrong or missing; ``None`` if it is right, or unused."""
        return self._files.cdi_problem or self._companion().cdi_problem

    @property
    def hand_over(self) -> HandOver | None:
        """The strategy detected from the node's setup.

        ``None`` where a setting gives it or nothing is offered.
        """
        return self._files.chosen

    @property
    def strategies(self) -> tuple[Strategy, ...]:
        """How devices are handed to containers, as decided so far."""
        plan, chosen = self._plan, self._files.chosen
        plan = plan if chosen is None else plan.handing_over_by(chosen.strategy)
        return plan.plugin.strategies

    @property
    def running(self) -> Mapping[str, DevicePlugin]:
        """Every plugin by its resource, GPUs' plugins first."""
        return dict(self._plugins())

    @property
    def states(self) -> Mapping[str, PluginState]:
        """The state of each plugin, by resource."""
        return {name: plugin.state for name, plugin in self._plugins()}

    @property
    def absences(self) -> Mapping[str, tuple[Absence, ...]]:
        """When no kubelet had the devices of a resource from its plugin, by resource."""
        return {name: plugin.absences for name, plugin in self._plugins()}

    @property
    def is_registered(self) -> bool:
        """Whether every resource is registered; False before the first snapshot."""
        states = self.states.values()
        return self.taken is not None and all(state.is_registered for state in states)

    @property
    def is_decided(self) -> bool:
        """Whether each resource is registered or the reason against it is known."""
        states = self.states.values()
        return self.taken is not None and all(
            state.is_registered or state.last_problem is not None or state.conflict is not None
            for state in states
        )

    @property
    def lost(self) -> tuple[PluginState, ...]:
        """The plugins that only a restart of the process can register again."""
        states = self.states.values()
        return tuple(state for state in states if state.is_detached or not state.is_running)

    def take(
        self,
        snapshot: Snapshot,
        health: HealthView = MappingProxyType({}),
        served_by_dra: ServedByDra = NOBODY,
    ) -> None:
        """Offer the devices of *snapshot*, with the health of *health*, and withdraw all others.

        A resource that it lacks is withdrawn. GPUs that DRA drivers give out are not offered.
        """
        with self._lock:
            if self._is_stopped:
                return
            late = {} if self._known is None else {gpu.id: gpu for gpu in self._known.late()}
            before = {**late, **{gpu.id: gpu for gpu in self._gpus}}
            self._gpus = remembered(tuple(before.values()), snapshot)
            self._health = health
            self._served_by_dra = served_by_dra
            self._apply(snapshot)
            self.taken = snapshot

    def look_again(self) -> None:
        """Choose again how to hand over devices if the files that decide it have changed."""
        if self.taken is not None and self._files.has_changed(self._plan):
            with self._lock:
                if not self._is_stopped:
                    self._apply(self.taken)

    def reconfigured(
        self, settings: GpuSettings, table: BandwidthTable | None
    ) -> Callable[[], None]:
        """Validate *settings*; return a callable that applies them to the snapshot's devices.

        A plugin keeps running without a new registration if its resource keeps its name and
        containers get the same; its devices and its placement can change. Any other plugin ends
        before its successor starts, so that no two plugins of this process serve one resource.

        Raises:
            InputError: a setting is invalid.
            UnreadableError: the node lacks what a setting requires.
        """
        plan, places = self._planned(settings, table)

        def offer_by_them() -> None:
            with self._lock:
                if self._is_stopped:
                    return
                self._plan, self._places = plan, places
                self._log_warnings()
                if self.taken is not None:
                    self._apply(self.taken)

        return offer_by_them

    def stop(self) -> None:
        """Stop all plugins at once; the kubelet counts their devices for some minutes more."""
        with self._lock:  # a plugin that is being started is served by now
            self._is_stopped = True
            plugins = [plugin for _, plugin in self._plugins()]
        with ThreadPoolExecutor(max(1, len(plugins)), thread_name_prefix="stop") as pool:
            for plugin in plugins:
                pool.submit(plugin.stop)

    def _plugins(self) -> Iterator[tuple[str, DevicePlugin]]:
        """Yield every plugin by its resource, GPUs' plugins first."""
        yield from ((name, served.plugin) for name, served in self._keeper.served.items())
        yield from self._companion().plugins()

    def _planned(
        self, settings: GpuSettings, table: BandwidthTable | None
    ) -> tuple[PluginPlan, Places]:
        plan = PluginPlan.of(settings, table, is_simulated=self._is_simulated)
        places = Places.of(settings, self._socket_dir, is_simulated=self._is_simulated)
        sockets.check_path_lengths(settings.resource_name, places.directories)
        return plan, places

    def _log_warnings(self) -> None:
        for text in self._plan.warnings:
            structlog.get_logger().warning("setting", about=text)

    def _apply(self, snapshot: Snapshot) -> None:
        """Serve the resources of the plan on *snapshot*."""
        plan = self._plan
        minors = plan.minors()
        known = replace(snapshot, gpus=self._gpus)
        is_unread = any(issue.is_whole for issue in snapshot.issues)
        self.has_read = self.has_read or bool(snapshot.gpus) or not is_unread
        if self.published is None or replace(self.published, captured_at=None) != replace(
            known, captured_at=None
        ):
            self.published = known
        if plan.settings.offer_gpus != "never" and not plan.settings.dra:
            offered = self._without_dra(plan, known, minors)
        else:
            offered, self._heeded = Offer(resources=()), NOBODY
        companion = self._companion()
        offered = companion.join(known, offered)
        self._log_changes(offered)
        plan = self._files.choose(plan, snapshot, offered)
        if self._known is not None:
            self._known.save(known.gpus)
        # Before a container can need them.
        offered = self._files.write(plan, known, offered, minors)

        wanted = {
            resource.name: Servable(
                devices=resource.devices,
                identity=(plan.plugin, companion.identity(resource.name)),
                serve=partial(self._serve, plan, resource, snapshot),
            )
            for resource in offered.resources
        }
        self._keeper.keep(wanted, self._places.directories)
        self._offer = offered
        companion.serve(
            [
                (served.resource, self._choice(served.resource.name, served.placement))
                for served in self.served
            ]
        )

    def _without_dra(self, plan: PluginPlan, known: Snapshot, minors: Minors) -> Offer:
        """Return the offer: all devices, or with ``auto`` those that no DRA driver gives out."""
        served = NOBODY if plan.settings.offer_gpus == "always" else self._served_by_dra
        own = [gpu for gpu in known.gpus if not served.has(gpu.id)]
        known, last = replace(known, gpus=tuple(own)), self._offer.resources
        offered = offer(known, plan.rules, minors, self._health, last)
        names = {resource.name for resource in offered.resources}
        theirs = {name: by for name, by in served.resources.items() if name in names}
        self._heeded = replace(served, resources=theirs)
        resources = tuple(resource for resource in offered.resources if resource.name not in theirs)
        refusals = [Refusal(resource=None, reason=reason) for reason in self._heeded.sentences()]
        return replace(offered, resources=resources, refusals=(*offered.refusals, *refusals))

    def _serve(
        self,
        plan: PluginPlan,
        resource: Resource,
        snapshot: Snapshot,
        before: ServedResource | None,
    ) -> ServedResource:
        """Return *resource* as served, keeping the plugin that served it *before* if any."""
        rules = plan.placement(resource)
        if before is not None:
            placement, plugin = before.placement, before.plugin
            placement.configure(*rules)
        else:
            placement = Placement(*rules)
            name, gpus = resource.name, partial(getattr, placement, "gpus")
            prefer, answers = self._companion().follow(
                name, gpus, self._choice(name, placement), GpuAnswers(plan.plugin)
            )
            if self._requesters is not None:
                prefer, answers = self._requesters.around(name, prefer, answers)
            plugin = DevicePlugin(
                name,
                self._places.socket_dir,
                prefer,
                answers,
                structlog.get_logger(),
                explain=placement.explain,
                registration=self._places.registration,
                plugins_registry=self._places.registry,
            )
        placement.take(snapshot, resource, self._health)
        return ServedResource(resource=resource, plugin=plugin, placement=placement, plan=plan)

    def _choice(self, resource: str, placement: Placement) -> PodChoice:
        return PodChoice(resource, placement, self._requesters, self._pods)

    def _log_changes(self, offered: Offer) -> None:
        """Log new refusals, and the resources if they have changed."""
        log = structlog.get_logger()
        for refusal in offered.refusals:
            if refusal in self._offer.refusals:
                continue
            if refusal.resource is None:
                log.warning("devices not offered", reason=refusal.reason)
            else:
                log.error("resource not offered", resource=refusal.resource, reason=refusal.reason)
        for name in offered.unused_exclusions:
            if name not in self._offer.unused_exclusions:
                log.warning("exclusion matches no GPU", name=name)
        names = {resource.unshared_name for resource in offered.resources}
        if names == {resource.unshared_name for resource in self._offer.resources}:
            return
        log.info("resources offered", resources=[resource.name for resource in offered.resources])
        offered_names = names | {resource.name for resource in offered.resources}
        if unused := sorted(self._plan.named() - offered_names):
            log.info("settings not used", resources=unused)
