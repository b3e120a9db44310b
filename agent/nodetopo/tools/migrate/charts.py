"""Verdicts on keys other than NVIDIA's settings: Helm values, NFD, RDMA, pods.

Sources: k8s-device-plugin v0.20.0 ``deployments/helm/nvidia-device-plugin/values.yaml`` and its
templates; gpu-operator ``deployments/gpu-operator/values.yaml`` (main of 2026-10);
node-feature-discovery v0.20 ``deployment/helm`` and ``nfd-worker.conf.example``;
k8s-rdma-shared-dev-plugin ``README.md`` and ``pkg/types/types.go`` (2026-04).
"""

from collections.abc import Mapping
from enum import Enum, auto
from typing import TypeAlias

from msgspec import Struct, field

from nodetopo.tools.migrate.findings import Verdict
from nodetopo.tools.migrate.nvidia import PLUGIN

GFD = "GPU Feature Discovery"
CONFIG_MANAGER = "NVIDIA's config-manager"
OPERATOR = "NVIDIA's GPU operator"
NFD = "Node Feature Discovery"
RDMA = "the RDMA shared device plugin"
OTHER = "another program"


class Rule(Struct, frozen=True, kw_only=True):
    """The verdict on one key."""

    verdict: Verdict
    means: str
    # By key of nodetopo's file; `$value` in one is replaced by the value.
    settings: Mapping[str, str] = field(default_factory=dict)
    components: tuple[str, ...] = ()
    off: "Rule | None" = None  # the rule if its value is `false`; None: the same
    same: tuple[str, ...] = ()  # values that nodetopo's manifests have already


class Inner(Enum):
    """Keys whose value has another form."""

    CONFIGS = auto()
    """Configurations by name, each a text of ``version: v1``."""
    ENVIRONMENT = auto()
    """A list of variables as in a container."""
    ARGUMENTS = auto()
    """A list of flags as in a container."""


Entry: TypeAlias = "str | Rule | Inner"
"""A text is one of the names of NVIDIA's settings, as in :func:`known`."""

Table: TypeAlias = Mapping[str, Entry]
"""By path; ``[]`` in one stands for each item of a list."""


def _rule(verdict: Verdict, means: str, *components: str, **settings: str) -> Rule:
    written = {name.replace("_", "-"): value for name, value in settings.items()}
    return Rule(verdict=verdict, means=means, components=components, settings=written)


def _each(keys: str, entry: Entry, prefix: str = "") -> dict[str, Entry]:
    return dict.fromkeys((f"{prefix}{word}" for word in keys.split()), entry)


_PATCH = _rule(Verdict.SET, "a patch of your kustomization, or the same value of nodetopo's chart")
_OWN = _rule(Verdict.IGNORED, "nodetopo's manifests have a name, an image and rights of their own")
_STAYS = _rule(Verdict.NOT_OURS, "stays with NFD, whose feature labels nodetopo does not write")
_OPERATORS = _rule(Verdict.NOT_OURS, "stays with the operator")
_MPS = _rule(Verdict.IGNORED, "MPS is not supported")
_CRITICAL = Rule(
    verdict=Verdict.SET,
    means="nodetopo has system-node-critical; another one is a patch",
    same=("system-node-critical",),
)
_AFFINITY = _rule(
    Verdict.DIFFERS,
    "the chart selects nodes by the labels of NFD, the GPU Operator and clouds; the manifests run "
    "on every Linux node unless component gpu-nodes is added",
)
_TOLERATIONS = _rule(
    Verdict.SET,
    "nodetopo tolerates nvidia.com/gpu (NoSchedule) and CriticalAddonsOnly; others are a patch",
)
_SECURITY = _rule(
    Verdict.IGNORED, "nodetopo needs no privilege: root without capabilities, read-only"
)
_AS_USUAL = _rule(Verdict.SAME, "nodetopo's pod is the same")
_NO_HOST_NETWORK = Rule(
    verdict=Verdict.DIFFERS,
    means="nodetopo has an address of its own for /metrics and the probes; hostNetwork is a patch",
    off=_AS_USUAL,
)
_RUNTIME_CLASS = _rule(
    Verdict.SET, "component nvidia-runtime, which names the class nvidia", "nvidia-runtime"
)
_LABELS_HERE = Rule(
    verdict=Verdict.SAME,
    means="nodetopo writes the labels of GPU Feature Discovery itself; remove that",
    off=_rule(
        Verdict.SET,
        "nodetopo writes the labels of GPU Feature Discovery anyway; where another program is to "
        "write them, set publish-labels: false",
    ),
)

