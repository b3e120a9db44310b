"""All that the daemon can be told: the groups of settings put together, and their spellings."""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from pathlib import Path
from typing import Any

from agent.allocation.rules import Model, Policy
from agent.config import values
from agent.config.policies import (
    ONE_EACH,
    RENAME,
    PlacementPolicies,
    TimeSlicing,
    XidClasses,
    placement,
    time_slicing,
    xid_classes,
)
from agent.config.values import Option
from agent.deviceplugin.settings import NumaReport, Strategy
from agent.health.status import HealthClass
from agent.labels.levels import PLATFORMS
from agent.labels.rules import DEFAULT_PREFIX
from agent.probes.sysfs.host import Roots
from agent.publish.labels.output import FEATURE_FILE, NAMESPACE, NODE, OUTPUTS

# What is written beside a field that makes it a setting.


def option_option(
    read: Callable[[object], object],
    explanation: str,
    metavar: str,
    *,
    choices: tuple[str, ...] = (),
    is_live: bool = False,
) -> dict[str, Option]:
    """Return the metadata of a field; *is_live*: a change of it needs no new start."""
    found = Option(read=read, help=explanation, metavar=metavar, choices=choices, is_live=is_live)
    return {"option": found}


def choice(explanation: str, *choices: str, is_live: bool = False) -> dict[str, Option]:
    """Return the metadata of a field that holds one of *choices*."""
    return option_option(
        values.one_of(choices), explanation, "WORD", choices=choices, is_live=is_live
    )


def switch(explanation: str, *, is_live: bool = False) -> dict[str, Option]:
    """Return the metadata of a field that is true or false."""
    return option_option(values.switch, explanation, "BOOL", is_live=is_live)


# Settings: what is checked of pods and of the kubelet, and who is told.


@dataclass(frozen=True, kw_only=True)
class AuditSettings:
    """The audit."""

    checks_file: Path | None = field(
        default=None,
        metadata=option_option(
            values.path_or_none,
            "severities and waivers for `health`, `audit` and the metrics of both, YAML or JSON",
            "FILE",
        ),
    )
    kubelet_url: str | None = field(
        default=None,
        metadata=option_option(
            values.kubelet_url,
            "where the kubelet answers, such as https://10.0.0.7:10250; without it its files tell",
            "URL",
        ),
    )
    kubelet_ca_file: Path | None = field(
        default=None,
        metadata=option_option(
            values.path_or_none,
            "authority that signed the kubelet's certificate; default the service account's",
            "FILE",
        ),
    )
    kubelet_insecure_tls: bool = field(
        default=False,
        metadata=switch("accept any certificate of the kubelet, which most sign themselves"),
    )
    audit_node: bool = field(
        default=True,
        metadata=switch("judge the node as `audit` does, for metrics, every ten minutes"),
    )
    measure_pods: bool = field(
        default=True,
        metadata=switch("measure how pods with GPUs are aligned, for metrics, once a minute"),
    )
    publish_pod_events: bool = field(
        default=False,
        metadata=switch("post an Event on a pod that is misaligned"),
    )
    explain_rejections: bool = field(
        default=False,
        metadata=switch("explain on a pod why the kubelet rejected it, as Event and in the log"),
    )

    @property
    def attends(self) -> bool:
        """Whether the node is judged, or anything is done about pods that run or were rejected."""
        follows_pods = self.measure_pods or self.publish_pod_events or self.explain_rejections
        return self.audit_node or follows_pods


# Settings: what is written to the API server, and what is read from it.

FALLBACKS = ("named", "single", "empty")
"""Which named config serves where neither a label nor a default names one, the first that can
(k8s-device-plugin v0.19.0, cmd/config-manager): that called ``default``, the only one there is,
none."""


CONFIG_LABEL = "nvidia.com/device-plugin.config"
"""Of the Node, as NVIDIA's (the same place)."""


