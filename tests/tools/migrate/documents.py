"""Configuration of the programs that are replaced, with every key that each of them documents."""

import json

from nodetopo.kernel.settings.nvidia.names import NAMES, Name, ValueKind

PLUGIN_KEYS = [
    "config.name",
    "config.map",
    "config.default",
    "config.fallbackStrategies",
    "compatWithCPUManager",
    "migStrategy",
    "failOnInitError",
    "deviceListStrategy",
    "deviceIDStrategy",
    "nvidiaDriverRoot",
    "nvidiaDevRoot",
    "gdrcopyEnabled",
    "gdsEnabled",
    "mofedEnabled",
    "deviceDiscoveryStrategy",
    "nameOverride",
    "fullnameOverride",
    "namespaceOverride",
    "selectorLabelsOverride",
    "allowDefaultNamespace",
    "imagePullSecrets",
    "image.repository",
    "image.pullPolicy",
    "image.tag",
    "updateStrategy",
    "podAnnotations",
    "podSecurityContext",
    "securityContext",
    "resources",
    "nodeSelector",
    "affinity",
    "tolerations",
    "priorityClassName",
    "runtimeClassName",
    "devicePlugin.enabled",
    "devicePlugin.enableHostNetwork",
    "gfd.enabled",
    "gfd.nameOverride",
    "gfd.namespaceOverride",
    "gfd.noTimestamp",
    "gfd.sleepInterval",
    "gfd.securityContext",
    "gfd.enableHostNetwork",
    "nfd.nameOverride",
    "nfd.master.config.extraLabelNs",
    "nfd.worker.tolerations",
    "nfd.worker.config.sources.pci.deviceClassWhitelist",
    "mps.root",
    "mps.enableHostPID",
    "mps.enableHostNetwork",
    "cdi.nvidiaHookPath",
    "cdi.featureFlags",
]
"""Of NVIDIA's chart (k8s-device-plugin v0.20.0)."""

OPERATOR_KEYS = [
    "platform",
    "nfd.enabled",
    "nfd.nodefeaturerules",
    "psa",
    "cdi",
    "sandboxWorkloads",
    "hostPaths.rootFS",
    "hostPaths.driverInstallDir",
    "hostPaths.kubeletRootDir",
    "daemonsets.labels",
    "daemonsets.annotations",
    "daemonsets.priorityClassName",
    "daemonsets.tolerations",
    "daemonsets.updateStrategy",
    "daemonsets.rollingUpdate",
    "validator",
    "operator.repository",
    "operator.runtimeClass",
    "operator.logging",
    "mig.strategy",
    "driver",
    "toolkit",
    "devicePlugin.enabled",
    "devicePlugin.repository",
    "devicePlugin.image",
    "devicePlugin.version",
    "devicePlugin.imagePullPolicy",
    "devicePlugin.imagePullSecrets",
    "devicePlugin.args",
    "devicePlugin.env",
    "devicePlugin.resources",
    "devicePlugin.config.create",
    "devicePlugin.config.name",
    "devicePlugin.config.default",
    "devicePlugin.config.data",
    "devicePlugin.mps.root",
    "devicePlugin.hostNetwork",
    "dcgm",
    "dcgmExporter",
    "gfd.enabled",
    "gfd.repository",
    "gfd.image",
    "gfd.version",
    "gfd.imagePullPolicy",
    "gfd.imagePullSecrets",
    "gfd.env",
    "gfd.resources",
    "gfd.hostNetwork",
    "migManager",
    "nodeStatusExporter",
    "gds",
    "gdrcopy",
    "vgpuManager",
    "vgpuDeviceManager",
    "vfioManager",
    "kataManager",
    "sandboxDevicePlugin",
    "kataSandboxDevicePlugin",
    "ccManager",
    "clusterPolicy",
    "gpuCluster",
    "draDriver",
    "extraObjects",
    "node-feature-discovery.worker.config.sources.pci.deviceLabelFields",
]
"""Of the GPU operator's chart."""

