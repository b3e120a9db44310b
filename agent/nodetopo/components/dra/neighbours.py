"""Watches for DRA drivers that give out GPUs of this node, for the device plugin to step back."""

import operator
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import structlog

from nodetopo.deviceplugin import sockets
from nodetopo.deviceplugin.host_files import is_directory
from nodetopo.errors import ApiUnavailable, UnreadableError
from nodetopo.kubeapi.apply import Connect
from nodetopo.kubeapi.client import MAX_LIST
from nodetopo.kubeapi.lists import list_objects
from nodetopo.kubeapi.slices import Slices, SliceWatch
from nodetopo.model.dra import API, DRIVER, ClaimedDevice, DeviceKey, PublishedDevice
from nodetopo.model.snapshot import Snapshot
from nodetopo.outage import Outage
from nodetopo.probes.dra import devices_of
from nodetopo.probes.kubelet.podresources import PodResources
from nodetopo.topology.neighbours import (
    GPU_DRIVERS,
    NOBODY,
    ServedByDra,
    served_by_dra,
    with_claims,
)

CLASSES = f"{API}/deviceclasses"

CLASSES_S = 600.0
"""How often DeviceClasses are read, while another driver has GPUs of the node: they change when a
driver is installed.
"""

CLAIMS_S = 5.0
"""Interval between questions about claimed devices, while they decide the offer."""

CLAIMS_TIMEOUT_S = 1.0
"""How long an answer can take: the asking loop has other work."""

Claims = Callable[[], tuple[ClaimedDevice, ...] | None]
"""Returns the node's claimed devices; ``None`` if the kubelet does not answer."""


def claims_of(socket: Path) -> Claims:
    """Return a function that asks the kubelet's PodResources API at *socket*.

    Without its directory, because it is not mounted, no claims are known.
    """
    kubelet = PodResources(socket, timeout_s=CLAIMS_TIMEOUT_S)

    def claims() -> tuple[ClaimedDevice, ...] | None:
        if not is_directory(socket.parent):
            return ()
        try:
            return tuple(device for pod in kubelet.held() for device in pod.claimed)
        except UnreadableError:
            return None

    return claims


class DevicesSeen:
    """Devices that drivers publish, and removed ones that pods can still hold."""

    def __init__(self) -> None:
        self.slices: Slices | None = None
        # present, gone: by the name that claims use; replaced, not changed
        self.present: Mapping[DeviceKey, PublishedDevice] = {}
        self.gone: Mapping[DeviceKey, PublishedDevice] = {}

    def take(self, slices: Slices, drivers: Callable[[str], bool] = lambda _: True) -> bool:
        """Record the published devices of *drivers*; return whether more are gone now.

        Each slice counts separately: a pool being renewed has slices of two generations, and the
        devices of the older one are not free.
        """
        counted = [
            body for body in slices.values() if drivers(str(body.get("spec", {}).get("driver")))
        ]
        present = {device.key: device for each in counted for device in devices_of([each])}
        before = {**self.gone, **self.present}
        gone = {key: it for key, it in before.items() if key not in present}
        is_news = bool(gone.keys() - self.gone.keys())
        self.slices, self.present, self.gone = slices, present, gone
        return is_news

    def keep(self, claimed: Iterable[ClaimedDevice]) -> None:
        """Forget removed devices that are not *claimed* by any pod."""
        keys = {device.key for device in claimed}
        self.gone = {key: it for key, it in self.gone.items() if key in keys}


class DraNeighbours:
    """The devices that DRA drivers give out; the reconcile loop asks at each step.

    Args:
        watch: of the node's slices; run by the caller.
        registry: the kubelet's ``plugins_registry``, where drivers have sockets; it can be missing.
    """

    def __init__(
        self,
        watch: SliceWatch,
        connect: Connect,
        registry: Path,
        claims: Claims,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._watch = watch
        self._connect = connect
        self._registry = registry
        self._claims = claims
        self._clock = clock
        self._classes: tuple[Mapping[str, Any], ...] = ()
        self._classes_due = 0.0
        self._problem = Outage()
        self._seen: tuple[object, ...] = (None,) * 5
        self._served = NOBODY
        # Replaced as a whole: several threads read the devices.
        self._read: tuple[Slices | None, tuple[PublishedDevice, ...]] = None, ()
        self._devices = DevicesSeen()
        self._claimed: tuple[ClaimedDevice, ...] = ()
        self._is_answered = False  # by the kubelet, at the last question
        self._claimed_due = 0.0

    @property
    def devices(self) -> tuple[PublishedDevice, ...] | None:
        slices = self._watch.slices
        if slices is None:
            return None
        read, devices = self._read
        if slices is not read:
            devices = devices_of(slices.values())
            self._read = slices, devices
        return devices

    def look(self, snapshot: Snapshot) -> ServedByDra:
        """Return the devices given out by drivers on *snapshot*, lost GPUs included.

        It returns the same object while nothing changes.
        """
        slices = self._watch.slices
        if slices is None:
            self._ask_kubelet()
            found = ServedByDra(suspect=next(filter(self._runs, GPU_DRIVERS), None))
            return self._keep(with_claims(found, self._claimed, (), snapshot))
        if slices is not self._devices.slices:
            self._devices.take(slices)
            if self._devices.gone:
                self._claimed_due = 0.0
        if self._devices.gone or not self._is_answered or self._served.held or self._served.suspect:
            self._ask_kubelet()
        if any(each.get("spec", {}).get("driver") != DRIVER for each in slices.values()):
            self._read_classes()
        else:
            self._classes, self._classes_due = (), 0.0
        seen = (slices, self._classes, snapshot, self._claimed, self._is_answered)
        if not all(map(operator.is_, seen, self._seen)):
            self._seen = seen
            present, gone = self._devices.present.values(), self._devices.gone.values()
            devices = present if self._is_answered else (*present, *gone)
            found = served_by_dra(devices, self._classes, snapshot)
            return self._keep(with_claims(found, self._claimed, (*present, *gone), snapshot))
        return self._served

    def _ask_kubelet(self) -> None:
        """Ask for claimed devices if that is due; a failure keeps the previous ones."""
        now = self._clock()
        if now < self._claimed_due:
            return
        self._claimed_due = now + CLAIMS_S
        claimed = self._claims()
        self._is_answered = claimed is not None
        if claimed is not None:
            if claimed != self._claimed:
                self._claimed = claimed
            self._devices.keep(claimed)

    def _keep(self, found: ServedByDra) -> ServedByDra:
        if found != self._served:
            self._served = found
        return self._served

    def _runs(self, driver: str) -> bool:
        """Return whether a plugin of *driver* answers on this node.

        The name of its socket has the pod's uid where the driver is upgraded by surge
        (k8s.io/dynamic-resource-allocation v0.36 kubeletplugin, RollingUpdate).
        """
        return any(
            sockets.is_listening(path)
            for path in sockets.all_in(self._registry)
            if path.name.startswith(f"{driver}-") and path.name.endswith("-reg.sock")
        )

    def _read_classes(self) -> None:
        """Read the DeviceClasses if that is due; those known before stay where it fails."""
        now = self._clock()
        if now < self._classes_due:
            return
        self._classes_due = now + CLASSES_S
        try:
            self._classes = tuple(list_objects(self._connect, CLASSES, MAX_LIST))
        except ApiUnavailable as error:
            if self._problem.failed(str(error)):
                structlog.get_logger().warning("DeviceClasses not known", problem=str(error))
        else:
            self._problem.ended()
