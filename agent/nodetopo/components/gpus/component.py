"""Reads the node, offers its GPUs to the kubelet, and watches them."""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from nodetopo.components.gpus.driver_pause import DriverPause
from nodetopo.components.gpus.expected import ExpectedGpuCount
from nodetopo.components.gpus.health.monitor import configured_gpus, configured_health
from nodetopo.components.gpus.metrics import GpuReading
from nodetopo.components.gpus.offer_notices import OfferNotices, conflicts
from nodetopo.components.gpus.own_pods import OwnPods
from nodetopo.components.gpus.plan import load_table
from nodetopo.components.gpus.plugins import PluginSet
from nodetopo.components.gpus.readiness import not_ready
from nodetopo.components.gpus.reconcile_loop import ReconcileLoop
from nodetopo.components.gpus.scan_loop import ScanLoop
from nodetopo.components.gpus.settings import GpuSettings
from nodetopo.deviceplugin.allocation_log import LoggedAllocation
from nodetopo.deviceplugin.devices import PluginDevice
from nodetopo.deviceplugin.state_file import read_boot_id
from nodetopo.footprint import give_back
from nodetopo.kernel.component import Component, Kernel, Metadata, labels_of
from nodetopo.kernel.events import PodEventPublisher
from nodetopo.kernel.loops import Loop
from nodetopo.kernel.requester import Requesters
from nodetopo.kernel.settings.kept import health_file
from nodetopo.kernel.shown import ResourceState, Shown
from nodetopo.model.notice import Notice
from nodetopo.probes.kubelet.podresources import PodResources
from nodetopo.probes.kubelet.state import DeviceCheckpoint

if TYPE_CHECKING:  # loaded once the kubelet has the devices
    from nodetopo.components.gpus.health.clear_socket import ClearServer

POD_EVENTS = 120
"""Events on pods an hour at most: a node that starts a pod with devices every half minute."""


