"""Every setting of the daemon: its default, its reader, its help text and its group.

This is the first stop of a setting on its way from YAML to its use. :mod:`agent.config.resolve`
gives it a value, a component of :mod:`agent.daemon` uses it.
"""

# ruff: noqa: RUF009 - a setting is a call that returns a dataclass field

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from agent.allocation.rules import Model, Policy
from agent.config import policies, values
from agent.config.policies import ONE_EACH, RENAME, PlacementPolicies, TimeSlicing, XidClasses
from agent.config.values import Option
from agent.deviceplugin.settings import NumaReport, Strategy
from agent.health.status import HealthClass
from agent.labels.levels import PLATFORMS
from agent.labels.rules import DEFAULT_PREFIX
from agent.nccl.job import JobVariable
from agent.publish.labels.output import FEATURE_FILE, NAMESPACE, NODE, OUTPUTS
from agent.rdma.pools import SharingMode

if TYPE_CHECKING:
    from agent.probes.sysfs.host import Roots

HOST_DEVICE_PLUGINS = Path("/var/lib/kubelet/device-plugins")
"""Where every kubelet listens, whatever its root (k8s.io/kubelet v1beta1 DevicePluginPath)."""

HOST_PLUGINS_REGISTRY = Path("/var/lib/kubelet/plugins_registry")
"""Where a kubelet's plugin watcher looks, below its ``--root-dir``
(kubernetes pkg/kubelet/config/defaults.go)."""

FALLBACKS = ("named", "single", "empty")
"""Named configs of a node without a label or a default, of which the first that exists is used:
the one called ``default``, the only one, none (k8s-device-plugin v0.19.0, cmd/config-manager)."""

RDMA_USUAL_PLACE = Path("/k8s-rdma-shared-dev-plugin/config.json")
"""Where Mellanox' shared plugin reads its file, if no flag says otherwise
(k8s-rdma-shared-dev-plugin 410b0f3, cmd/k8s-rdma-shared-dp/main.go)."""

OFF, ANY = "off", "auto"
"""Values of ``topology_levels`` that name no platform: no levels, or those of any platform."""

PREFIX = "NODETOPO_"
"""Of every environment variable that is a setting."""

Default = TypeVar("Default")
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class _Group:
    """Declares the settings of one group; *title* is its heading in ``run --help``."""

    title: str

    def option(
        self,
        read: Callable[[Any], Any],
        explanation: str,
        metavar: str,
        *,
        choices: tuple[str, ...] = (),
        is_live: bool = False,
    ) -> Mapping[str, Option]:
        """Return the field metadata of a setting; *is_live*: it can change without a restart."""
        option = Option(
            read=read,
            help=explanation,
            metavar=metavar,
            group=self.title,
            choices=choices,
            is_live=is_live,
        )
        return {"option": option}

    def setting(
        self,
        default: Default,
        read: Callable[[Any], Value],
        explanation: str,
        metavar: str,
        *,
        is_live: bool = False,
    ) -> Default | Value:
        """Declare a setting that *read* parses from text or YAML."""
        metadata = self.option(read, explanation, metavar, is_live=is_live)
        return field(default=default, metadata=metadata)

    def choice(self, default: str, explanation: str, *choices: str, is_live: bool = False) -> str:
        """Declare a setting that is one of *choices*."""
        read = values.one_of(choices)
        metadata = self.option(read, explanation, "WORD", choices=choices, is_live=is_live)
        return field(default=default, metadata=metadata)

    def switch(self, default: bool, explanation: str, *, is_live: bool = False) -> bool:
        """Declare a setting that is true or false."""
        return self.setting(default, values.switch, explanation, "BOOL", is_live=is_live)