PLUGIN_VALUES: Table = {
    "config.name": _rule(
        Verdict.SET,
        "copy the ConfigMap $value into nodetopo's namespace; the overlay nvidia-config mounts it",
        "named-config",
    ),
    "config.map": Inner.CONFIGS,
    "config.default": "DEFAULT_CONFIG",
    "config.fallbackStrategies": "FALLBACK_STRATEGIES",
    "compatWithCPUManager": "PASS_DEVICE_SPECS",
    "migStrategy": "MIG_STRATEGY",
    "failOnInitError": "FAIL_ON_INIT_ERROR",
    "deviceListStrategy": "DEVICE_LIST_STRATEGY",
    "deviceIDStrategy": "DEVICE_ID_STRATEGY",
    "nvidiaDriverRoot": "NVIDIA_DRIVER_ROOT",
    "nvidiaDevRoot": "NVIDIA_DEV_ROOT",
    "gdrcopyEnabled": "GDRCOPY_ENABLED",
    "gdsEnabled": "GDS_ENABLED",
    "mofedEnabled": "MOFED_ENABLED",
    "deviceDiscoveryStrategy": "DEVICE_DISCOVERY_STRATEGY",
    "noTimestamp": "GFD_NO_TIMESTAMP",
    "sleepInterval": "GFD_SLEEP_INTERVAL",
    "gfd.noTimestamp": "GFD_NO_TIMESTAMP",
    "gfd.sleepInterval": "GFD_SLEEP_INTERVAL",
    "cdi.nvidiaHookPath": "NVIDIA_CDI_HOOK_PATH",
    "cdi.featureFlags": "CDI_FEATURE_FLAGS",
    "mps.root": "MPS_ROOT",
    **_each("mps.enableHostPID mps.enableHostNetwork", _MPS),
    "runtimeClassName": _RUNTIME_CLASS,
    "gfd.enabled": _LABELS_HERE,
    "devicePlugin.enabled": Rule(
        verdict=Verdict.SAME,
        means="nodetopo offers the resource; remove NVIDIA's plugin",
        off=_rule(
            Verdict.DIFFERS,
            "nodetopo always offers the resource; for labels alone run `nodetopo publish`",
        ),
    ),
    **_each("devicePlugin.enableHostNetwork gfd.enableHostNetwork", _NO_HOST_NETWORK),
    "gfd.securityContext": _SECURITY,
    **_each(
        "nameOverride fullnameOverride namespaceOverride selectorLabelsOverride namespace"
        " allowDefaultNamespace gfd.nameOverride gfd.namespaceOverride image.repository"
        " image.pullPolicy image.tag",
        _OWN,
    ),
    **_each("imagePullSecrets podAnnotations resources nodeSelector updateStrategy", _PATCH),
    **_each("podSecurityContext securityContext", _SECURITY),
    "affinity": _AFFINITY,
    "tolerations": _TOLERATIONS,
    "priorityClassName": _CRITICAL,
}
"""Of NVIDIA's chart; keys of NFD's below ``nfd`` are in :data:`NFD_VALUES`."""

_PCI = _rule(
    Verdict.NOT_SUPPORTED,
    "nodetopo writes no feature.node.kubernetes.io/pci-* labels: keep NFD where something selects "
    "them, such as pci-10de.present, or select nvidia.com/gpu.present",
)
_LOCAL = _rule(
    Verdict.NOT_OURS, "stays with NFD; it must read features.d for nodetopo's output nfd-file"
)
_KLOG = _each(
    "addDirHeader alsologtostderr logBacktraceAt logtostderr skipHeaders stderrthreshold v vmodule"
    " logDir logFile logFileMaxSize skipLogHeaders",
    _STAYS,
    "core.klog.",
)

NFD_WORKER: Table = {
    **_each(
        "labelWhiteList noPublish noOwnerRefs ownerRefs sleepInterval noPublishFeatures",
        _STAYS,
        "core.",
    ),
    **_each("featureSources labelSources sources", _LOCAL, "core."),
    **_KLOG,
    "sources.pci.deviceClassWhitelist": _PCI,
    "sources.pci.deviceLabelFields": _PCI,
    **_each("cpu kernel usb custom local memory network storage system fake", _STAYS, "sources."),
}