@dataclass(frozen=True, kw_only=True)
class ClusterSettings:
    """The Node object: its labels, its Events, and the config that it names."""

    kubeconfig: Path | None = field(
        default=None,
        metadata=option_option(
            values.path, "how to reach the API server; default the pod's own", "FILE"
        ),
    )
    publish_labels: bool = field(
        default=False,
        metadata=switch("write labels to the Node; default yes with a kubeconfig or in a cluster"),
    )
    publish_events: bool = field(
        default=False,
        metadata=switch("write Events about the Node; default as publish-labels"),
    )
    publish_zones: bool = field(
        default=False,  # another program may, and the object's definition is not in every cluster
        metadata=switch("write what each NUMA node has left, as a NodeResourceTopology object"),
    )
    annotate_pods: bool = field(
        default=False,  # takes the right to patch pods
        metadata=switch("write onto each pod which NUMA nodes it got, as KAI reads it"),
    )
    config_dir: Path | None = field(
        default=None,
        metadata=option_option(
            values.path_or_none, "directory of named configs, one of which this node takes", "DIR"
        ),
    )
    config_label: str = field(
        default=CONFIG_LABEL,
        metadata=option_option(values.label_key, "label of the Node that names its config", "KEY"),
    )
    default_config: str | None = field(
        default=None,
        metadata=option_option(
            values.text_or_none, "named config of a node without that label", "NAME"
        ),
    )
    config_fallbacks: tuple[str, ...] = field(
        default=("named", "single"),  # as NVIDIA's Helm chart has it
        metadata=option_option(
            values.several_of(FALLBACKS),
            f"which named config serves without either, the first that can: {', '.join(FALLBACKS)}",
            "LIST",
        ),
    )


# Settings: which resources are offered, and which of their devices are chosen.


@dataclass(frozen=True, kw_only=True)
class DeviceSettings:
    """The resources and their devices."""

    resource_name: str = field(
        default="nvidia.com/gpu",
        metadata=option_option(
            values.resource, "resource offered to the kubelet", "NAME", is_live=True
        ),
    )
    mig_strategy: str = field(
        default="none",
        metadata=choice("how MIG devices are offered", "none", "single", "mixed", is_live=True),
    )
    time_slicing: TimeSlicing | None = field(
        default=None,
        metadata=option_option(
            time_slicing,
            f"RESOURCE=REPLICAS by comma, with {RENAME} and {ONE_EACH}",
            "LIST",
            is_live=True,
        ),
    )
    exclude_gpus: tuple[str, ...] = field(
        default=(),
        metadata=option_option(
            values.names,
            "GPUs not to offer: index, UUID or its beginning, PCI address, product with *",
            "LIST",
            is_live=True,
        ),
    )
    numa_mode: str = field(
        default=NumaReport.NUMA.value,
        metadata=choice(
            "NUMA nodes that a device reports, its own or all of its socket",
            *(mode.value for mode in NumaReport),
            is_live=True,
        ),
    )
    placement_policy: PlacementPolicies = field(
        default=PlacementPolicies(),  # `best` for all: the least bandwidth lost on traces
        metadata=option_option(
            placement,
            f"{', '.join(Policy)}: one for all resources, or RESOURCE=WORD by comma",
            "LIST",
            is_live=True,
        ),
    )
    bandwidth_model: str = field(
        default=Model.RING.value,
        metadata=choice(
            "how the bandwidth of a set of GPUs is estimated",
            *(model.value for model in Model),
            is_live=True,
        ),
    )
    bandwidth_table: Path | None = field(
        default=None,
        metadata=option_option(
            values.path,
            "measured bandwidths, YAML or JSON; they win over the model",
            "FILE",
            is_live=True,
        ),
    )


# Settings: what a container is given with its devices.

CDI_SPEC_WORDS = ("none", "write")
"""Whether the daemon writes a CDI specification; without, another program must."""


@dataclass(frozen=True, kw_only=True)
class HandoverSettings:
    """The answer to Allocate, and the CDI specification behind it."""

    device_list_strategy: tuple[str, ...] = field(
        default=("cdi-cri",),
        metadata=option_option(
            values.several_of(tuple(word.value for word in Strategy)),
            f"how devices reach a container, several by comma: {', '.join(Strategy)}",
            "LIST",
            is_live=True,
        ),
    )
    driver_root: Path = field(
        default=Path("/"),
        metadata=option_option(
            values.absolute_path,
            "directory of the driver's files, on the host",
            "DIR",
            is_live=True,
        ),
    )
    dev_root: Path = field(
        default=Path("/"),
        metadata=option_option(
            values.absolute_path,
            "directory around the dev/ of device nodes, on the host; default driver-root",
            "DIR",
            is_live=True,
        ),
    )
    cdi_kind: str = field(
        default="nvidia.com/gpu",  # what nvidia-ctk writes into /var/run/cdi
        metadata=option_option(
            values.resource, "vendor/class of the CDI devices", "NAME", is_live=True
        ),
    )
    cdi_annotation_prefix: str = field(
        default="cdi.k8s.io/",  # the only one that container runtimes read by default
        metadata=option_option(
            values.annotation_prefix,
            "how the keys of cdi-annotations begin",
            "TEXT",
            is_live=True,
        ),
    )
    cdi_spec: str = field(
        default="none",
        metadata=choice(
            "whether the daemon writes the CDI specification", *CDI_SPEC_WORDS, is_live=True
        ),
    )
    cdi_spec_dir: Path = field(
        default=Path("/var/run/cdi"),  # CDI 1.0, where specifications of a running system are
        metadata=option_option(values.absolute_path, "where that specification is written", "DIR"),
    )
    cdi_hook: Path = field(
        default=Path("/usr/bin/nvidia-cdi-hook"),
        metadata=option_option(
            values.absolute_path, "program that its hooks call, on the host", "PATH", is_live=True
        ),
    )
    imex_channels: tuple[int, ...] = field(
        default=(),
        metadata=option_option(
            values.imex_channels,
            "IMEX channels of every container: none, or 0",
            "LIST",
            is_live=True,
        ),
    )
    imex_required: bool = field(
        default=False,
        metadata=switch("do not start where a channel is missing", is_live=True),
    )
    gdrcopy: bool = field(
        default=False,
        metadata=switch("start containers with GDRCopy", is_live=True),
    )
    gds: bool = field(
        default=False,
        metadata=switch("start containers with GPUDirect Storage", is_live=True),
    )
    mofed: bool = field(
        default=False,
        metadata=switch("start containers with Mellanox OFED", is_live=True),
    )
    nccl_hints: bool = field(
        default=False,
        metadata=switch("mount the PCI tree for NCCL into containers"),
    )
    nccl_hints_dir: Path = field(
        default=Path("/run/nodetopo/nccl"),
        metadata=option_option(values.absolute_path, "where that file is, on the host", "DIR"),
    )