_NODE = _Group("node")
_LOG = _Group("metrics and log")
_CLUSTER = _Group("API server and Node object")
_NAMED = _Group("named configs")
_LABELS = _Group("labels")
_KUBELET = _Group("kubelet")
_DEVICES = _Group("resources and placement")
_CONTAINERS = _Group("containers")
_RDMA = _Group("RDMA")
_HEALTH = _Group("health of GPUs")
_AUDIT = _Group("audit of the node and its pods")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Every setting, in the order of ``run --help``, which has the texts that stand here."""

    # Node: the machine, and the way to its hardware.

    node_name: str = field(
        metadata=_NODE.option(
            values.text, "name of the Node object; default $NODE_NAME, else host", "NAME"
        )
    )
    machine: str | None = _NODE.setting(
        None, values.text, "simulate this bundled machine instead of reading the node", "NAME"
    )
    snapshot: Path | None = _NODE.setting(
        None, values.path, "simulate the machine of this snapshot file", "FILE"
    )
    or_simulate: bool = _NODE.switch(
        False, "simulate the default machine where NVML is missing, a kubelet where there is none"
    )
    once: bool = _NODE.switch(False, "do everything once, print it, and end")
    sysfs_root: Path = _NODE.setting(
        Path("/sys"), values.path, "where the kernel's sysfs is mounted", "DIR"
    )
    procfs_root: Path = _NODE.setting(
        Path("/proc"), values.path, "where the host's procfs is mounted", "DIR"
    )
    host_root: Path = _NODE.setting(
        Path("/"), values.path, "where the host's file system is mounted", "DIR"
    )
    nvml_library: Path | None = _NODE.setting(
        None, values.path, "libnvidia-ml.so.1 or its directory; default the loader's", "PATH"
    )
    scan_interval_s: float = _NODE.setting(
        60.0,  # topology is static: a scan looks for changes of health
        values.scan_interval,
        "time between two scans of the node, such as 90, 90s or 5m; 1 s or more",
        "TIME",
        is_live=True,
    )

    # Metrics and log.

    metrics_address: str | None = _LOG.setting(
        "127.0.0.1:9430",  # reachable from outside only on request
        values.address,
        "host:port of /metrics, /healthz and /readyz; `none` for none",
        "ADDR",
    )
    status_page: bool = _LOG.switch(True, "serve a page about the node on localhost, at /")
    status_page_everywhere: bool = _LOG.switch(
        False,  # it shows what checks find; localhost is reached by port-forward alone
        "serve the page on metrics-address too, not on localhost alone",
    )
    status_page_pods: bool = _LOG.switch(
        False,  # whoever reaches the address would learn what runs here
        "name on it the pods that hold GPUs",
    )
    log_format: str = _LOG.choice(
        "auto",  # text on a terminal, JSON elsewhere
        "form of the log",
        "auto",
        "json",
        "text",
    )
    log_level: str = _LOG.choice(
        "info", "least severe line that is logged", "debug", "info", "warning", "error"
    )

    # Cluster: what is written to the API server.

    kubeconfig: Path | None = _CLUSTER.setting(
        None, values.path, "how to reach the API server; default the pod's own", "FILE"
    )
    publish_labels: bool = _CLUSTER.switch(
        False, "write labels to the Node; default yes with a kubeconfig or in a cluster"
    )
    publish_events: bool = _CLUSTER.switch(
        False, "write Events about the Node; default as publish-labels"
    )
    publish_zones: bool = _CLUSTER.switch(
        False,  # another program may, and the object's definition is not in every cluster
        "write what each NUMA node has left, as a NodeResourceTopology object",
    )
    annotate_pods: bool = _CLUSTER.switch(
        False,  # takes the right to patch pods
        "write onto each pod which NUMA nodes it got, as KAI reads it",
    )

    # Named configs: one file of a directory, chosen by the Node's label.

    config_dir: Path | None = _NAMED.setting(
        None, values.path_or_none, "directory of named configs, one of which this node takes", "DIR"
    )
    config_label: str = _NAMED.setting(
        "nvidia.com/device-plugin.config",  # as NVIDIA's (cmd/config-manager)
        values.label_key,
        "label of the Node that names its config",
        "KEY",
    )
    default_config: str | None = _NAMED.setting(
        None, values.text_or_none, "named config of a node without that label", "NAME"
    )
    config_fallbacks: tuple[str, ...] = _NAMED.setting(
        ("named", "single"),  # as in NVIDIA's Helm chart
        values.several_of(FALLBACKS),
        f"which named config serves without either, the first that can: {', '.join(FALLBACKS)}",
        "LIST",
    )

    # Labels: which the node gets, and where they go.

    label_outputs: tuple[str, ...] = _LABELS.setting(
        (NODE,), values.several_of(OUTPUTS), f"where labels go, of {', '.join(OUTPUTS)}", "LIST"
    )
    nfd_file: Path = _LABELS.setting(
        FEATURE_FILE, values.absolute_path, "feature file of the output nfd-file", "FILE"
    )
    namespace: str = _LABELS.setting(
        NAMESPACE, values.namespace, "of the output node-feature; default the pod's own", "NAME"
    )
    pod_name: str | None = _LABELS.setting(
        None, values.text_or_none, "pod whose owner owns the NodeFeature; default $POD_NAME", "NAME"
    )
    label_prefix: str = _LABELS.setting(
        DEFAULT_PREFIX,
        values.label_prefix,
        "beginning of the labels that are nodetopo's own",
        "PREFIX",
    )
    publish_gfd_labels: bool = _LABELS.switch(
        True, "write the keys of GPU Feature Discovery too; false where that runs"
    )
    publish_clique: str = _LABELS.choice(
        "auto",  # GFD and the DRA driver write it as well, and delete it on their own terms
        "write nvidia.com/gpu.clique: unless another program does, always, or never",
        "auto",
        "always",
        "never",
    )
    topology_levels: str = _LABELS.choice(
        OFF,
        "write tier-0, tier-1 … from the Node's labels of this platform, or of any",
        OFF,
        ANY,
        *(platform.name for platform in PLATFORMS),
    )
    topology_levels_file: Path | None = _LABELS.setting(
        None, values.path_or_none, "write tier-0, tier-1 … from this file, YAML or JSON", "FILE"
    )

    # Kubelet: its directories and sockets.

    registration: str = _KUBELET.choice(
        "socket",
        "how the kubelet learns of a resource, by kubelet.sock or by its plugin watcher",
        "socket",
        "watcher",
        "both",
    )
    device_plugin_dir: Path = _KUBELET.setting(
        HOST_DEVICE_PLUGINS, values.path, "directory with the kubelet's registration socket", "DIR"
    )
    plugins_registry_dir: Path = _KUBELET.setting(
        HOST_PLUGINS_REGISTRY,
        values.path,
        "directory that the kubelet's plugin watcher reads",
        "DIR",
    )
    pod_resources_socket: Path = _KUBELET.setting(
        Path("/var/lib/kubelet/pod-resources/kubelet.sock"),  # the kubelet's fixed path
        values.path,
        "socket of the kubelet's PodResources API",
        "PATH",
    )

    # Resources and placement: what is offered, and which devices are chosen.

    resource_name: str = _DEVICES.setting(
        "nvidia.com/gpu", values.resource, "resource offered to the kubelet", "NAME", is_live=True
    )
    offer_gpus: str = _DEVICES.choice(
        "auto",  # a GPU that two programs give out ends up in two containers
        "offer GPUs to the kubelet: auto, but for those that a DRA driver publishes; never where "
        "another device plugin does",
        "auto",
        "always",
        "never",
        is_live=True,
    )
    dra: bool = _DEVICES.switch(
        False,  # the device plugin serves every Kubernetes; DRA needs 1.34, and classes
        "publish GPUs as devices of our DRA driver nodetopo.io, and offer none by device plugin",
    )
    dra_unhealthy: str = _DEVICES.choice(
        "keep",  # as with a device plugin: only a person knows what the pod is worth
        "what becomes of pods whose GPUs by claim turn unhealthy",
        "keep",
        "evict",
        is_live=True,
    )
    dra_devices: str = _DEVICES.choice(
        "auto",  # before 1.37 sets cost the scheduler time that grows by the square of the nodes
        "devices of the DRA driver, GPUs alone or also sets of them; auto: sets from Kubernetes "
        "1.37 on",
        "auto",
        "gpus",
        "sets",
    )
    dra_set_sizes: tuple[int, ...] = _DEVICES.setting(
        (),
        values.set_sizes,
        "numbers of GPUs in the sets of the DRA driver; auto: powers of two, and all",
        "LIST",
    )
    dra_admin_devices: bool = _DEVICES.switch(
        False,  # the scheduler evaluates selectors on each of them for every pod
        "publish for each GPU a device of the DRA driver for pods that monitor it by admin access",
    )
    mig_strategy: str = _DEVICES.choice(
        "none", "how MIG devices are offered", "none", "single", "mixed", is_live=True
    )
    time_slicing: TimeSlicing | None = _DEVICES.setting(
        None,
        policies.time_slicing,
        f"RESOURCE=REPLICAS by comma, with {RENAME} and {ONE_EACH}",
        "LIST",
        is_live=True,
    )
    exclude_gpus: tuple[str, ...] = _DEVICES.setting(
        (),
        values.names,
        "GPUs not to offer: index, UUID or its beginning, PCI address, product with *",
        "LIST",
        is_live=True,
    )
    numa_mode: str = _DEVICES.choice(
        NumaReport.NUMA.value,
        "NUMA nodes that a device reports, its own or all of its socket",
        *(mode.value for mode in NumaReport),
        is_live=True,
    )
    placement_policy: PlacementPolicies = _DEVICES.setting(
        PlacementPolicies(),  # `best` for all: the least bandwidth lost on traces
        policies.placement,
        f"{', '.join(Policy)}: one for all resources, or RESOURCE=WORD by comma",
        "LIST",
        is_live=True,
    )
    bandwidth_model: str = _DEVICES.choice(
        Model.RING.value,
        "how the bandwidth of a set of GPUs is estimated",
        *(model.value for model in Model),
        is_live=True,
    )
    bandwidth_table: Path | None = _DEVICES.setting(
        None,
        values.path,
        "measured bandwidths, YAML or JSON; they win over the model",
        "FILE",
        is_live=True,
    )

    expect_run_times: bool = _DEVICES.switch(
        False, "also place by when pods that hold GPUs are expected to end"
    )

    # Containers: the answer to Allocate, and the CDI specification behind it.

    device_list_strategy: tuple[str, ...] = _CONTAINERS.setting(
        ("auto",),
        policies.strategies,
        f"how devices reach a container, several by comma: {', '.join(Strategy)}",
        "LIST",
        is_live=True,
    )
    driver_root: Path = _CONTAINERS.setting(
        Path("/"),
        values.absolute_path,
        "directory of the driver's files, on the host",
        "DIR",
        is_live=True,
    )
    dev_root: Path | None = _CONTAINERS.setting(
        None,
        values.absolute_path,
        "directory around the dev/ of device nodes, on the host; default driver-root, or / if that "
        "has no nodes",
        "DIR",
        is_live=True,
    )
    cdi_kind: str = _CONTAINERS.setting(
        "nvidia.com/gpu",  # what nvidia-ctk writes into /var/run/cdi
        values.resource,
        "vendor/class of the CDI devices",
        "NAME",
        is_live=True,
    )
    cdi_annotation_prefix: str = _CONTAINERS.setting(
        "cdi.k8s.io/",  # the only one that container runtimes read by default
        values.annotation_prefix,
        "how the keys of cdi-annotations begin",
        "TEXT",
        is_live=True,
    )
    cdi_spec: str = _CONTAINERS.choice(
        "none",  # another program must write it
        "whether the daemon writes the CDI specification",
        "none",
        "write",
        is_live=True,
    )
    cdi_spec_dir: Path = _CONTAINERS.setting(
        Path("/var/run/cdi"),  # CDI 1.0, where specifications of a running system are
        values.absolute_path,
        "where that specification is written",
        "DIR",
    )
    cdi_hook: Path = _CONTAINERS.setting(
        Path("/usr/bin/nvidia-cdi-hook"),
        values.absolute_path,
        "program that its hooks call, on the host",
        "PATH",
        is_live=True,
    )
    cdi_disable_hooks: tuple[str, ...] = _CONTAINERS.setting(
        (),
        values.names,
        "hooks of that program that are left out, such as enable-cuda-compat, or all",
        "LIST",
        is_live=True,
    )
    imex_channels: tuple[int, ...] = _CONTAINERS.setting(
        (),
        values.imex_channels,
        "IMEX channels of every container: none, or 0",
        "LIST",
        is_live=True,
    )
    imex_required: bool = _CONTAINERS.switch(
        False, "do not start where a channel is missing", is_live=True
    )
    gdrcopy: bool = _CONTAINERS.switch(False, "start containers with GDRCopy", is_live=True)
    gds: bool = _CONTAINERS.switch(False, "start containers with GPUDirect Storage", is_live=True)
    mofed: bool = _CONTAINERS.switch(False, "start containers with Mellanox OFED", is_live=True)
    nccl_hints: bool = _CONTAINERS.switch(False, "mount the PCI tree for NCCL into containers")
    nccl_hints_dir: Path = _CONTAINERS.setting(
        Path("/run/nodetopo/nccl"),
        values.absolute_path,
        "where that file is, on the host",
        "DIR",
    )

    # RDMA: the HCAs that are offered, beside GPUs or together with them.

    rdma_config: Path | None = _RDMA.setting(
        None,
        values.path_or_none,
        "pools of HCAs, as Mellanox' shared plugin reads them; default that plugin's file if it is "
        "there; `none` for none",
        "FILE",
        is_live=True,
    )
    rdma_mode: str = _RDMA.choice(
        "shared",  # as that plugin
        "what a container gets of a pool, unless the file says",
        *(mode.value for mode in SharingMode),
        is_live=True,
    )
    rdma_issm: bool = _RDMA.switch(
        False, "give containers the devices of a subnet manager too", is_live=True
    )
    rdma_hand_over: str = _RDMA.choice(
        "device-specs",  # which every runtime understands
        "how HCAs reach a container",
        "device-specs",
        "cdi-cri",
        is_live=True,
    )
    rdma_cdi_kind: str = _RDMA.setting(
        "device-plugin.nodetopo.io/hca",
        values.resource,
        "vendor/class of the HCAs in the CDI specification that cdi-cri needs",
        "NAME",
        is_live=True,
    )
    job_variables: tuple[JobVariable, ...] = _RDMA.setting(
        (),  # a job may have its own, or choose among HCAs in ways that a list would hinder
        policies.job_variables,
        "variables for containers with HCAs, by comma; a pod's own win: "
        f"{', '.join(JobVariable)}; or all, or none",
        "LIST",
        is_live=True,
    )
    gpu_hca_resource: str | None = _RDMA.setting(
        None,
        values.resource_or_none,
        "offer each GPU with an HCA of its own as one device of this resource, not alone; `none` "
        "for not",
        "NAME",
        is_live=True,
    )

    # Health: when a GPU is Unhealthy, and when it is Healthy again.

    health_checks: bool = _HEALTH.switch(True, "let errors that GPUs report make them Unhealthy")
    xid_classes: Mapping[int, HealthClass] = _HEALTH.setting(
        XidClasses(),
        policies.xid_classes,
        f"XID=CLASS or FROM-TO=CLASS by comma, over the usual: {', '.join(HealthClass)}",
        "LIST",
    )
    recovery_s: float = _HEALTH.setting(
        60.0, values.duration, "how long a repaired GPU must stay well before it is Healthy", "TIME"
    )
    expect_gpus: int | None = _HEALTH.setting(
        None,
        values.gpu_count,
        "GPUs that the machine should have on PCI, 0 for no check; auto: as many as it has had, or "
        "its instance type has",
        "COUNT",
    )
    gpu_count_file: Path | None = _HEALTH.setting(
        None,
        values.path_or_none,
        "where the most GPUs that the machine has had are kept; default gpu-count.json beside "
        "health-file",
        "FILE",
    )
    health_file: Path | None = _HEALTH.setting(
        Path("/run/nodetopo/health.json"),  # in /run, which a boot empties
        values.path_or_none,
        "where the health of GPUs outlives the daemon; `none` for none",
        "FILE",
    )
    kernel_log: Path | None = _HEALTH.setting(
        None, values.path_or_none, "also read XIDs from this kernel log, such as /dev/kmsg", "FILE"
    )

    # Audit: which rules and which answers of the kubelet are used, and who learns the result.

    checks_file: Path | None = _AUDIT.setting(
        None,
        values.path_or_none,
        "severities and waivers for `health`, `audit` and the metrics of both, YAML or JSON",
        "FILE",
    )
    kubelet_url: str | None = _AUDIT.setting(
        None,
        values.kubelet_url,
        "where the kubelet answers, such as https://10.0.0.7:10250; default its configuration"
        " files",
        "URL",
    )
    kubelet_ca_file: Path | None = _AUDIT.setting(
        None,
        values.path_or_none,
        "authority that signed the kubelet's certificate; default the service account's",
        "FILE",
    )
    kubelet_insecure_tls: bool = _AUDIT.switch(
        False, "accept any certificate of the kubelet, which most sign themselves"
    )
    audit_node: bool = _AUDIT.switch(
        True, "judge the node as `audit` does, for metrics, every ten minutes"
    )
    measure_pods: bool = _AUDIT.switch(
        True, "measure how pods with GPUs are aligned, for metrics, once a minute"
    )
    publish_pod_events: bool = _AUDIT.switch(False, "post an Event on a pod that is misaligned")
    explain_rejections: bool = _AUDIT.switch(
        False, "explain on a pod why the kubelet rejected it, as Event and in the log"
    )

    @property
    def needs_pod_loops(self) -> bool:
        """Whether the node is audited, or pods are measured, awaited or explained."""
        follows_pods = self.measure_pods or self.publish_pod_events or self.explain_rejections
        return self.audit_node or follows_pods or self.expect_run_times


def options() -> Mapping[str, Option]:
    """Return every setting by field name, in the order of declaration."""
    return {setting.name: setting.metadata["option"] for setting in fields(Settings)}


def option(name: str) -> Option:
    """Return the option of the field *name*."""
    return options()[name]


def default(name: str) -> object:
    """Return the default of the field *name*; ``None`` where it depends on the environment."""
    value = Settings.__dataclass_fields__[name].default
    return None if value is MISSING else value


def key(name: str) -> str:
    """Return the YAML key of a field, which is also its flag without the dashes."""
    return name.removesuffix("_s").replace("_", "-")


def variable(name: str) -> str:
    """Return the environment variable of a field."""
    return PREFIX + name.removesuffix("_s").upper()


def roots(settings: Settings) -> "Roots":
    """Return the mounts of sysfs, procfs and the host's file system."""
    from agent.probes.sysfs.host import Roots  # noqa: PLC0415 - imports all probes of the host

    return Roots(sysfs=settings.sysfs_root, procfs=settings.procfs_root, host=settings.host_root)