NFD_KEYS = [
    "image",
    "imagePullSecrets",
    "nameOverride",
    "fullnameOverride",
    "namespaceOverride",
    "featureGates",
    "checksumValuesOnly",
    "priorityClassName",
    "postDeleteCleanup",
    "global",
    "master.enable",
    "master.config.noPublish",
    "master.config.extraLabelNs",
    "master.extraLabelNs",
    "worker.enable",
    "worker.config.core.sleepInterval",
    "worker.config.sources.pci.deviceClassWhitelist",
    "worker.resources",
    "topologyUpdater",
    "gc",
    "prometheus",
]
"""Of NFD's chart."""

NFD_WORKER_KEYS = [
    "core.labelWhiteList",
    "core.noPublish",
    "core.noOwnerRefs",
    "core.ownerRefs",
    "core.sleepInterval",
    "core.featureSources",
    "core.labelSources",
    "core.noPublishFeatures",
    "core.klog.v",
    "core.klog.logDir",
    "sources.cpu",
    "sources.kernel",
    "sources.pci.deviceClassWhitelist",
    "sources.pci.deviceLabelFields",
    "sources.usb",
    "sources.custom",
]

RDMA_CONFIG = json.dumps(
    {
        "periodicUpdateInterval": 300,
        "configList": [
            {
                "resourceName": "shared_a",
                "resourcePrefix": "example.com",
                "rdmaHcaMax": 63,
                "devices": ["ib0"],
            },
            {
                "resourceName": "shared_b",
                "rdmaHcaMax": 8,
                "selectors": {
                    "vendors": ["15b3"],
                    "deviceIDs": ["1017"],
                    "drivers": ["mlx5_core"],
                    "ifNames": ["ib1"],
                    "linkTypes": ["infiniband"],
                },
            },
        ],
    },
    indent=1,
)

SPECIAL = {
    "DP_DISABLE_HEALTHCHECKS": "13,31",
    "DP_ENABLE_HEALTHCHECKS": "13",
    "NODE_LABEL": "example.com/config",
    "CONFIG_FILE_SRCDIR": "/configs",
    "kubelet-socket": "/data/kubelet/kubelet.sock",
    "imex-channel-ids": "0",
    "cdi-annotation-prefix": "example.com/",
    "sleep-interval": "30s",
}


def values_of(name: Name) -> tuple[str, ...]:
    """Return texts that a flag or a variable of *name* may have, each kind of value once."""
    match name.kind:
        case ValueKind.SWITCH:
            return ("true", "false")
        case ValueKind.WORD | ValueKind.WORDS:
            return name.words
    return (SPECIAL.get(name.name, "/some/where"),)


def in_places() -> list[tuple[str, str]]:
    """Return every setting in every place as a document, with the name in that place."""
    found: list[tuple[str, str]] = []
    for name in NAMES:
        for text in values_of(name) if name.flags or name.variables else ():
            found += [(f"--{flag}", pod(args=[f"--{flag}={text}"])) for flag in name.flags]
            found += [(word, pod(env={word: text})) for word in name.variables]
        if name.path is not None:
            found += [(name.path, text) for text in in_file(name)]
    return found


def in_file(name: Name) -> list[str]:
    """Return files of ``version: v1`` with a value of *name* each."""
    values: list[object] = list(values_of(name))
    match name.kind:
        case ValueKind.SWITCH:
            values = [True, False]
        case ValueKind.NUMBERS:
            values = [[0]]
        case ValueKind.TIME_SLICING | ValueKind.MPS:
            values = [{"resources": [{"name": "nvidia.com/gpu", "replicas": 4}]}]
        case ValueKind.RESOURCES:
            values = [[{"pattern": "*A100*", "name": "a100"}]]
    assert name.path is not None
    return [json.dumps({"version": "v1", **nested(name.path, value)}) for value in values]


def nested(path: str, value: object) -> dict[str, object]:
    """Return *value* below the keys of *path*."""
    for word in reversed(path.split(".")):
        value = {word: value}
    assert isinstance(value, dict)
    return value


def pod(*, args: list[str] | None = None, env: dict[str, str] | None = None) -> str:
    """Return a DaemonSet of NVIDIA's plugin."""
    container = {
        "name": "nvidia-device-plugin-ctr",
        "image": "registry.example/nvidia/k8s-device-plugin:v0.19.0",
        "args": args or [],
        "env": [{"name": name, "value": value} for name, value in (env or {}).items()],
    }
    spec = {"template": {"spec": {"containers": [container]}}}
    whole = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "plugin"},
        "spec": spec,
    }
    return json.dumps(whole, indent=1)