# Settings: when a GPU is unhealthy, and when it is well again.


@dataclass(frozen=True, kw_only=True)
class HealthSettings:
    """What is watched and what it means."""

    health_checks: bool = field(
        default=True,
        metadata=switch("let errors that GPUs report make them Unhealthy"),
    )
    xid_classes: Mapping[int, HealthClass] = field(
        default=XidClasses(),
        metadata=option_option(
            xid_classes,
            f"XID=CLASS or FROM-TO=CLASS by comma, over the usual: {', '.join(HealthClass)}",
            "LIST",
        ),
    )
    recovery_s: float = field(
        default=60.0,
        metadata=option_option(
            values.duration, "how long a repaired GPU must stay well before it is Healthy", "TIME"
        ),
    )
    health_file: Path | None = field(
        default=Path("/run/nodetopo/health.json"),  # of /run, which a boot empties
        metadata=option_option(
            values.path_or_none,
            "where the health of GPUs outlives the daemon; `none` for none",
            "FILE",
        ),
    )
    kernel_log: Path | None = field(
        default=None,
        metadata=option_option(
            values.path_or_none, "also read XIDs from this kernel log, such as /dev/kmsg", "FILE"
        ),
    )


# Settings: where the kubelet is met.

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
        metadata=option_option(
            values.path, "directory with the kubelet's registration socket", "DIR"
        ),
    )
    plugins_registry_dir: Path = field(
        default=HOST_PLUGINS_REGISTRY,
        metadata=option_option(
            values.path, "directory that the kubelet's plugin watcher reads", "DIR"
        ),
    )
    pod_resources_socket: Path = field(
        default=Path("/var/lib/kubelet/pod-resources/kubelet.sock"),  # kubelet's fixed path
        metadata=option_option(values.path, "socket of the kubelet's PodResources API", "PATH"),
    )


# Settings: which labels the node gets, and where they go.

OFF = "off"


ANY = "auto"


@dataclass(frozen=True, kw_only=True)
class LabelSettings:
    """The labels."""

    label_outputs: tuple[str, ...] = field(
        default=(NODE,),
        metadata=option_option(
            values.several_of(OUTPUTS), f"where labels go, of {', '.join(OUTPUTS)}", "LIST"
        ),
    )
    nfd_file: Path = field(
        default=FEATURE_FILE,
        metadata=option_option(values.absolute_path, "feature file of the output nfd-file", "FILE"),
    )
    namespace: str = field(
        default=NAMESPACE,
        metadata=option_option(
            values.namespace, "of the output node-feature; default the pod's own", "NAME"
        ),
    )
    pod_name: str | None = field(
        default=None,
        metadata=option_option(
            values.text_or_none, "pod whose owner owns the NodeFeature; default $POD_NAME", "NAME"
        ),
    )
    label_prefix: str = field(
        default=DEFAULT_PREFIX,
        metadata=option_option(
            values.label_prefix, "beginning of the labels that are nodetopo's own", "PREFIX"
        ),
    )
    publish_clique: str = field(
        default="auto",  # GFD and the DRA driver write it as well, and delete it on their own terms
        metadata=choice(
            "write nvidia.com/gpu.clique: unless another program does, always, or never",
            "auto",
            "always",
            "never",
        ),
    )
    topology_levels: str = field(
        default=OFF,
        metadata=choice(
            "write tier-0, tier-1 … from the Node's labels of this platform, or of any",
            OFF,
            ANY,
            *(platform.name for platform in PLATFORMS),
        ),
    )
    topology_levels_file: Path | None = field(
        default=None,
        metadata=option_option(
            values.path_or_none, "write tier-0, tier-1 … from this file, YAML or JSON", "FILE"
        ),
    )