class Gpus(Component):
    """Runs the loops that scan, reconcile and compare registrations.

    Attributes:
        plugins: offer the devices, HCAs included.
        health: ``None`` where health is not watched.
        pods, pod_events: ``None`` where pods are neither followed nor told.
        expected: the GPU count that the machine should have; ``None`` for a simulated machine.
        pause: requests for a free driver; ``None`` without an API server.
    """

    def __init__(self, kernel: Kernel) -> None:
        """Offer nothing yet.

        Raises:
            AgentError: the settings do not fit this machine.
        """
        super().__init__(kernel)
        settings, target = kernel.settings, kernel.target
        boot_id = read_boot_id(settings.procfs_root)
        self.health = configured_health(settings, boot_id, kernel.wake.set)
        if self.health is not None:
            kernel.nvml_events.subscribe(self.health.take_events)
        self._follow_pods(kernel)
        self._known = configured_gpus(settings, boot_id)
        self.plugins = PluginSet(
            settings,
            target.socket_dir,
            load_table(settings),
            is_simulated=not target.is_real or target.served_by is not None,
            known=self._known,
            companion=lambda: kernel.companion,
            requesters=kernel.requesters,
            pods=self.pods if settings.pod_policies else None,
        )
        state = None if settings.once else health_file(settings)
        self.expected = ExpectedGpuCount(settings, state) if target.is_real else None
        self.pause = DriverPause() if kernel.has_api else None
        self._offer_notices = OfferNotices()
        self._clears: ClearServer | None = None
        self.scans = ScanLoop(
            target,
            kernel.store,
            health=self.health,
            interval_s=lambda: kernel.settings.scan_interval_s,
            on_scan=self._take_scan,
            expected=self.expected,
            claim=lambda: None if self.pause is None else self.pause.claim,
            beat=lambda: kernel.heartbeats.beat("scan"),
        )
        self.reconcile = ReconcileLoop(
            kernel,
            self.plugins,
            health=self.health,
            reload=kernel.reload,
            notices=kernel.notices,
            is_paused=lambda: self.pause is not None and self.pause.claim is not None,
            scan=self.scans.scan_soon,
        )
        kernel.gpus, kernel.health, kernel.scans = self.plugins, self.health, self.scans
        if self.pause is not None:
            self.pause.on_change = self._take_pause
            kernel.wants_watch = True
            kernel.follow_node(self._note)

    def loops(self) -> Iterable[tuple[str, Loop]]:
        """Yield the loops that scan and reconcile, and those that wait for the registration."""
        kernel = self.kernel
        yield "scan", self.scans.run
        yield "reconcile", self.reconcile.run
        if kernel.target.is_real and not kernel.settings.once:
            if kernel.target.fake_kubelet is None:
                yield "registrations", self._run_registrations
                yield "requesters", self._run_requesters
            if self.pods is not None:
                yield "pods with devices", self._run_pods
            if self.health is not None and health_file(kernel.settings) is not None:
                yield "requests to clear GPUs", self._run_clear_requests

    def reconfigured(self, settings: GpuSettings) -> Callable[[], None]:
        """Validate *settings*; return a callable that applies them.

        Raises:
            AgentError: they cannot be used.
        """
        return self.plugins.reconfigured(settings, load_table(settings))

    def notices(self) -> Iterator[Notice]:
        """Yield the notices of the GPUs' health, the driver, and the offered devices."""
        if self.health is not None:
            yield from self.health.notices()
        if self.pause is not None:
            yield from self.pause.notices()
        if self.expected is not None:
            yield from self.expected.notices()
        if self._known is not None:
            yield from self._known.notices()
        plugins, current = self.plugins, self.kernel.store.current
        yield from self._offer_notices.of_hand_over(plugins.hand_over)
        yield from self._offer_notices.of_plugins(plugins.states)
        yield from self._offer_notices.of_missing(None if current is None else current.snapshot)
        yield from self._offer_notices.of_dra(plugins.served_by_dra)
        yield from self._offer_notices.of_cdi(plugins.cdi_problem)

    def not_ready(self) -> Iterable[str]:
        """Return the reasons that keep GPUs from pods: driver, kubelet, other plugins, or files."""
        plugins, pause, states = self.plugins, self.pause, self.plugins.states
        hand_over = plugins.hand_over
        return not_ready(
            snapshot=plugins.taken,  # an unoffered snapshot does not make the node ready
            nvml=self.kernel.target.machine.nvml(),
            is_registered={name: state.is_registered for name, state in states.items()},
            conflicts=conflicts(states),
            refusals=[refusal.reason for refusal in plugins.refusals if refusal.resource],
            cdi_problem=plugins.cdi_problem,
            hand_over_problem=None if hand_over is None else hand_over.problem,
            pause=None if pause is None else pause.text,
        )

    def observed(self) -> GpuReading:
        """Return the offered and registered resources, and the health of the GPUs."""
        plugins, health, current = self.plugins, self.health, self.kernel.store.current
        requesters = self.kernel.requesters
        states = plugins.states
        is_registered = {name: state.is_registered for name, state in states.items()}
        return GpuReading(
            snapshot=None if current is None else current.snapshot,
            registrations={name: state.registrations for name, state in states.items()},
            is_registered=is_registered or self._unoffered(),
            conflicts=conflicts(states),
            devices=self._counted_devices(),
            allocations={name: state.allocations for name, state in states.items()},
            unchosen={name: state.unchosen for name, state in states.items()},
            lookups=dict(requesters.lookups) if requesters.is_needed else {},
            strategies=tuple(map(str, plugins.strategies)) if is_registered else (),
            health={} if health is None else health.view,
            xid_counts={} if health is None else health.counts,
            nvml_failures=self.kernel.target.machine.nvml().failures,
            is_driver_paused=self.pause is not None and self.pause.claim is not None,
        )

    def shown(self) -> Shown:
        """Return the offered resources, the latest allocations, and the health of the GPUs."""
        plugins, health, settings = self.plugins, self.health, self.kernel.settings
        resources = []
        for served in plugins.served:
            policy, model, _ = served.plan.placement(served.resource)
            resource, state = served.resource, served.plugin.state
            placement = f"policy {policy}, bandwidth model {model}"
            resources.append(ResourceState.of(resource.name, resource.devices, state, placement))
        return Shown(
            settings=(
                ("mig-strategy", settings.mig_strategy),
                ("device-list-strategy", ",".join(plugins.strategies)),
                ("registration", settings.registration),
            ),
            health=None if health is None else health.view,
            xid_counts={} if health is None else health.counts,
            resources=tuple(resources),
            refusals=tuple(refusal.reason for refusal in plugins.refusals),
            allocations=tuple(
                allocation
                for served in plugins.served
                for allocation in served.plugin.recent_allocations
            ),
        )

    def wake(self) -> None:
        """Have the loop that scans see now that the daemon stops."""
        self.scans.scan_soon()
        self.kernel.requesters.wake()
        if self._clears is not None:
            self._clears.stop()

    def close(self) -> None:
        """Leave the kubelet."""
        self.plugins.stop()

    def _follow_pods(self, kernel: Kernel) -> None:
        """Find the containers of calls, and follow pods if the settings ask for it."""
        settings, target = kernel.settings, kernel.target
        self.pods: OwnPods | None = None
        self.pod_events: PodEventPublisher | None = None
        if not target.is_real or settings.once or target.fake_kubelet is not None:
            return
        kubelet = PodResources(settings.pod_resources_socket, gate=None)
        checkpoint = DeviceCheckpoint(settings.device_plugin_dir)
        kernel.requesters = Requesters(kubelet.assigned, records=checkpoint.records)
        if (settings.pod_policies or settings.tell_pods) and kernel.has_api:
            self.pod_events = PodEventPublisher(
                settings.kubeconfig, settings.node_name, budget=POD_EVENTS
            )
            kernel.writers.append(self.pod_events)
            post = self.pod_events.post if settings.pod_policies else None
            self.pods = OwnPods(settings.kubeconfig, settings.node_name, post)
        if settings.pod_policies and self.pods is not None:
            kernel.requesters.requests = self.pods.requests
            kernel.requesters.uid = self.pods.uid
            kernel.requesters.need("pod policies", is_needed=True)

    def _counted_devices(self) -> dict[str, dict[str, int]]:
        """Return how many devices of each resource are healthy and unhealthy, HCAs included."""
        offered = [served.resource for served in self.plugins.served]
        listed: dict[str, Sequence[PluginDevice]] = {
            resource.name: resource.devices for resource in offered
        }
        listed |= dict(self.kernel.companion.devices())
        counts = {}
        for name, devices in listed.items():
            healthy = sum(device.is_healthy for device in devices)
            counts[name] = {"healthy": healthy, "unhealthy": len(devices) - healthy}
        return counts

    def _unoffered(self) -> dict[str, bool]:
        """Return the resources that the kubelet lacks although they should be offered."""
        settings = self.kernel.settings
        is_dras = settings.dra or bool(self.plugins.served_by_dra)
        is_none = settings.offer_gpus == "never" or is_dras
        return {} if is_none else {settings.resource_name: False}

    def _take_scan(self) -> None:
        self.kernel.wake.set()
        give_back()

    def _take_pause(self) -> None:
        """Close or read NVML now, and report it."""
        self.scans.scan_soon()
        self.kernel.wake.set()

    def _note(self, node: Metadata | None) -> None:
        """Take the labels of the Node; called by the thread of the watch."""
        labels = labels_of(node)
        if self.expected is not None and labels is not None:
            self.expected.note(labels)
        if self.pause is not None:
            self.pause.note(node)

    def _run_registrations(self, stopping: threading.Event) -> None:
        """Compare registrations with the kubelet's own list, once there are any."""
        if self.kernel.wait_registered(stopping):
            return
        from nodetopo.components.gpus.registration_loop import loop_of  # noqa: PLC0415 - after it

        socket = self.kernel.settings.pod_resources_socket
        loop_of(lambda: self.plugins.running, socket).run(stopping)

    def _run_requesters(self, stopping: threading.Event) -> None:
        """List the pods that were admitted before, once a list is of use."""
        requesters = self.kernel.requesters
        requesters.wait_needed()
        if stopping.is_set():
            return
        with closing(PodResources(self.kernel.settings.pod_resources_socket)) as kubelet:
            requesters.prime(kubelet.assigned)
        stopping.wait()

    def _run_pods(self, stopping: threading.Event) -> None:
        """Follow the pods, post Events on them, and tell them what they got."""
        pods, events = self.pods, self.pod_events
        assert pods is not None
        assert events is not None
        self.kernel.start("pods of the node", pods.run)
        self.kernel.start("events on pods", events.run)
        if self.kernel.wait_registered(stopping):
            return
        from nodetopo.components.gpus.told_pods import ToldPodsLoop  # noqa: PLC0415 - after it

        def allocations() -> Iterator[LoggedAllocation]:
            for plugin in self.plugins.running.values():
                yield from plugin.recent_allocations

        with closing(PodResources(self.kernel.settings.pod_resources_socket)) as kubelet:
            ToldPodsLoop(
                allocations,
                kubelet.assigned,
                pods,
                events.post,
                is_told=self.kernel.settings.tell_pods,
                has_policies=self.kernel.settings.pod_policies,
            ).run(stopping)

    def _run_clear_requests(self, stopping: threading.Event) -> None:
        """Take requests to clear GPUs, once the devices are registered."""
        state = health_file(self.kernel.settings)
        assert self.health is not None
        assert state is not None
        health = self.health
        if self.kernel.wait_registered(stopping):
            return
        from nodetopo.components.gpus.health.clear_socket import server_of  # noqa: PLC0415 - same

        self._clears = server_of(
            state.parent,
            health,
            scan=self.scans.scan_soon,
            claim=lambda: None if self.pause is None else self.pause.claim,
        )
        self._clears.run(stopping)
