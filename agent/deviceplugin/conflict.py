"""Another maker's plugin that serves the same resource, and how to tell one from a bad day.

A kubelet takes whoever registered last and says nothing to the one before: up to 1.36 it even
keeps that one's stream open and takes its lists too, and at the end of any of the streams it
drops the newest plugin (plugin/v1beta1/handler.go; since 1.37 it drops the one that ended).
Two plugins that each register again whenever they are dropped would go on for ever, and pods
get devices of the one by the word of the other. So ours steps back:

- Sockets whose name begins as ours do are other starts of this program. They are no conflict:
  an overlap heals by registering again.
- A socket in the kubelet's directory that has the name a known plugin gives to its socket for
  this resource (:func:`known_maker`), and that somebody listens on, is a conflict at once.
- Other sockets are left alone until the kubelet, without having restarted, has dropped us
  :data:`FIGHT_LOSSES` times within :data:`FIGHT_S`. Then each is asked for its devices, once:
  one of ours among them is the proof. Asking is not free (plugins written after NVIDIA's lose
  their next change of health to a second stream), which is why it takes a reason.
- In a conflict we do not register, and say so. What is registered stays: to leave would make
  kubelets up to 1.36 drop the other plugin. Every :data:`RETRY_S` we register once all the
  same, because a plugin may live and listen and be registered no more.
- When nobody listens on that socket any longer, we register within a second.
"""

from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Thread

import grpc
from structlog.typing import FilteringBoundLogger

from agent.allocation.shared.devices import SEPARATOR
from agent.deviceplugin import sockets
from agent.deviceplugin.devices import PluginDevice
from agent.deviceplugin.pb import deviceplugin_pb2 as pb
from agent.deviceplugin.pb import deviceplugin_pb2_grpc as service
from agent.deviceplugin.registration import CHANNEL_OPTIONS

FIGHT_LOSSES = 3
FIGHT_S = 60.0
"""So many streams lost within so many seconds are more than an overlap at a roll-out costs."""

SAME_LOSS_S = 0.1
"""Streams of two ways that end within so short a time were lost together."""

RETRY_S = 300.0
"""How often we register in spite of a conflict: a choice between peace and a node whose GPUs
nobody serves. It is also how long the kubelet keeps a plugin's devices without it
(1.36 pkg/kubelet/cm/devicemanager, endpointStopGracePeriod)."""

ASK_TIMEOUT_S = 2.0
MOST_ASKED = 16
"""What one question may take, and how many sockets are asked: a node has a handful."""


@dataclass(frozen=True, slots=True)
class Rival:
    """A plugin that serves our resource; *identity* tells one start of it from the next."""

    path: Path
    identity: sockets.Identity
    proof: str

    def sentence(self, resource: str) -> str:
        """Return what an operator should know."""
        return f"{self.proof} serves {resource} on {self.path}: remove it, or this one"


def known_maker(resource: str, socket_name: str) -> str | None:
    """Return whose socket for *resource* has that name, if it is a known one's.

    Sources: NVIDIA's device plugin (k8s-device-plugin v0.19.0, internal/plugin/server.go,
    getPluginSocketPath), whose name others kept that began as it; GKE's
    (container-engine-accelerators, cmd/nvidia_gpu/nvidia_gpu.go), which has one resource.
    """
    domain, _, name = resource.partition("/")
    if domain != "nvidia.com":
        return None
    if socket_name == f"nvidia-{name}.sock":
        return "NVIDIA's device plugin"
    if name == "gpu" and socket_name.startswith("nvidiaGPU-"):
        return "GKE's device plugin"
    return None


class Rivals:
    """Look for a rival; one thread calls all this."""

    def __init__(
        self,
        resource: str,
        directory: Path,
        devices: Callable[[], Sequence[PluginDevice]],
        log: FilteringBoundLogger,
    ) -> None:
        self._resource = resource
        self._directory = directory
        self._devices = devices
        self._log = log
        self._losses: deque[float] = deque(maxlen=FIGHT_LOSSES)
        self._proven: frozenset[tuple[Path, sockets.Identity]] = frozenset()
        self._asking: Thread | None = None

    def look(self) -> Rival | None:
        """Return the first rival that lives now."""
        for path in sockets.foreign(self._directory):
            identity = sockets.identity(path)
            proof = self._proof(path, identity)
            if identity and proof and sockets.is_listening(path):
                return Rival(path, identity, proof)
        return None

    def lost(self, now: float) -> None:
        """Take note that the kubelet dropped us; the third time soon asks who the others are."""
        if self._losses and now - self._losses[-1] < SAME_LOSS_S:
            return
        self._losses.append(now)
        is_fight = len(self._losses) == FIGHT_LOSSES and now - self._losses[0] <= FIGHT_S
        if is_fight and (self._asking is None or not self._asking.is_alive()):
            self._losses.clear()
            self._asking = Thread(target=self._ask, name="rivals", daemon=True)
            self._asking.start()

    def forget_losses(self) -> None:
        """Take note that the kubelet is another one, which explains them."""
        self._losses.clear()

    def _proof(self, path: Path, identity: sockets.Identity | None) -> str | None:
        if identity and (path, identity) in self._proven:
            return "another device plugin"
        return known_maker(self._resource, path.name)

    def _ask(self) -> None:
        ours = {device.uuid for device in self._devices()}
        proven = set()
        for path in sockets.foreign(self._directory)[:MOST_ASKED]:
            identity = sockets.identity(path)
            if identity and not known_maker(self._resource, path.name) and offers(path, ours):
                proven.add((path, identity))
        self._proven = frozenset(proven)
        names = sorted(path.name for path, _ in proven)
        self._log.warning("dropped by the kubelet again and again", rivals=names)


def offers(socket: Path, uuids: Collection[str]) -> bool:
    """Ask the plugin on *socket* for its devices; tell whether one of *uuids* is among them."""
    target = f"unix://{socket.absolute()}"
    with grpc.insecure_channel(target, options=CHANNEL_OPTIONS) as channel:
        stream = service.DevicePluginStub(channel).ListAndWatch(pb.Empty(), timeout=ASK_TIMEOUT_S)
        try:
            first = next(stream, pb.ListAndWatchResponse())
        except grpc.RpcError:
            return False  # no device plugin, or one that does not answer
        finally:
            stream.cancel()
    return any(device.ID.partition(SEPARATOR)[0] in uuids for device in first.devices)
