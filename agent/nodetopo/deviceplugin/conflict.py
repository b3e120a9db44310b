"""Detect another vendor's device plugin that serves the same resource.

A kubelet uses the plugin that registered last and does not notify the replaced one. Up to 1.36 it
even keeps the earlier stream open and applies its lists too, and at the end of any of the streams
it drops the newest plugin (plugin/v1beta1/handler.go; since 1.37 it drops the one whose stream
ended). Two plugins that each re-register whenever they are dropped would never stop, and pods would
get devices of one by the other's description. So this plugin yields:

- Sockets with our prefix belong to other instances of this program, which do not conflict:
  :mod:`nodetopo.deviceplugin.siblings`.
- A socket in the kubelet's directory with a known plugin's name for this resource
  (:func:`known_maker`) that accepts connections is a conflict at once.
- Other sockets are left alone until the kubelet, without a restart, has dropped us
  :data:`FIGHT_LOSSES` times within :data:`FIGHT_S`. Then each is asked for its devices, once: one
  of our devices in its list proves a conflict. Asking has a price (plugins derived from NVIDIA's
  lose their next health change to a second stream), so it needs this evidence.
- During a conflict the plugin does not register, and reports the conflict. An existing registration
  stays: leaving would make kubelets up to 1.36 drop the other plugin. Every :data:`RETRY_S` it
  registers once nevertheless, because another plugin can still listen without being registered.
- Once that socket is closed, the plugin registers within a second.
"""

from collections import deque
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Thread

import grpc
from msgspec import Struct
from structlog.typing import FilteringBoundLogger

from nodetopo.deviceplugin import sockets
from nodetopo.deviceplugin.devices import PluginDevice
from nodetopo.deviceplugin.pb import deviceplugin_pb2 as pb
from nodetopo.deviceplugin.pb import deviceplugin_pb2_grpc as service
from nodetopo.deviceplugin.registration import CHANNEL_OPTIONS
from nodetopo.model.kubelet_state import OUR_SOCKETS
from nodetopo.model.node import unshared

FIGHT_LOSSES = 3
FIGHT_S = 60.0
"""This many streams lost within this many seconds are more than an overlap at a rollout costs."""

SAME_LOSS_S = 0.1
"""Streams of two registrars that end within this time were lost together."""

RETRY_S = 300.0
"""Interval of registrations despite a conflict: a compromise between leaving the other plugin alone
and a node whose GPUs are not served. The kubelet keeps a lost plugin's devices for the same time
(1.36 pkg/kubelet/cm/devicemanager, endpointStopGracePeriod).
"""

MOST_ASKED = 16
"""Sockets that are asked at once; a node has a handful."""


class CompetingPlugin(Struct, frozen=True):
    """Another plugin that serves our resource; *identity* differs after each of its starts."""

    path: Path
    identity: sockets.Identity
    proof: str

    def sentence(self, resource: str) -> str:
        return f"{self.proof} serves {resource} on {self.path}: remove it, or this one"


class CompetingPlugins:
    """Detects competing plugins of one resource; all methods are called by one thread."""

    def __init__(
        self,
        resource: str,
        directory: Path,
        devices: Callable[[], Sequence[PluginDevice]],
        log: FilteringBoundLogger,
        answer_s: float,
    ) -> None:
        self._resource = resource
        self._directory = directory
        self._devices = devices
        self._log = log
        self._answer_s = answer_s
        self._losses: deque[float] = deque(maxlen=FIGHT_LOSSES)
        self._proven: frozenset[tuple[Path, sockets.Identity]] = frozenset()
        self._asking: Thread | None = None

    def look(self) -> CompetingPlugin | None:
        """Return the first competing plugin that is alive now."""
        for path in sockets.foreign(self._directory):
            identity = sockets.identity(path)
            is_proven = identity is not None and (path, identity) in self._proven
            proof = "another device plugin" if is_proven else known_maker(self._resource, path.name)
            if identity and proof and sockets.is_listening(path):
                return CompetingPlugin(path, identity, proof)
        return None

    def lost(self, now: float) -> None:
        """Record that the kubelet dropped us; repeated losses start the search for a competitor."""
        if self._losses and now - self._losses[-1] < SAME_LOSS_S:
            return
        self._losses.append(now)
        is_fight = len(self._losses) == FIGHT_LOSSES and now - self._losses[0] <= FIGHT_S
        if is_fight and (self._asking is None or not self._asking.is_alive()):
            thread = Thread(target=self._ask, name="competing plugins", daemon=True)
            with suppress(RuntimeError):  # at the limit of threads: the next loss tries again
                thread.start()
                self._asking = thread
                self._losses.clear()

    def forget_losses(self) -> None:
        """Forget the losses so far: the kubelet restarted, which explains them."""
        self._losses.clear()

    def _ask(self) -> None:
        """Ask the plugins on unknown sockets for their devices, in a separate thread."""
        ours = {device.uuid for device in self._devices()}
        proven = set()
        for path in sockets.foreign(self._directory)[:MOST_ASKED]:
            identity = sockets.identity(path)
            if identity is None or known_maker(self._resource, path.name):
                continue
            if offers(path, ours, self._answer_s):
                proven.add((path, identity))
        self._proven = frozenset(proven)
        names = sorted(path.name for path, _ in proven)
        self._log.warning("dropped by the kubelet repeatedly", competitors=names)


def known_maker(resource: str, socket_name: str) -> str | None:
    """Return which known plugin names its socket for *resource* like that; ``None`` for none.

    Sources: NVIDIA's device plugin (k8s-device-plugin v0.19.0, internal/plugin/server.go,
    getPluginSocketPath), whose name its forks kept; GKE's (container-engine-accelerators,
    cmd/nvidia_gpu/nvidia_gpu.go), which has one resource.
    """
    domain, _, name = resource.partition("/")
    if domain != "nvidia.com":
        return None
    if socket_name == f"nvidia-{name}.sock":
        return "NVIDIA's device plugin"
    if name == "gpu" and socket_name.startswith("nvidiaGPU-"):
        return "GKE's device plugin"
    return None


def other_plugin(directory: Path) -> str | None:
    """Return who serves the kubelet in *directory* with GPUs or HCAs of this node, as a sentence.

    An instance of this program, or a device plugin of NVIDIA's or GKE's for any resource, by the
    names of their sockets; ``None`` where none of them listens.
    """
    for path in sockets.all_in(directory):
        name = path.name.removeprefix(sockets.HIDDEN)
        if name.startswith(OUR_SOCKETS):
            who = "another nodetopo"
        elif name.startswith("nvidia-"):
            who = "NVIDIA's device plugin"
        elif name.startswith("nvidiaGPU-"):
            who = "GKE's device plugin"
        else:
            continue
        if sockets.is_listening(path):
            return f"{who} serves this node on {path}"
    return None


def offers(socket: Path, uuids: Collection[str], timeout_s: float) -> bool:
    """Ask the plugin on *socket* for its devices; return whether any of *uuids* is listed."""
    target = f"unix://{socket.absolute()}"
    with grpc.insecure_channel(target, options=CHANNEL_OPTIONS) as channel:
        stream = service.DevicePluginStub(channel).ListAndWatch(pb.Empty(), timeout=timeout_s)
        try:
            first = next(stream, pb.ListAndWatchResponse())
        except grpc.RpcError:
            return False  # not a device plugin, or one that does not answer
        finally:
            stream.cancel()
    return any(unshared(device.ID) in uuids for device in first.devices)
