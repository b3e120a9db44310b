"""The directories of device plugins' sockets, and the way the kubelet finds them."""

import os
from pathlib import Path

from msgspec import Struct

from nodetopo.deviceplugin.registration import Registration
from nodetopo.kernel.settings.own import HOST_PLUGINS_REGISTRY, KernelSettings


class Places(Struct, frozen=True, kw_only=True):
    """The way to one kubelet."""

    socket_dir: Path  # where the kubelet's own socket is
    registry: Path  # the directory that its plugin watcher reads
    registration: Registration  # how it learns of a resource

    @classmethod
    def of(cls, settings: KernelSettings, socket_dir: Path, *, is_simulated: bool) -> "Places":
        """Return the places by *settings*.

        A stand-in knows ``kubelet.sock`` alone, and GPUs that do not exist never come before the
        plugin watcher of the host's own kubelet.
        """
        is_stand_in = socket_dir != settings.device_plugin_dir
        registry = settings.plugins_registry_dir
        is_hosts = os.path.realpath(registry) == os.path.realpath(HOST_PLUGINS_REGISTRY)
        is_by_socket = is_stand_in or (is_simulated and is_hosts)
        way = Registration.SOCKET if is_by_socket else Registration(settings.registration)
        return cls(socket_dir=socket_dir, registry=registry, registration=way)

    @property
    def directories(self) -> tuple[Path, ...]:
        """Directories of a resource's sockets."""
        match self.registration:
            case Registration.SOCKET:
                return (self.socket_dir,)
            case Registration.WATCHER:
                return (self.registry,)
            case Registration.BOTH:
                return self.socket_dir, self.registry