_EXTRA_LABELS = _rule(
    Verdict.NOT_OURS,
    "stays with NFD; keep nvidia.com, and add nodetopo's prefix gpu.topology, where nodetopo's "
    "labels go through NFD (components nfd-file and node-feature)",
)
_UPDATER = _rule(
    Verdict.NOT_OURS,
    "stays with NFD; do not add nodetopo's component zones beside it: both write the same objects",
)

NFD_VALUES: Table = {
    **{f"worker.config.{path}": entry for path, entry in NFD_WORKER.items()},
    **_each("extraLabelNs config.extraLabelNs", _EXTRA_LABELS, "master."),
    **_each(
        "noPublish denyLabelNs enableTaints informerPageSize labelWhiteList resyncPeriod"
        " restrictions klog leaderElection nfdApiParallelism",
        _STAYS,
        "master.config.",
    ),
    **_each(
        "enable extraArgs extraEnvs hostNetwork hostUsers dnsPolicy port instance resyncPeriod"
        " denyLabelNs enableTaints nfdApiParallelism deploymentAnnotations replicaCount"
        " podSecurityContext initContainers securityContext serviceAccount revisionHistoryLimit"
        " rbac resources nodeSelector tolerations podDisruptionBudget networkPolicy annotations"
        " labels affinity startupProbe livenessProbe readinessProbe",
        _STAYS,
        "master.",
    ),
    **_each(
        "enable ownerRefs extraArgs extraEnvs hostNetwork hostUsers dnsPolicy port"
        " daemonsetAnnotations podSecurityContext initContainers securityContext livenessProbe"
        " readinessProbe serviceAccount revisionHistoryLimit rbac mountUsrSrc resources"
        " nodeSelector tolerations annotations labels affinity priorityClassName updateStrategy"
        " networkPolicy",
        _STAYS,
        "worker.",
    ),
    **_each("topologyUpdater", _UPDATER),
    **_each("gc prometheus global featureGates image imagePullSecrets nameOverride", _STAYS),
    **_each(
        "fullnameOverride namespaceOverride checksumValuesOnly priorityClassName"
        " postDeleteCleanup enableNodeFeatureApi tls enabled",
        _STAYS,
    ),
}

_NOT_BY_OPERATOR = Rule(
    verdict=Verdict.SET,
    means="set it to false in the operator: nodetopo takes this over",
    off=_rule(Verdict.SAME, "the operator leaves it out already"),
)

