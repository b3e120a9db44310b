"""How devices reach containers: the way that the node's setup asks for, and the files it needs."""

from collections.abc import Collection, Iterable, Iterator

import structlog
from msgspec.structs import replace

from nodetopo.components.gpus.plan import PluginPlan
from nodetopo.deviceplugin.devices import Minors
from nodetopo.deviceplugin.hand_over import (
    HandOver,
    NodeSetup,
    State,
    choose,
    file_state,
    read_setup,
)
from nodetopo.deviceplugin.host_nodes import channel_node, present_nodes
from nodetopo.deviceplugin.resources import Offer, offerable, only_healthy
from nodetopo.deviceplugin.response import cdi_names
from nodetopo.errors import UnreadableError
from nodetopo.model.gpu import Gpu
from nodetopo.model.snapshot import Snapshot


class HandOverFiles:
    """Chooses how containers get devices, and writes the host files that they need.

    One thread changes it; any thread can read it.
    """

    def __init__(self, *, is_simulated: bool) -> None:
        """Write nothing yet; for a simulated machine, never read the host's files."""
        # Whether pods have claims of our DRA driver although it is off; their containers need the
        # CDI names of GPUs that are not offered.
        self.has_claims = False
        # The strategy detected from the node's setup; ``None`` where a setting gives it or nothing
        # is offered.
        self.chosen: HandOver | None = None
        # Why our CDI specification is wrong or missing; ``None`` if it is right, or unused.
        self.cdi_problem: str | None = None
        self._is_simulated = is_simulated
        self._warnings: tuple[str, ...] = ()
        self._setup = NodeSetup()
        self._setup_seen: tuple[State, NodeSetup] | None = None  # when it was read
        self._cdi_devices: frozenset[str] = frozenset()
        self._nodes: frozenset[str] = frozenset()

    def has_changed(self, plan: PluginPlan) -> bool:
        """Return whether the files that determined the strategy have changed.

        It stats some ten files, 0.04 ms of CPU.
        """
        if self.chosen is None or self._is_simulated:
            return False
        before = self._setup_seen
        return before is None or file_state(plan.settings.host_root, self._setup) != before[0]

    def choose(self, plan: PluginPlan, snapshot: Snapshot, offered: Offer) -> PluginPlan:
        """Return *plan* with the hand-over strategy for *offered*, and log a change of it."""
        if not plan.is_auto or not offered.resources:
            self.chosen = None
            return plan
        setup = NodeSetup.of(snapshot.host)
        if not self._is_simulated:
            # A scan can have begun before the files changed, so it only triggers a reading.
            state = file_state(plan.settings.host_root, self._setup), setup
            if state != self._setup_seen:
                folders = self._setup.folders
                self._setup = read_setup(plan.settings.host_root, plan.settings.procfs_root)
                # Other folders than those that were looked at: only the next look can tell.
                self._setup_seen = state if self._setup.folders == folders else None
            setup = self._setup
        devices = (device for resource in offered.resources for device in resource.devices)
        chosen = choose(
            setup,
            kind=plan.settings.cdi_kind,
            devices={device.uuid for device in devices if device.is_healthy},
            driver=snapshot.driver_version,
            writes_spec=plan.cdi is not None,
        )
        if chosen != self.chosen:
            log = structlog.get_logger()
            line = log.info if chosen.problem is None else log.error
            problem = {} if chosen.problem is None else {"problem": chosen.problem}
            line("hand-over chosen", strategy=chosen.strategy, reason=chosen.reason, **problem)
        self.chosen = chosen
        return plan.handing_over_by(chosen.strategy)

    def write(self, plan: PluginPlan, known: Snapshot, offered: Offer, minors: Minors) -> Offer:
        """Write the files, and log problems with them.

        Return *offered* with every device Unhealthy whose CDI name our specifications do not
        define: the runtime would fail to start its containers.
        """
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
            if text not in self._warnings:
                structlog.get_logger().warning("files for containers", about=text)
        self._warnings = warnings
        self.cdi_problem = problem
        return offered

    def cdi_names(self, plan: PluginPlan, uuids: Collection[str]) -> tuple[str, ...]:
        """Return the CDI names of GPUs and MIG devices, with those of channels and features."""
        if missing := sorted(set(uuids) - self._cdi_devices):
            raise UnreadableError(
                f"no CDI specification of ours has {', '.join(missing)}",
                self.cdi_problem or "see the log of the agent for why",
            )
        plugin = plan.plugin
        channels = [n for n in plugin.imex_channels if channel_node(n) in self._nodes]
        return cdi_names(uuids, plugin, channels, self._nodes)


def _publishable_uuids(gpus: Iterable[Gpu]) -> Iterator[str]:
    """Yield the devices that claims can get: GPUs, and MIG devices in place of their GPUs."""
    for gpu in gpus:
        if gpu.uuid is None or gpu.is_lost:
            continue
        if gpu.mig is not None and gpu.mig.is_enabled:
            yield from (instance.uuid for instance in gpu.mig.instances)
        else:
            yield gpu.uuid
