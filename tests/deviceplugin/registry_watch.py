"""The half of a kubelet that watches ``plugins_registry``, next to a fake kubelet.

It does what kubelets 1.36 and 1.37 do (pkg/kubelet/pluginmanager): a socket that appears,
under a new name or its old one, is asked what it is, connected to and told how that went; one
that is removed is left. One that is renamed away is neither.
"""

from contextlib import suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any

import grpc

from nodetopo.deviceplugin import sockets
from nodetopo.deviceplugin.fake_kubelet import FakeKubelet
from nodetopo.deviceplugin.pb import pluginregistration_pb2 as pb
from nodetopo.deviceplugin.pb import pluginregistration_pb2_grpc as service
from nodetopo.deviceplugin.registration import VERSION
from nodetopo.errors import UnreadableError

INFO_TIMEOUT_S = 60.0
"""For a plugin to say what it is: a kubelet gives it a second, a busy machine must not."""

POLL_S = 0.01


class RegistryWatch:
    """Watch *directory* for *kubelet*, until the end.

    Attributes:
        infos: what the plugins said of themselves.
        refusal: what they are told instead of being registered.
    """

    def __init__(self, kubelet: FakeKubelet, directory: Path, refusal: str = "") -> None:
        self.infos: list[pb.PluginInfo] = []
        self.refusal = refusal
        self._kubelet = kubelet
        self._directory = directory
        self._known: dict[Path, tuple[sockets.Identity, str]] = {}
        self._over = Event()
        self._thread = Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        """End, before the kubelet does."""
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(POLL_S):
            hidden = {i[:2] for p in self._directory.glob(".*") if (i := sockets.identity(p))}
            for path, (identity, resource) in tuple(self._known.items()):
                if not path.exists() and identity[:2] not in hidden:
                    del self._known[path]
                    self._leave(resource, path)
            for path in self._directory.glob("*.sock"):
                self._see(path)

    def _see(self, path: Path) -> None:
        identity = sockets.identity(path)
        before = self._known.get(path)
        if path.name.startswith(".") or identity is None or (before and before[0] == identity):
            return
        if before is not None:
            self._leave(before[1], path)
        with grpc.insecure_channel(f"unix://{path}") as channel, suppress(grpc.RpcError):
            # A plugin that ended meanwhile is asked again at the next look, if its socket stays.
            stub: Any = service.RegistrationStub(channel)
            info = stub.GetInfo(pb.InfoRequest(), timeout=INFO_TIMEOUT_S)
            self.infos.append(info)
            self._known[path] = (identity, info.name)
            problem = self._connect(info, path)
            status = pb.RegistrationStatus(plugin_registered=not problem, error=problem)
            stub.NotifyRegistrationStatus(status, timeout=INFO_TIMEOUT_S)

    def _connect(self, info: pb.PluginInfo, path: Path) -> str:
        if self.refusal:
            return self.refusal
        if info.type != "DevicePlugin" or VERSION not in info.supported_versions:
            return f"no handler for {info}"
        try:
            self._kubelet.connect(info.name, Path(info.endpoint or path))
        except UnreadableError as error:
            return error.cause
        return ""

    def _leave(self, resource: str, path: Path) -> None:
        """Hang up on *path*, or, up to 1.36, on the newest of the resource."""
        connected = self._kubelet._endpoints.get(resource, [])
        is_by_path = self._kubelet._keyed_by_socket
        for one in [one for one in connected if one.path == path or not is_by_path]:
            one.close()
