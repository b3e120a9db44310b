"""One resource's device plugin: the service and its life with the kubelet, put together."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog
from structlog.typing import FilteringBoundLogger

from agent.deviceplugin.allocation_log import Explain, no_reasons
from agent.deviceplugin.devices import PluginDevice
from agent.deviceplugin.lifecycle import Lifecycle
from agent.deviceplugin.registration_part import Registration
from agent.deviceplugin.service import GpuServicer, Prefer
from agent.deviceplugin.settings import PluginSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginState:
    """Where a plugin stands at one moment.

    Attributes:
        is_running: between :meth:`DevicePlugin.start` and the end; false besides means a
            fault of ours, and a restart is the cure.
        is_detached: the socket directory was deleted while a mount held it; only a new
            container sees the new directory.
        registrations: how often the kubelet has accepted the resource since the start.
        endpoint: file name of the socket served; ``None`` while the directory is missing.
        stream_count: clients that watch the device list now.
        devices: how many devices are offered, healthy or not.
        allocations: how many containers were given some.
        last_problem: why the last attempt to serve or register failed; ``None`` after one
            that did not. A device list that no kubelet would take is such a reason too.
        conflict: which other maker's plugin serves the resource, as a sentence; ``None`` while
            none does. The plugin does not register then, see :mod:`agent.deviceplugin.conflict`.
    """

    is_running: bool
    is_registered: bool
    is_detached: bool
    registrations: int
    endpoint: str | None
    stream_count: int
    devices: int
    allocations: int
    last_problem: str | None
    conflict: str | None


class DevicePlugin:
    """Offer the devices of one resource to the kubelet.

    Registration waits for the first :meth:`update` that has a device: a node whose GPUs are
    not known yet must not look like one that has none.
    """

    def __init__(
        self,
        resource: str,
        socket_dir: Path,
        prefer: Prefer,
        settings: PluginSettings | None = None,
        log: FilteringBoundLogger | None = None,
        *,
        explain: Explain = no_reasons,
        registration: Registration = Registration.SOCKET,
        plugins_registry: Path | None = None,
    ) -> None:
        """Prepare to offer *resource*.

        Raises:
            InputError: *registration* needs the directory *plugins_registry*, which is not given.
        """
        bound = (log or structlog.get_logger()).bind(resource=resource)
        self._log = bound
        self._servicer = GpuServicer(
            resource, prefer, settings or PluginSettings(), bound, explain=explain
        )
        self._lifecycle = Lifecycle(
            resource,
            socket_dir,
            self._servicer,
            bound,
            registration=registration,
            plugins_registry=plugins_registry,
        )

    @property
    def state(self) -> PluginState:
        """Where the plugin stands now."""
        return PluginState(
            is_running=self._lifecycle.is_running,
            is_registered=self._lifecycle.is_registered,
            is_detached=self._lifecycle.is_detached,
            registrations=self._lifecycle.registrations,
            endpoint=self._lifecycle.endpoint,
            stream_count=self._lifecycle.streams_open,
            devices=len(self._servicer.devices),
            allocations=self._servicer.allocations,
            last_problem=self._servicer.refusal or self._lifecycle.last_problem,
            conflict=self._lifecycle.conflict,
        )

    def start(self) -> None:
        """Serve and register in the background; call it once.

        Raises:
            InputError: no socket fits into the directory's path.
        """
        self._lifecycle.start()

    def update(self, devices: Sequence[PluginDevice]) -> None:
        """Offer *devices* from now on; a list equal to the last one is not sent again.

        One that no kubelet would take is not offered: the last one stays.
        """
        refused_before = self._servicer.refusal
        if self._servicer.update(devices):
            unhealthy = [device.id for device in devices if not device.is_healthy]
            self._log.info("device list changed", devices=len(devices), unhealthy=unhealthy)
        refused = self._servicer.refusal
        if refused is not None and refused != refused_before:
            self._log.error("device list refused", problem=refused)

    def retire(self) -> None:
        """Leave because the resource is no more: the kubelet learns that it has no devices.

        It would count them for five minutes otherwise (kubelet 1.36
        pkg/kubelet/cm/devicemanager, endpointStopGracePeriod).
        """
        self.update(())
        self.stop()

    def stop(self) -> None:
        """Leave within a second; the kubelet then counts the devices as unhealthy."""
        self._lifecycle.stop()
