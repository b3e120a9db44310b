"""The kernel's settings, which every component can read."""

# ruff: noqa: RUF009 - a setting is a call that returns a dataclass field

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from nodetopo.kernel.settings import values
from nodetopo.kernel.settings.groups import (
    AUDIT,
    CLUSTER,
    HEALTH,
    KUBELET,
    LOG,
    NAMED,
    NODE,
    REQUIRED,
)

if TYPE_CHECKING:
    from nodetopo.probes.sysfs.host import Roots

HOST_DEVICE_PLUGINS = Path("/var/lib/kubelet/device-plugins")
"""Every kubelet's socket directory, regardless of its root (k8s.io/kubelet v1beta1
DevicePluginPath).
"""

HOST_PLUGINS_REGISTRY = Path("/var/lib/kubelet/plugins_registry")
"""Where a kubelet's plugin watcher looks, below its ``--root-dir``
(kubernetes pkg/kubelet/config/defaults.go)."""

IN_CLUSTER = "KUBERNETES_SERVICE_HOST"
"""A variable of every container of a cluster."""

FALLBACKS = ("named", "single", "empty")
"""Fallback configs of a node without a label or a default; the first that exists is used: the one
called ``default``, the only one, none (k8s-device-plugin v0.19.0, cmd/config-manager).
"""


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class KernelSettings:
    """The machine, the kubelet, the API server, the log, and the health of devices.

    Declarations carry the texts of ``run --help``.
    """

    # Node: the machine, and the way to its hardware.

    node_name: str = NODE(
        REQUIRED,
        "name of the Node object; default $NODE_NAME, otherwise the host's name",
        values.text,
        "NAME",
    )
    machine: str | None = NODE(
        None, "simulate this bundled machine instead of reading the node", values.text, "NAME"
    )
    snapshot: Path | None = NODE(
        None, "simulate the machine in this snapshot file", values.path, "FILE"
    )
    or_simulate: bool = NODE(
        False, "simulate the default machine if NVML is missing, and a kubelet if none runs"
    )
    once: bool = NODE(False, "run once, print the results, and exit")
    sysfs_root: Path = NODE(Path("/sys"), "mount point of the kernel's sysfs", values.path, "DIR")
    procfs_root: Path = NODE(Path("/proc"), "mount point of the host's procfs", values.path, "DIR")
    host_root: Path = NODE(Path("/"), "mount point of the host's file system", values.path, "DIR")
    nvml_library: Path | None = NODE(
        None,
        "libnvidia-ml.so.1 or its directory; default the loader's search path",
        values.path,
        "PATH",
    )
    scan_interval_s: float = NODE(
        60.0,  # topology is static: a scan looks for changes of health
        "interval between scans of the node, such as 90, 90s or 5m; at least 1 s",
        values.scan_interval,
        "TIME",
        is_live=True,
    )

    # Metrics and log.

    metrics_address: str | None = LOG(
        "127.0.0.1:9430",  # reachable from outside only on request
        "host:port of /metrics, /healthz and /readyz; `none` to disable",
        values.address,
        "ADDR",
    )
    log_format: str = LOG(
        "auto",  # text on a terminal, JSON elsewhere
        "log format",
        "auto",
        "json",
        "text",
    )
    log_level: str = LOG(
        "info", "minimum severity of log lines", "debug", "info", "warning", "error"
    )

    # Cluster: the API server.

    kubeconfig: Path | None = CLUSTER(
        None,
        "kubeconfig for the API server; default the pod's service account",
        values.path,
        "FILE",
    )
    publish_events: bool = CLUSTER(
        False,
        "write Events about the Node; default the value of publish-labels",
        writes=True,
    )

    # Named configs: one file of a directory, chosen by the Node's label.

    config_dir: Path | None = NAMED(
        None,
        "directory of named configs; this node uses one of them",
        values.path_or_none,
        "DIR",
    )
    config_label: str = NAMED(
        "nvidia.com/device-plugin.config",  # as NVIDIA's (cmd/config-manager)
        "label of the Node that selects its config",
        values.label_key,
        "KEY",
    )
    default_config: str | None = NAMED(
        None, "named config for a Node without the label", values.text_or_none, "NAME"
    )
    config_fallbacks: tuple[str, ...] = NAMED(
        ("named", "single"),  # as in NVIDIA's Helm chart
        f"fallbacks without label and default, the first that applies: {', '.join(FALLBACKS)}",
        values.several_of(FALLBACKS),
        "LIST",
        words=FALLBACKS,
    )

    # Kubelet: its directories and sockets.

    registration: str = KUBELET(
        "socket",
        "registration with the kubelet, by kubelet.sock or by its plugin watcher",
        "socket",
        "watcher",
        "both",
    )
    device_plugin_dir: Path = KUBELET(
        HOST_DEVICE_PLUGINS, "directory with the kubelet's registration socket", values.path, "DIR"
    )
    plugins_registry_dir: Path = KUBELET(
        HOST_PLUGINS_REGISTRY,
        "directory that the kubelet's plugin watcher reads",
        values.path,
        "DIR",
    )
    pod_resources_socket: Path = KUBELET(
        Path("/var/lib/kubelet/pod-resources/kubelet.sock"),  # the kubelet's fixed path
        "socket of the kubelet's PodResources API",
        values.path,
        "PATH",
    )

    # Health: when a device is Unhealthy, and when it is Healthy again.

    health_checks: bool = HEALTH(
        True, "mark GPUs Unhealthy on XID errors and other reported faults"
    )
    recovery_s: float = HEALTH(
        60.0,
        "how long a repaired GPU must stay sound before it is Healthy",
        values.duration,
        "TIME",
    )
    health_file: Path | None = HEALTH(
        Path("/run/nodetopo/health.json"),  # in /run, which a boot empties
        "file that keeps GPU health across restarts; `none` to disable",
        values.path_or_none,
        "FILE",
    )
    kernel_log: Path | None = HEALTH(
        None, "also read XIDs from this kernel log, such as /dev/kmsg", values.path_or_none, "FILE"
    )

    # Kubelet: where it answers for its configuration.

    kubelet_url: str | None = AUDIT(
        None,
        "URL of the kubelet, such as https://10.0.0.7:10250; default from its configuration files",
        values.kubelet_url,
        "URL",
    )
    kubelet_ca_file: Path | None = AUDIT(
        None,
        "CA of the kubelet's certificate; default the service account's CA",
        values.path_or_none,
        "FILE",
    )
    kubelet_insecure_tls: bool = AUDIT(
        False, "skip verification of the kubelet's certificate (often self-signed)"
    )

    def but(self, **values: Any) -> Self:
        """Return the same settings with other *values*, by field."""
        return replace(self, **values)


def roots(settings: KernelSettings) -> "Roots":
    """Return the mounts of sysfs, procfs and the host's file system."""
    from nodetopo.probes.sysfs.host import Roots  # noqa: PLC0415 - imports all probes of the host

    return Roots(sysfs=settings.sysfs_root, procfs=settings.procfs_root, host=settings.host_root)