OPERATOR_VALUES: Table = {
    "mig.strategy": "MIG_STRATEGY",
    "devicePlugin.enabled": _NOT_BY_OPERATOR,
    "devicePlugin.env": Inner.ENVIRONMENT,
    "devicePlugin.args": Inner.ARGUMENTS,
    "devicePlugin.config.data": Inner.CONFIGS,
    "devicePlugin.config.name": PLUGIN_VALUES["config.name"],
    "devicePlugin.config.default": "DEFAULT_CONFIG",
    "devicePlugin.config.create": _OWN,
    "devicePlugin.mps.root": "MPS_ROOT",
    "devicePlugin.hostNetwork": _NO_HOST_NETWORK,
    "gfd.enabled": _NOT_BY_OPERATOR,
    "gfd.env": Inner.ENVIRONMENT,
    "gfd.hostNetwork": _NO_HOST_NETWORK,
    **{
        f"{operand}.{name}": entry
        for operand in ("devicePlugin", "gfd")
        for name, entry in {
            **_each("repository image version imagePullPolicy", _OWN),
            **_each("imagePullSecrets resources", _PATCH),
        }.items()
    },
    "nfd.enabled": _STAYS,
    "nfd.nodefeaturerules": _STAYS,
    "operator.runtimeClass": _RUNTIME_CLASS,
    "hostPaths.driverInstallDir": _rule(
        Verdict.SET,
        "where the driver is a container; leave it out where it is installed on the nodes",
        driver_root="$value",
    ),
    "hostPaths.rootFS": _OPERATORS,
    "hostPaths.kubeletRootDir": _rule(
        Verdict.SET,
        "the plugin directory stays; patch the volumes of nodetopo's DaemonSet that are below it",
        plugins_registry_dir="$value/plugins_registry",
        pod_resources_socket="$value/pod-resources/kubelet.sock",
    ),
    "daemonsets.tolerations": _TOLERATIONS,
    "daemonsets.priorityClassName": _CRITICAL,
    **_each("labels annotations updateStrategy rollingUpdate", _PATCH, "daemonsets."),
    "gds": _rule(
        Verdict.NOT_OURS,
        "the operator installs the driver; containers get it with gds: true (component "
        "host-devices)",
    ),
    "gdrcopy": _rule(
        Verdict.NOT_OURS,
        "the operator installs the driver; containers get it with gdrcopy: true (component "
        "host-devices)",
    ),
    # The plugin, not the toolkit, writes the specification of the GPUs that it advertises
    # (NVIDIA/k8s-device-plugin; kubernetes-sigs/dra-driver-nvidia-gpu issue 426).
    "cdi.enabled": Rule(
        verdict=Verdict.SET,
        means="without NVIDIA's plugin, component cdi writes the CDI specification of the GPUs",
        components=("cdi",),
        off=_rule(Verdict.SAME, "the toolkit's runtime brings the GPUs, by envvar"),
    ),
    **_each("default nriPluginEnabled", _OPERATORS, "cdi."),
    **_each(
        "repository image version imagePullPolicy imagePullSecrets env priorityClassName"
        " nodeSelector use_ocp_driver_toolkit cleanupCRD upgradeCRD tolerations annotations"
        " affinity logging resources metrics defaultRuntime initContainer",
        _OPERATORS,
        "operator.",
    ),
    **_each(
        "platform psa sandboxWorkloads dcgm nodeStatusExporter vgpuManager vgpuDeviceManager"
        " vfioManager kataManager sandboxDevicePlugin kataSandboxDevicePlugin ccManager"
        " clusterPolicy draDriver extraObjects fabricManager",
        _OPERATORS,
    ),
    "gpuCluster.deployCR": Rule(
        verdict=Verdict.DIFFERS,
        means="NVIDIA's DRA driver publishes the GPUs: nodetopo steps back from them, and pods get "
        "them by claims, not as nvidia.com/gpu",
        off=_OPERATORS,
    ),
    "driver": _rule(
        Verdict.NOT_OURS,
        "stays with the operator; while an upgrade unloads the driver, nodetopo closes NVML or its "
        "pod goes",
    ),
    "migManager": _rule(
        Verdict.NOT_OURS,
        "stays with the operator; during a change nodetopo closes NVML or its pod goes. For the "
        "MIG manager to wait for that, add nvidia.com/gpu.deploy.client to nodetopo's nodeSelector",
    ),
    "validator": _rule(
        Verdict.NOT_OURS,
        "stays with the operator, which leaves out its test of the device plugin where "
        "devicePlugin.enabled is false",
    ),
    "toolkit": _rule(
        Verdict.NOT_OURS,
        "stays with the operator; nodetopo's pod gets NVML by its runtime, so it starts once that "
        "is there",
    ),
    "dcgmExporter": _rule(
        Verdict.NOT_OURS,
        "stays with the operator; it learns from the kubelet which pod has which GPU, whichever "
        "plugin gave it",
    ),
}
"""Of the operator's chart, and of ``spec`` of its ClusterPolicy; keys of NFD's below
``node-feature-discovery`` are in :data:`NFD_VALUES`."""

_RDMA_READ = _rule(Verdict.SET, "the same in the file of rdma-config", "rdma")

RDMA_CONFIG: Table = {
    "periodicUpdateInterval": _rule(
        Verdict.IGNORED,
        "HCAs that come and go are offered at the next scan, every scan-interval",
    ),
    "configList[].resourceName": _rule(
        Verdict.DIFFERS,
        "rdma-config offers $resource with as many devices without NUMA nodes, and a container "
        "gets the device nodes of every HCA of it as before, except HCAs whose ports are down. "
        "Devices are named after HCAs; storage cards and functions of a whole card are left out "
        "unless ifNames names them or the entry matches nothing else, and without an HCA the "
        "resource is not registered; nothing is set up on interfaces. `numa: true` in its entry "
        "adds the NUMA node; with `mode: chosen` devices have it, and a container gets those "
        "alone that are nearest to its GPUs",
        "rdma",
    ),
    **_each("resourcePrefix rdmaHcaMax", _RDMA_READ, "configList[]."),
    "configList[].devices": _rule(
        Verdict.SET, "the same as selectors.ifNames, which is the newer name", "rdma"
    ),
    **_each("vendors deviceIDs drivers ifNames linkTypes", _RDMA_READ, "configList[].selectors."),
    **_each("mode issm numa", _rule(Verdict.SAME, "a key of rdma-config's own"), "configList[]."),
    "configList[].selectors.hcas": _rule(Verdict.SAME, "a key of rdma-config's own"),
}

