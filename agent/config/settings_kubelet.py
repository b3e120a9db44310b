"""Settings: where the kubelet is met."""

from dataclasses import dataclass, field
from pathlib import Path

from agent.config import values
from agent.config.option import choice, option

HOST_DEVICE_PLUGINS = Path("/var/lib/kubelet/device-plugins")
"""Where every kubelet listens, whatever its root (k8s.io/kubelet v1beta1 DevicePluginPath)."""

HOST_PLUGINS_REGISTRY = Path("/var/lib/kubelet/plugins_registry")
"""Where a kubelet's plugin watcher looks, below its ``--root-dir``
(kubernetes pkg/kubelet/config/defaults.go)."""


@dataclass(frozen=True, kw_only=True)
class KubeletSettings:
    """The kubelet's directories and sockets."""

    registration: str = field(
        default="socket",
        metadata=choice(
            "how the kubelet learns of a resource, by kubelet.sock or by its plugin watcher",
            "socket",
            "watcher",
            "both",
        ),
    )
    device_plugin_dir: Path = field(
        default=HOST_DEVICE_PLUGINS,
        metadata=option(values.path, "directory with the kubelet's registration socket", "DIR"),
    )
    plugins_registry_dir: Path = field(
        default=HOST_PLUGINS_REGISTRY,
        metadata=option(values.path, "directory that the kubelet's plugin watcher reads", "DIR"),
    )
    pod_resources_socket: Path = field(
        default=Path("/var/lib/kubelet/pod-resources/kubelet.sock"),  # kubelet's fixed path
        metadata=option(values.path, "socket of the kubelet's PodResources API", "PATH"),
    )
