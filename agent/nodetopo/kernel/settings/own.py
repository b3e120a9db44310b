"""The kernel's settings, which every component can read."""

# ruff: noqa: RUF009 - a setting is a call that returns a dataclass field

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from nodetopo.kernel.settings import values
from nodetopo.kernel.settings.groups import AUDIT, CLUSTER, HEALTH, KUBELET, LOG, NAMED, NODE

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

    node_name: str = field(
        metadata=NODE.option(
            values.text,
            "name of the Node object; default $NODE_NAME, otherwise the host's name",
            "NAME",
        )
    )
    machine: str | None = NODE.setting(
        None, values.text, "simulate this bundled machine instead of reading the node", "NAME"
    )
    snapshot: Path | None = NODE.setting(
        None, values.path, "simulate the machine in this snapshot file", "FILE"
    )
    or_simulate: bool = NODE.switch(
        False, "simulate the default machine if NVML is missing, and a kubelet if none runs"
    )
    once: bool = NODE.switch(False, "run once, print the results, and exit")
    sysfs_root: Path = NODE.setting(
        Path("/sys"), values.path, "mount point of the kernel's sysfs", "DIR"
    )
    procfs_root: Path = NODE.setting(
        Path("/proc"), values.path, "mount point of the host's procfs", "DIR"
    )
    host_root: Path = NODE.setting(
        Path("/"), values.path, "mount point of the host's file system", "DIR"
    )
    nvml_library: Path | None = NODE.setting(
        None,
        values.path,
        "libnvidia-ml.so.1 or its directory; default the loader's search path",
        "PATH",
    )
    scan_interval_s: float = NODE.setting(
        60.0,  # topology is static: a scan looks for changes of health
        values.scan_interval,
        "interval between scans of the node, such as 90, 90s or 5m; at least 1 s",
        "TIME",
        is_live=True,
    )

    # Metrics and log.

    metrics_address: str | None = LOG.setting(
        "127.0.0.1:9430",  # reachable from outside only on request
        values.address,
        "host:port of /metrics, /healthz and /readyz; `none` to disable",
        "ADDR",
    )
    log_format: str = LOG.choice(
        "auto",  # text on a terminal, JSON elsewhere
        "log format",
        "auto",
        "json",
        "text",
    )
    log_level: str = LOG.choice(
        "info", "minimum severity of log lines", "debug", "info", "warning", "error"
    )

    # Cluster: the API server.

    kubeconfig: Path | None = CLUSTER.setting(
        None,
        values.path,
        "kubeconfig for the API server; default the pod's service account",
        "FILE",
    )
    publish_events: bool = CLUSTER.switch(
        False,
        "write Events about the Node; default the value of publish-labels",
        writes=True,
    )

    # Named configs: one file of a directory, chosen by the Node's label.

    config_dir: Path | None = NAMED.setting(
        None,
        values.path_or_none,
        "directory of named configs; this node uses one of them",
        "DIR",
    )
    config_label: str = NAMED.setting(
        "nvidia.com/device-plugin.config",  # as NVIDIA's (cmd/config-manager)
        values.label_key,
        "label of the Node that selects its config",
        "KEY",
    )
    default_config: str | None = NAMED.setting(
        None, values.text_or_none, "named config for a Node without the label", "NAME"
    )
    config_fallbacks: tuple[str, ...] = NAMED.setting(
        ("named", "single"),  # as in NVIDIA's Helm chart
        values.several_of(FALLBACKS),
        f"fallbacks without label and default, the first that applies: {', '.join(FALLBACKS)}",
        "LIST",
        words=FALLBACKS,
    )

    # Kubelet: its directories and sockets.

    registration: str = KUBELET.choice(
        "socket",
        "registration with the kubelet, by kubelet.sock or by its plugin watcher",
        "socket",
        "watcher",
        "both",
    )
    device_plugin_dir: Path = KUBELET.setting(
        HOST_DEVICE_PLUGINS, values.path, "directory with the kubelet's registration socket", "DIR"
    )
    plugins_registry_dir: Path = KUBELET.setting(
        HOST_PLUGINS_REGISTRY,
        values.path,
        "directory that the kubelet's plugin watcher reads",
        "DIR",
    )
    pod_resources_socket: Path = KUBELET.setting(
        Path("/var/lib/kubelet/pod-resources/kubelet.sock"),  # the kubelet's fixed path
        values.path,
        "socket of the kubelet's PodResources API",
        "PATH",
    )

    # Health: when a device is Unhealthy, and when it is Healthy again.

    health_checks: bool = HEALTH.switch(
        True, "mark GPUs Unhealthy on XID errors and other reported faults"
    )
    recovery_s: float = HEALTH.setting(
        60.0,
        values.duration,
        "how long a repaired GPU must stay sound before it is Healthy",
        "TIME",
    )
    health_file: Path | None = HEALTH.setting(
        Path("/run/nodetopo/health.json"),  # in /run, which a boot empties
        values.path_or_none,
        "file that keeps GPU health across restarts; `none` to disable",
        "FILE",
    )
    kernel_log: Path | None = HEALTH.setting(
        None, values.path_or_none, "also read XIDs from this kernel log, such as /dev/kmsg", "FILE"
    )

    # Kubelet: where it answers for its configuration.

    kubelet_url: str | None = AUDIT.setting(
        None,
        values.kubelet_url,
        "URL of the kubelet, such as https://10.0.0.7:10250; default from its configuration files",
        "URL",
    )
    kubelet_ca_file: Path | None = AUDIT.setting(
        None,
        values.path_or_none,
        "CA of the kubelet's certificate; default the service account's CA",
        "FILE",
    )
    kubelet_insecure_tls: bool = AUDIT.switch(
        False, "skip verification of the kubelet's certificate (often self-signed)"
    )

    def but(self, **values: Any) -> Self:
        """Return the same settings with other *values*, by field."""
        return replace(self, **values)


def roots(settings: KernelSettings) -> "Roots":
    """Return the mounts of sysfs, procfs and the host's file system."""
    from nodetopo.probes.sysfs.host import Roots  # noqa: PLC0415 - imports all probes of the host

    return Roots(sysfs=settings.sysfs_root, procfs=settings.procfs_root, host=settings.host_root)
