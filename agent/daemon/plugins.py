"""The device plugins of the node: one for each resource that the latest snapshot offers."""

import threading
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType

import structlog

from agent.allocation.measured import BandwidthTable
from agent.allocation.remainder import Ends
from agent.allocation.rules import Rules as PlacementRules
from agent.components.rdma.settings import HcaSettings
from agent.daemon.placement import Placement, placement_rules
from agent.daemon.plugin_plan import PluginPlan
from agent.daemon.rdma_plugins import HcaPlugins, ServedPool
from agent.daemon.state_files import KnownGpus
from agent.deviceplugin import sockets
from agent.deviceplugin.devices import Minors, remembered
from agent.deviceplugin.hand_over import HandOver, NodeSetup, State, choose, file_state, read_setup
from agent.deviceplugin.host_nodes import channel_node, present_nodes
from agent.deviceplugin.plugin import Absence, DevicePlugin, PluginState
from agent.deviceplugin.resources import (
    Offer,
    Refusal,
    Resource,
    offer,
    offerable,
    only_healthy,
)
from agent.deviceplugin.response import GpuAnswers, cdi_names
from agent.deviceplugin.service import Answers
from agent.deviceplugin.settings import Strategy
from agent.dra.neighbours import NOBODY, ServedByDra
from agent.errors import InputError, UnreadableError
from agent.health.status import HealthView
from agent.model.gpu import Gpu
from agent.model.snapshot import Snapshot
from agent.rdma.pairing import Pairing
from agent.rdma.pools import RdmaConfig
from agent.rdmaplugin.answers import JointGpuAnswers
from agent.rdmaplugin.composite import PairAnswers, Pairs, paired, with_pairs
from agent.rdmaplugin.joint import JointPlacement


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedResource:
    """A resource, the plugin that offers it, and what chooses among its devices."""

    resource: Resource
    plugin: DevicePlugin
    placement: Placement
    plan: PluginPlan