# Settings: which machine is read, how, and what is said about it.


@dataclass(frozen=True, kw_only=True)
class NodeSettings:
    """The machine, the way to its hardware, and the log."""

    node_name: str = field(
        metadata=option_option(
            values.text, "name of the Node object; default $NODE_NAME, else host", "NAME"
        ),
    )
    machine: str | None = field(
        default=None,
        metadata=option_option(
            values.text, "simulate this bundled machine instead of reading the node", "NAME"
        ),
    )
    snapshot: Path | None = field(
        default=None,
        metadata=option_option(values.path, "simulate the machine of this snapshot file", "FILE"),
    )
    or_simulate: bool = field(
        default=False,
        metadata=switch(
            "simulate the default machine where NVML is missing, a kubelet where there is none"
        ),
    )
    once: bool = field(
        default=False,
        metadata=switch("do everything once, print it, and end"),
    )
    sysfs_root: Path = field(
        default=Path("/sys"),
        metadata=option_option(values.path, "where the kernel's sysfs is mounted", "DIR"),
    )
    procfs_root: Path = field(
        default=Path("/proc"),
        metadata=option_option(values.path, "where the host's procfs is mounted", "DIR"),
    )
    host_root: Path = field(
        default=Path("/"),
        metadata=option_option(values.path, "where the host's file system is mounted", "DIR"),
    )
    nvml_library: Path | None = field(
        default=None,
        metadata=option_option(
            values.path, "libnvidia-ml.so.1 or its directory; default the loader's", "PATH"
        ),
    )
    scan_interval_s: float = field(
        default=60.0,  # topology is static: health is what this looks for
        metadata=option_option(
            values.scan_interval,
            "time between two scans of the node, such as 90, 90s or 5m; 1 s or more",
            "TIME",
            is_live=True,
        ),
    )
    metrics_address: str | None = field(
        default="127.0.0.1:9430",  # reachable from outside only on request
        metadata=option_option(
            values.address, "host:port of /metrics, /healthz and /readyz; `none` for none", "ADDR"
        ),
    )
    log_format: str = field(
        default="auto",  # text on a terminal, JSON elsewhere
        metadata=choice("form of the log", "auto", "json", "text"),
    )
    log_level: str = field(
        default="info",
        metadata=choice("least severe line that is logged", "debug", "info", "warning", "error"),
    )


__all__ = [
    "HOST_DEVICE_PLUGINS",
    "HOST_PLUGINS_REGISTRY",
    "PREFIX",
    "Settings",
    "default",
    "key",
    "option",
    "options",
    "variable",
]


PREFIX = "NODETOPO_"
"""Of every environment variable that is a setting."""


@dataclass(frozen=True, kw_only=True)
class Settings(
    AuditSettings,
    HealthSettings,
    HandoverSettings,
    DeviceSettings,
    KubeletSettings,
    LabelSettings,
    ClusterSettings,
    NodeSettings,
):
    """Every setting; each is declared once, in its group, and the text there is its ``--help``.

    The groups stand last to first, which is how a dataclass collects the fields of its bases.
    """


def options() -> Mapping[str, Option]:
    """Return every setting by field name, in the order of declaration."""
    return {item.name: _metadata(item) for item in fields(Settings)}


def option(name: str) -> Option:
    """Return the option of the field *name*."""
    return options()[name]


def default(name: str) -> object:
    """Return what the field *name* is unless somebody says; ``None`` where that depends."""
    (found,) = (item.default for item in fields(Settings) if item.name == name)
    return None if found is MISSING else found


def key(name: str) -> str:
    """Return the YAML key of a field, which is also its flag without the dashes."""
    return name.removesuffix("_s").replace("_", "-")


def variable(name: str) -> str:
    """Return the environment variable of a field."""
    return PREFIX + name.removesuffix("_s").upper()


def _metadata(item: Field[Any]) -> Option:
    found = item.metadata["option"]
    assert isinstance(found, Option)
    return found


# Where settings say that the node's trees are.


def roots(settings: Settings) -> Roots:
    """Return the mounts of sysfs, procfs and the host's file system."""
    return Roots(sysfs=settings.sysfs_root, procfs=settings.procfs_root, host=settings.host_root)