NFD_FLAGS: Table = _each(
    "config kubeconfig oneshot port options no-publish no-owner-refs owner-refs feature-sources"
    " label-sources no-publish-features version feature-gates v",
    _STAYS,
)
RDMA_FLAGS: Table = {
    "config-file": _rule(
        Verdict.SET,
        "rdma-config names the file; the shared plugin's usual place is its default",
        "rdma",
    ),
    "use-cdi": _rule(
        Verdict.SET,
        "HCAs by names of a specification of our own kind; files of other programs stay, which "
        "the shared plugin deletes at its start and stop (pkg/cdi/cdi.go)",
        "rdma",
        "cdi",
        rdma_hand_over="cdi-cri",
    ),
    "version": _rule(Verdict.IGNORED, "prints a version and ends"),
    "v": _rule(Verdict.IGNORED, "prints a version and ends"),
}

_NO_SIDECAR = _rule(Verdict.IGNORED, "nodetopo selects a configuration itself, without a sidecar")
_GIVEN = _rule(Verdict.SAME, "nodetopo's DaemonSet sets it for itself")

VARIABLES: Table = {
    **_each("ONESHOT CONFIG_FILE_DST SEND_SIGNAL SIGNAL PROCESS_TO_SIGNAL", _NO_SIDECAR),
    **_each("KUBECONFIG NODE_NAME POD_NAME NAMESPACE POD_NAMESPACE", _GIVEN),
    **_each("NVIDIA_VISIBLE_DEVICES NVIDIA_DRIVER_CAPABILITIES", _GIVEN),
    "NVIDIA_MIG_MONITOR_DEVICES": _rule(Verdict.SET, "by the component", "mig-access"),
    **_each(
        "CONFIG_FILE GFD_CONFIG_FILE",
        _rule(
            Verdict.SET,
            "the ConfigMap behind it: component named-config, or the overlay nvidia-config",
            "named-config",
        ),
    ),
}
"""Variables of NVIDIA's containers that are not NVIDIA's settings."""

FLAGS: Table = {
    "config-file": VARIABLES["CONFIG_FILE"],
    **_each(
        "kubeconfig node-name node-label config-file-srcdir config-file-dst default-config"
        " fallback-strategies send-signal signal process-to-signal",
        _NO_SIDECAR,
    ),
}
"""Flags of NVIDIA's programs that are not NVIDIA's settings."""

POD: Table = {
    "runtimeClassName": _RUNTIME_CLASS,
    "nodeSelector": _PATCH,
    "affinity": _AFFINITY,
    "tolerations": _TOLERATIONS,
    "priorityClassName": _CRITICAL,
    "imagePullSecrets": _PATCH,
    "hostNetwork": _NO_HOST_NETWORK,
    "hostPID": Rule(
        verdict=Verdict.IGNORED,
        means="nodetopo needs it for component host-audit only",
        off=_AS_USUAL,
    ),
}
"""Keys of NVIDIA's pods; other keys of a pod get no verdict."""

PROGRAMS: tuple[tuple[str, str], ...] = (
    ("nvidia-device-plugin", PLUGIN),
    ("k8s-device-plugin", PLUGIN),
    ("gpu-feature-discovery", GFD),
    ("config-manager", CONFIG_MANAGER),
    ("k8s-rdma-shared-dp", RDMA),
    ("k8s-rdma-shared-dev-plugin", RDMA),
    ("nfd-worker", NFD),
    ("nfd-master", NFD),
    ("nfd-topology-updater", NFD),
    ("nfd-gc", NFD),
    ("node-feature-discovery", NFD),
    ("gpu-operator", OPERATOR),
)
"""The last part of a command or of an image's name, and the program that it is."""