class PluginSet:
    """Keeps a plugin for each resource; resources come and go with snapshots and settings.

    Threads that change what is served wait for one another; any thread may read it meanwhile.

    Attributes:
        has_claims: whether pods have claims of our DRA driver though it is off; their containers
            need the CDI names of GPUs that are not offered.
    """

    def __init__(
        self,
        settings: HcaSettings,
        socket_dir: Path,
        table: BandwidthTable | None,
        rdma: RdmaConfig | None = None,
        *,
        is_simulated: bool = False,
        known: KnownGpus | None = None,
    ) -> None:
        """Serve nothing yet.

        Args:
            settings: what is offered, and how.
            socket_dir: where the kubelet's socket is.
            table: measured bandwidths, if there are any.
            rdma: the pools of HCAs that are offered; ``None`` for none.
            is_simulated: the GPUs do not exist.
            known: remembers GPUs over a restart of the process.

        Raises:
            InputError: no socket fits into the path of *socket_dir*, or a setting is invalid.
            UnreadableError: the node lacks what a setting requires.
        """
        self.has_claims = False
        self._socket_dir = socket_dir
        self._is_simulated = is_simulated
        self._joint = JointPlacement()
        self._hcas = HcaPlugins(socket_dir, self._joint)
        self._lock = threading.Lock()  # held by whoever changes what is below
        self._plan = self._new_plan(settings, table, rdma)
        self._known = known
        self._gpus: tuple[Gpu, ...] = () if known is None else known.load()
        self._is_stopped = False
        self._health: HealthView = MappingProxyType({})
        self._unhealthy_hcas: Collection[str] = frozenset()
        self._served_by_dra = NOBODY
        self._heeded = NOBODY
        self._offer = Offer(resources=())
        self._pairs = Pairs(hcas=MappingProxyType({}))
        self._file_warnings: tuple[str, ...] = ()
        self._cdi_problem: str | None = None
        self._hand_over: HandOver | None = None
        self._setup = NodeSetup()
        self._setup_seen: tuple[State, NodeSetup] | None = None  # when it was read
        self._taken: Snapshot | None = None
        self._published: Snapshot | None = None
        self._cdi_devices: frozenset[str] = frozenset()
        self._nodes: frozenset[str] = frozenset()
        self._served: Mapping[str, ServedResource] = MappingProxyType({})  # replaced, not changed
        self._log_warnings()

    @property
    def taken(self) -> Snapshot | None:
        """The snapshot that all the rest is about; ``None`` before the first."""
        return self._taken

    def with_lost(self, snapshot: Snapshot) -> Snapshot:
        """Return *snapshot* with lost GPUs, too, as it is once it was taken."""
        return replace(snapshot, gpus=remembered(self._gpus, snapshot))

    @property
    def published(self) -> Snapshot | None:
        """The same with lost GPUs, too; another object only where it says something new."""
        return self._published

    def offerable(self, snapshot: Snapshot) -> tuple[Gpu, ...]:
        """Return the GPUs of *snapshot* that the settings do not exclude."""
        return tuple(offerable(snapshot.gpus, self._plan.rules))

    def placement_rules(self, snapshot: Snapshot) -> PlacementRules:
        """Return by what whole GPUs of *snapshot* are chosen."""
        return placement_rules(
            snapshot, *self._plan.placement_of(self._plan.settings.resource_name)
        )

    def cdi_names(self, uuids: Collection[str]) -> tuple[str, ...]:
        """Return the CDI names of GPUs and MIG devices, with those of channels and features.

        Raises:
            UnreadableError: our specification on the host does not define one of them.
        """
        plan = self._plan
        if missing := sorted(set(uuids) - self._cdi_devices):
            raise UnreadableError(
                f"no CDI specification of ours has {', '.join(missing)}",
                self._cdi_problem or "see the log of the agent for why",
            )
        plugin = plan.plugin
        channels = [n for n in plugin.imex_channels if channel_node(n) in self._nodes]
        return cdi_names(uuids, plugin, channels, self._nodes)

    @property
    def served(self) -> tuple[ServedResource, ...]:
        """What is served now, whole GPUs first, then by name."""
        return tuple(self._served.values())

    @property
    def pools(self) -> tuple[ServedPool, ...]:
        """The pools of HCAs that are served now, in the order of their file."""
        return self._hcas.served

    @property
    def offers_hcas(self) -> bool:
        """Whether the settings name HCAs that are offered, alone or together with GPUs."""
        plan = self._plan
        return plan.rdma.config is not None or plan.settings.gpu_hca_resource is not None

    @property
    def served_by_dra(self) -> ServedByDra:
        """What DRA drivers give out, as far as it keeps something from being offered."""
        return self._heeded

    @property
    def joint(self) -> JointPlacement:
        """What GPUs and HCAs of one container follow each other by."""
        return self._joint

    @property
    def refusals(self) -> tuple[Refusal, ...]:
        """What that snapshot has that is not offered, and why."""
        return (*self._offer.refusals, *self._hcas.refusals)

    @property
    def cdi_problem(self) -> str | None:
        """Why our CDI specification is not what it should be; ``None`` if it is, or is not ours."""
        return self._cdi_problem or self._hcas.cdi_problem

    @property
    def hand_over(self) -> HandOver | None:
        """The way that the node's setup asks for.

        ``None`` where a setting says it, or where nothing is offered.
        """
        return self._hand_over

    @property
    def strategies(self) -> tuple[Strategy, ...]:
        """How devices are handed to containers, as far as it is decided."""
        plan = self._plan
        chosen = self._hand_over
        plan = plan if chosen is None else plan.handing_over_by(chosen.strategy)
        return plan.plugin.strategies

    @property
    def running(self) -> Mapping[str, DevicePlugin]:
        """Every plugin by its resource, those of GPUs first."""
        return dict(self._plugins())

    @property
    def states(self) -> Mapping[str, PluginState]:
        """The state of each plugin, by resource."""
        return {name: plugin.state for name, plugin in self._plugins()}

    @property
    def absences(self) -> Mapping[str, tuple[Absence, ...]]:
        """When no kubelet had the devices of a resource from us, by resource."""
        return {name: plugin.absences for name, plugin in self._plugins()}

    @property
    def is_registered(self) -> bool:
        """Whether the kubelet has all that there is to offer; not before it is known what."""
        states = self.states.values()
        return self._taken is not None and all(state.is_registered for state in states)

    @property
    def is_decided(self) -> bool:
        """Whether the kubelet has all that there is to offer, or it is known why it has not."""
        states = self.states.values()
        return self._taken is not None and all(
            state.is_registered or state.last_problem is not None or state.conflict is not None
            for state in states
        )

    @property
    def lost(self) -> tuple[PluginState, ...]:
        """The plugins that reach no kubelet again without a restart of the process."""
        states = self.states.values()
        return tuple(state for state in states if state.is_detached or not state.is_running)

    def take(
        self,
        snapshot: Snapshot,
        health: HealthView = MappingProxyType({}),
        unhealthy_hcas: Collection[str] = frozenset(),
        served_by_dra: ServedByDra = NOBODY,
    ) -> None:
        """Offer what *snapshot* has from now on, each GPU as healthy as *health* says.

        A resource that it lacks is withdrawn. *unhealthy_hcas* are keys of HCAs. GPUs that other
        DRA drivers give out are not offered.
        """
        with self._lock:
            if self._is_stopped:
                return
            self._gpus = remembered(self._gpus, snapshot)
            self._health = health
            self._unhealthy_hcas = unhealthy_hcas
            self._served_by_dra = served_by_dra
            self._apply(snapshot)
            self._taken = snapshot

    def look_again(self) -> None:
        """Choose the way to hand over devices anew, where the files that decide it have changed.

        It costs a look at the state of some ten files, 0.04 ms of CPU.
        """
        plan = self._plan
        if self._taken is None or self._hand_over is None or self._is_simulated:
            return
        seen = self._setup_seen
        if seen is None or file_state(plan.settings.host_root, self._setup) != seen[0]:
            with self._lock:
                if not self._is_stopped:
                    self._apply(self._taken)

    def reconfigure(
        self, settings: HcaSettings, table: BandwidthTable | None, rdma: RdmaConfig | None = None
    ) -> None:
        """Offer what the snapshot has as *settings* say, from now on.

        A plugin whose resource keeps its name, and what containers are given, goes on without
        a new registration; its devices and its placement may change. Any other ends before its
        successor begins, so that no two of ours ever serve one resource.

        Raises:
            InputError: a setting is invalid; then nothing has changed.
            UnreadableError: the node lacks what a setting requires; the same.
        """
        plan = self._new_plan(settings, table, rdma)
        with self._lock:
            if self._is_stopped:
                return
            self._plan = plan
            self._log_warnings()
            if self._taken is not None:
                self._apply(self._taken)

    def expect(self, ends: Ends) -> None:
        """Choose by when devices in use are expected to be free, given by id."""
        for served in self.served:
            served.placement.expect(ends)

    def stop(self) -> None:
        """Leave the kubelet, all at once; it counts the devices for some minutes more."""
        with self._lock:  # a plugin that is being started is served by now
            self._is_stopped = True
            plugins = [plugin for _, plugin in self._plugins()]
        with ThreadPoolExecutor(max(1, len(plugins)), thread_name_prefix="stop") as pool:
            for plugin in plugins:
                pool.submit(plugin.stop)

    def _plugins(self) -> Iterator[tuple[str, DevicePlugin]]:
        """Yield every plugin by its resource, those of GPUs first."""
        yield from ((name, served.plugin) for name, served in self._served.items())
        yield from ((pool.resource.name, pool.plugin) for pool in self._hcas.served)

    def _new_plan(
        self, settings: HcaSettings, table: BandwidthTable | None, rdma: RdmaConfig | None
    ) -> PluginPlan:
        plan = PluginPlan.of(settings, table, rdma, is_simulated=self._is_simulated)
        sockets.check_path_lengths(settings.resource_name, plan.directories(self._socket_dir))
        return plan

    def _log_warnings(self) -> None:
        for text in self._plan.warnings:
            structlog.get_logger().warning("setting", about=text)

    def _apply(self, snapshot: Snapshot) -> None:
        """Make what is served what the plan and *snapshot* ask for."""
        plan = self._plan
        minors = plan.minors()
        known = replace(snapshot, gpus=self._gpus)
        if self._published is None or replace(self._published, captured_at=None) != replace(
            known, captured_at=None
        ):
            self._published = known
        if plan.settings.offer_gpus != "never" and not plan.settings.dra:
            offered = self._without_dra(plan, known, minors)
        else:
            offered, self._heeded = Offer(resources=()), NOBODY
        pairing = Pairing(snapshot=self._hcas.remember(known))
        offered = self._with_pairs(plan, pairing, offered)
        self._log_changes(offered)
        plan = self._handing_over(plan, snapshot, offered)
        # Before a container may need them.
        offered = self._write_files(plan, known, offered, minors)

        # End the plugins that cannot go on.
        names = {resource.name for resource in offered.resources}
        kept = {}
        for name, served in self._served.items():
            if name not in names:
                served.plugin.retire()
            elif served.plan.plugin != plan.plugin or (
                name == plan.settings.gpu_hca_resource
                and served.plan.rdma.answers != plan.rdma.answers
            ):
                served.plugin.stop()
            else:
                kept[name] = served

        now = {}
        for resource in offered.resources:
            try:
                sockets.check_path_lengths(resource.name, plan.directories(self._socket_dir))
            except InputError as error:  # the others may have shorter names
                structlog.get_logger().error(
                    "resource not served", resource=resource.name, problem=str(error)
                )
                continue
            now[resource.name] = self._serve(plan, resource, snapshot, kept.get(resource.name))
        self._served = MappingProxyType(now)
        self._offer = offered
        self._serve_hcas(plan, pairing)

    def _without_dra(self, plan: PluginPlan, known: Snapshot, minors: Minors) -> Offer:
        """Return what is offered: all, or by the setting ``auto`` what no DRA driver gives out."""
        served = NOBODY if plan.settings.offer_gpus == "always" else self._served_by_dra
        own = [gpu for gpu in known.gpus if not served.has(gpu.id)]
        offered = offer(replace(known, gpus=tuple(own)), plan.rules, minors, self._health)
        names = {it.name for it in offered.resources}
        theirs = {name: by for name, by in served.resources.items() if name in names}
        self._heeded = replace(served, resources=theirs)
        resources = tuple(it for it in offered.resources if it.name not in theirs)
        refusals = [Refusal(resource=None, reason=reason) for reason in self._heeded.sentences()]
        return replace(offered, resources=resources, refusals=(*offered.refusals, *refusals))

    def _with_pairs(self, plan: PluginPlan, pairing: Pairing, offered: Offer) -> Offer:
        """Return *offered* with GPUs together with HCAs, where the settings ask for it."""
        resource = plan.settings.gpu_hca_resource
        if resource is None:
            self._pairs = Pairs(hcas=MappingProxyType({}))
            return offered
        gpus = [one.id for offer in offered.resources if offer.is_whole for one in offer.devices]
        self._pairs = paired(pairing, self._hcas.known, gpus, self._pairs.hcas, resource)
        lost = {one.key for one in self._hcas.known if one.is_lost}.union(self._unhealthy_hcas)
        return with_pairs(offered, resource, self._pairs, lambda key: key not in lost)

    def _serve_hcas(self, plan: PluginPlan, pairing: Pairing) -> None:
        """Offer the pools, which follow the GPUs of the first resource that has whole ones."""
        for name, served in self._served.items():
            if served.resource.is_whole and name != plan.settings.gpu_hca_resource:
                devices = served.resource.devices
                free = tuple(device.id for device in devices if device.is_healthy)
                self._joint.expect(free, served.placement.prefer)
                break
        else:
            self._joint.expect((), None)
        way = plan.registration(self._socket_dir), plan.settings.plugins_registry_dir
        taken = frozenset(self._pairs.hcas.values())
        self._hcas.take(plan.rdma, pairing, self._unhealthy_hcas, way, taken)

    def _handing_over(self, plan: PluginPlan, snapshot: Snapshot, offered: Offer) -> PluginPlan:
        """Return *plan* with the way to hand over what is *offered*, and log a new one."""
        if not plan.is_auto or not offered.resources:
            self._hand_over = None
            return plan
        setup = NodeSetup.of(snapshot.host)
        if not self._is_simulated:
            # A scan may have begun before the files changed, so that it only says when to read.
            seen = file_state(plan.settings.host_root, self._setup), setup
            if seen != self._setup_seen:
                known = self._setup.folders
                self._setup = read_setup(plan.settings.host_root, plan.settings.procfs_root)
                # Other folders than those that were looked at: only the next look can tell.
                self._setup_seen = seen if self._setup.folders == known else None
            setup = self._setup
        devices = (device for resource in offered.resources for device in resource.devices)
        chosen = choose(
            setup,
            kind=plan.settings.cdi_kind,
            devices={device.uuid for device in devices if device.is_healthy},
            driver=snapshot.driver_version,
            writes_spec=plan.cdi is not None,
        )
        if chosen != self._hand_over:
            log = structlog.get_logger()
            line = log.info if chosen.problem is None else log.error
            problem = {} if chosen.problem is None else {"problem": chosen.problem}
            line("hand-over chosen", strategy=chosen.strategy, reason=chosen.reason, **problem)
        self._hand_over = chosen
        return plan.handing_over_by(chosen.strategy)

    def _serve(
        self,
        plan: PluginPlan,
        resource: Resource,
        snapshot: Snapshot,
        before: ServedResource | None,
    ) -> ServedResource:
        """Serve *resource*, by the plugin that served it *before* if there is one."""
        rules = plan.placement(resource)
        if before is not None:
            placement, plugin = before.placement, before.plugin
            placement.configure(*rules)
        else:
            placement = Placement(*rules)
            name, gpus = resource.name, partial(getattr, placement, "gpus")
            prefer = self._joint.following(name, gpus, placement.prefer)
            answers: Answers = GpuAnswers(plan.plugin)
            if name == plan.settings.gpu_hca_resource:
                prefer = placement.prefer
                hcas = partial(self._hcas.response, plan.rdma)
                answers = PairAnswers(answers, hcas, lambda: self._pairs.hcas, self._joint)
            else:
                answers = JointGpuAnswers(answers, self._joint, name, gpus)
            plugin = DevicePlugin(
                name,
                self._socket_dir,
                prefer,
                answers,
                structlog.get_logger(),
                explain=placement.explain,
                registration=plan.registration(self._socket_dir),
                plugins_registry=plan.settings.plugins_registry_dir,
            )
        placement.take(snapshot, resource, self._health)
        plugin.update(resource.devices)
        if before is None:
            plugin.start()
        return ServedResource(resource=resource, plugin=plugin, placement=placement, plan=plan)

    def _write_files(
        self, plan: PluginPlan, known: Snapshot, offered: Offer, minors: Minors
    ) -> Offer:
        """Write the host's files that containers get to see, and log what is wrong with them.

        Return *offered* with every device Unhealthy that containers would be given by a name that
        no CDI specification of ours defines: the runtime would start none of them.
        """
        if self._known is not None:
            self._known.save(known.gpus)
        problem = None
        warnings: tuple[str, ...] = ()
        if plan.cdi is not None:
            gpus = tuple(offerable(known.gpus, plan.rules))
            resources = offered.resources if plan.plugin.names_cdi_devices else ()
            devices = (device for resource in resources for device in resource.devices)
            wanted = dict.fromkeys(device.uuid for device in devices if device.is_healthy)
            if plan.settings.dra or self.has_claims:
                wanted = dict.fromkeys(_publishable_uuids(gpus))
            report = plan.cdi.update(replace(known, gpus=gpus), minors, wanted)
            self._cdi_devices = report.devices
            if plan.settings.dra:
                self._nodes = frozenset(present_nodes(plan.plugin).names)
            problem, warnings = report.problem, report.warnings
            if resources:
                offered = only_healthy(offered, report.devices)
        if plan.nccl is not None:
            warnings += tuple(plan.nccl.update(known))
        for text in warnings:
            if text not in self._file_warnings:
                structlog.get_logger().warning("files for containers", about=text)
        self._file_warnings = warnings
        self._cdi_problem = problem
        return offered

    def _log_changes(self, offered: Offer) -> None:
        """Log what is new in what is offered, and in what is not."""
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
                log.warning("exclusion names no GPU", name=name)
        names = {resource.unshared_name for resource in offered.resources}
        if names == {resource.unshared_name for resource in self._offer.resources}:
            return
        log.info("resources offered", resources=[resource.name for resource in offered.resources])
        offered_names = names | {resource.name for resource in offered.resources}
        if unused := sorted(self._plan.named() - offered_names):
            log.info("settings not used", resources=unused)


def _publishable_uuids(gpus: Iterable[Gpu]) -> Iterator[str]:
    """Yield what claims may be given: GPUs, and MIG devices in place of theirs."""
    for gpu in gpus:
        if gpu.uuid is None or gpu.is_lost:
            continue
        if gpu.mig is not None and gpu.mig.is_enabled:
            yield from (instance.uuid for instance in gpu.mig.instances)
        else:
            yield gpu.uuid
