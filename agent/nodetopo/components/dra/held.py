"""GPUs held without our DRA driver: from a device plugin, or by another driver's claim.

A GPU that a pod got elsewhere must not be free in our slices: the scheduler would give it to a
second pod. Only the kubelet's PodResources API lists such GPUs, and each List has a price: up to
1.37, a List during a device plugin's Allocate can make the kubelet give out a device twice when a
pod has just ended (pkg/kubelet/cm/devicemanager/manager.go, UpdateAllocatedDevices). So a List
follows only a change of the kubelet's device checkpoint, which it replaces after each Allocate.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import structlog
from msgspec import Struct

from nodetopo.deviceplugin import sockets
from nodetopo.deviceplugin.host_files import is_directory
from nodetopo.errors import UnreadableError
from nodetopo.model.dra import DRIVER, ClaimedDevice
from nodetopo.model.node import unshared
from nodetopo.model.snapshot import Snapshot
from nodetopo.outage import Outage
from nodetopo.probes.kubelet.podresources import PodResources
from nodetopo.probes.kubelet.state import CHECKPOINT

LOOK_S = 30.0
"""Longest time between two looks."""

RELEASE_S = 5.0
"""The same while pods have GPUs: the end of a pod leaves no trace in the checkpoint."""

TIMEOUT_S = 2.0
"""How long an answer can take: taints for unhealthy GPUs wait for it."""


class Holdings(Struct, frozen=True, kw_only=True):
    """Devices held by pods."""

    devices: frozenset[str] = frozenset()  # of device plugins, ids; UUIDs for GPUs and MIG devices
    claimed: tuple[ClaimedDevice, ...] = ()  # of other drivers' claims, sorted
    own: tuple[ClaimedDevice, ...] = ()  # of our driver's claims

    def gpus(self, snapshot: Snapshot) -> Mapping[str, frozenset[str]]:
        """Return the ids of the GPUs that device plugins gave out, each with the UUIDs of it."""
        found: dict[str, set[str]] = {}
        for gpu in snapshot.gpus:
            parts = gpu.mig.instances if gpu.mig is not None else ()
            for uuid in (gpu.uuid, *(part.uuid for part in parts)):
                if uuid is not None and uuid in self.devices:
                    found.setdefault(gpu.id, set()).add(uuid)
        return {gpu: frozenset(uuids) for gpu, uuids in found.items()}


class HeldDevices:
    """Follows pods' devices; one thread calls :meth:`keep_up`, any thread can call :meth:`look`.

    Args:
        kubelet: not shared with other users.
        directory: the kubelet's, of device plugins, with its checkpoint.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        kubelet: PodResources,
        directory: Path,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._kubelet = kubelet
        self._checkpoint = directory / CHECKPOINT
        self._clock = clock
        self._lock = threading.Lock()  # the kubelet is asked by one thread at a time
        self._known: Holdings | None = None
        self._stamp: sockets.Identity | None = None
        self._is_answered = False
        self._due = 0.0
        self._problem: str | None = None
        self._logged = Outage()

    @property
    def known(self) -> Holdings | None:
        """The kubelet's last answer; ``None`` before the first."""
        return self._known

    @property
    def is_answered(self) -> bool:
        """Whether the kubelet answered the last request."""
        return self._is_answered

    @property
    def problem(self) -> str | None:
        """Why the kubelet's last answer is missing; ``None`` if it is not."""
        return self._problem

    def keep_up(self) -> None:
        """Look if the devices might have changed, or the last look failed."""
        stamp = sockets.identity(self._checkpoint)
        is_blind = stamp is None and not is_directory(self._checkpoint.parent)
        is_due = is_blind or self._clock() >= self._due
        if is_due or not self._is_answered or stamp != self._stamp:
            self.look()

    def look(self) -> Holdings | None:
        """Ask the kubelet, and return the known holdings: an answer is kept until the next."""
        with self._lock:
            # Before the question, so that the next look sees changes in between.
            self._stamp = sockets.identity(self._checkpoint)
            try:
                pods = self._kubelet.held()
            except UnreadableError as error:
                self._is_answered, self._problem = False, str(error)
                if self._logged.failed(self._problem):
                    structlog.get_logger().warning("GPUs in use not known", problem=self._problem)
                return self._known
            self._logged.ended()
            self._is_answered, self._problem = True, None
            claimed = tuple(device for pod in pods for device in pod.claimed)
            holdings = Holdings(
                devices=frozenset(unshared(device.id) for pod in pods for device in pod.devices),
                claimed=tuple(device for device in claimed if device.driver != DRIVER),
                own=tuple(device for device in claimed if device.driver == DRIVER),
            )
            if holdings != self._known:
                self._known = holdings
            is_any = holdings.devices or holdings.claimed
            self._due = self._clock() + (RELEASE_S if is_any else LOOK_S)
            return self._known

    def close(self) -> None:
        with self._lock:
            self._kubelet.close()
