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
            values.text, "name of the Node object; default $NODE_NAME, else host", "NAME"
        )
    )
    machine: str | None = NODE.setting(
        None, values.text, "simulate this bundled machine instead of reading the node", "NAME"
    )
    snapshot: Path | None = NODE.setting(
        None, values.path, "simulate the machine of this snapshot file", "FILE"
    )
    or_simulate: bool = NODE.switch(
        False, "simulate the default machine where NVML is missing, a kubelet where there is none"
    )
    once: bool = NODE.switch(False, "do everything once, print it, and end")
    sysfs_root: Path = NODE.setting(
        Path("/sys"), values.path, "where the kernel's sysfs is mounted", "DIR"
    )
    procfs_root: Path = NODE.setting(
        Path("/proc"), values.path, "where the host's procfs is mounted", "DIR"
    )
    host_root: Path = NODE.setting(
        Path("/"), values.path, "where the host's file system is mounted", "DIR"
    )
    nvml_library: Path | None = NODE.setting(
        None, values.path, "libnvidia-ml.so.1 or its directory; default the loader's", "PATH"
    )
    scan_interval_s: float = NODE.setting(
        60.0,  # topology is static: a scan looks for changes of health
        values.scan_interval,
        "time between two scans of the node, such as 90, 90s or 5m; 1 s or more",
        "TIME",
        is_live=True,
    )

    # Metrics and log.

    metrics_address: str | None = LOG.setting(
        "127.0.0.1:9430",  # reachable from outside only on request
        values.address,
        "host:port of /metrics, /healthz and /readyz; `none` for none",
        "ADDR",
    )
    log_format: str = LOG.choice(
        "auto",  # text on a terminal, JSON elsewhere
        "form of the log",
        "auto",
        "json",
        "text",
    )
    log_level: str = LOG.choice(
        "info", "least severe line that is logged", "debug", "info", "warning", "error"
    )

    # Cluster: the API server.

    kubeconfig: Path | None = CLUSTER.setting(
        None, values.path, "how to reach the API server; default the pod's own", "FILE"
    )
    publish_events: bool = CLUSTER.switch(
        False,
        "write Events about the Node; default as publish-labels",
        writes=True,
    )

    # Named configs: one file of a directory, chosen by the Node's label.

    config_dir: Path | None = NAMED.setting(
        None, values.path_or_none, "directory of named configs, one of which this node takes", "DIR"
    )
    config_label: str = NAMED.setting(
        "nvidia.com/device-plugin.config",  # as NVIDIA's (cmd/config-manager)
        values.label_key,
        "label of the Node that names its config",
        "KEY",
    )
    default_config: str | None = NAMED.setting(
        None, values.text_or_none, "named config of a node without that label", "NAME"
    )
    config_fallbacks: tuple[str, ...] = NAMED.setting(
        ("named", "single"),  # as in NVIDIA's Helm chart
        values.several_of(FALLBACKS),
        f"which named config serves without either, the first that can: {', '.join(FALLBACKS)}",
        "LIST",
    )

    # Kubelet: its directories and sockets.

    registration: str = KUBELET.choice(
        "socket",
        "how the kubelet learns of a resource, by kubelet.sock or by its plugin watcher",
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

    health_checks: bool = HEALTH.switch(True, "let errors that GPUs report make them Unhealthy")
    recovery_s: float = HEALTH.setting(
        60.0, values.duration, "how long a repaired GPU must stay well before it is Healthy", "TIME"
    )
    health_file: Path | None = HEALTH.setting(
        Path("/run/nodetopo/health.json"),  # in /run, which a boot empties
        values.path_or_none,
        "where the health of GPUs outlives the daemon; `none` for none",
        "FILE",
    )
    kernel_log: Path | None = HEALTH.setting(
        None, values.path_or_none, "also read XIDs from this kernel log, such as /dev/kmsg", "FILE"
    )

    # Kubelet: where it answers for its configuration.

    kubelet_url: str | None = AUDIT.setting(
        None,
        values.kubelet_url,
        "where the kubelet answers, such as https://10.0.0.7:10250; default its configuration"
        " files",
        "URL",
    )
    kubelet_ca_file: Path | None = AUDIT.setting(
        None,
        values.path_or_none,
        "authority that signed the kubelet's certificate; default the service account's",
        "FILE",
    )
    kubelet_insecure_tls: bool = AUDIT.switch(
        False, "accept any certificate of the kubelet, which most sign themselves"
    )

    def but(self, **values: Any) -> Self:
        """Return the same settings with other *values*, by field."""
        return replace(self, **values)


def roots(settings: KernelSettings) -> "Roots":
    """Return the mounts of sysfs, procfs and the host's file system."""
    from nodetopo.probes.sysfs.host import Roots  # noqa: PLC0415 - imports all probes of the host

    return Roots(sysfs=settings.sysfs_root, procfs=settings.procfs_root, host=settings.host_root)
