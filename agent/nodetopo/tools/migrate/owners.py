"""Whose document it is, where it is none of the replaced programs': forms, kinds and containers.

Sources: NVIDIA/mig-parted ``deployments``, ``examples`` (v0.15); gpu-operator ``values.yaml``
and ``api/nvidia/v1alpha1/gpucluster_types.go`` (main of 2026-08); Mellanox/network-operator
``values.yaml`` of all releases and ``api/v1alpha1``; kubernetes-sigs/dra-driver-nvidia-gpu
``deployments/helm`` (main of 2026-08); aws/eks-charts ``aws-efa-k8s-device-plugin``;
sriov-network-device-plugin ``README.md``; Project-HAMi/HAMi ``charts/hami`` and
``cmd/device-plugin/nvidia/vgpucfg.go`` (main of 2026-08).
"""

import re
from collections.abc import Mapping

from msgspec import Struct

from nodetopo.formats.document import Value
from nodetopo.tools.migrate import charts
from nodetopo.tools.migrate.findings import Verdict
from nodetopo.tools.migrate.nodes import below, items_of, text_of

TWO_PLUGINS = (
    "it offers nvidia.com/gpu, too: of two plugins the kubelet keeps one, and nodetopo steps back; "
    "remove it, or keep nodetopo off its nodes"
)
PUBLISHED = (
    "NVIDIA's DRA driver publishes the GPUs of these nodes: nodetopo steps back from them "
    "(offer-gpus: auto), and pods get them by claims, not as nvidia.com/gpu"
)


class Owner(Struct, frozen=True, kw_only=True):
    """Another program, told by keys of its own."""

    program: str
    keys: tuple[str, ...]  # dotted paths that no other form has
    means: str  # what becomes of the document
    verdict: Verdict = Verdict.NOT_OURS


def _keys(words: str) -> tuple[str, ...]:
    return tuple(words.split())


MIG_MANAGER = Owner(
    program="NVIDIA's MIG manager",
    keys=("mig-configs", "systemd-services", "hooks"),
    means="stays with the MIG manager; nodetopo offers the MIG devices that it makes",
)
NETWORK_OPERATOR = Owner(
    program="NVIDIA's network operator",
    keys=_keys(
        "sriovNetworkOperator sriov-network-operator maintenanceOperator"
        " maintenance-operator-chart nicConfigurationOperator nic-configuration-operator-chart"
        " nicFeatureDiscovery deployCR keepNCP ofedDriver nvPeerDriver rdmaSharedDevicePlugin"
        " sriovDevicePlugin ibKubernetes secondaryNetwork nvIpam docaTelemetryService"
        " nfd.deployNodeFeatureRules operator.ofedDriver operator.cniBinDirectory"
        " operator.cniNetworkDirectory operator.admissionController operator.maintenanceOperator"
        " operator.useDTK"
    ),
    means="stays with NVIDIA's network operator",
)
DRA_DRIVER = Owner(
    program="NVIDIA's DRA driver",
    keys=_keys(
        "gpuResourcesEnabledOverride kubeletPlugin resources.gpus.enabled resources.computeDomains"
        " nvidiaCDIHookPath altProcDevices consumableShares"
    ),
    means=PUBLISHED,
    verdict=Verdict.DIFFERS,
)
EFA = Owner(
    program="the EFA device plugin",
    keys=("supportedInstanceLabels", "privilegedSupportedInstanceLabels"),
    means="stays with the EFA device plugin, which offers vpc.amazonaws.com/efa",
)
SRIOV = Owner(
    program="the SR-IOV network device plugin",
    keys=("resourceList",),
    means="stays with the SR-IOV network device plugin; nodetopo offers none of its resources",
)
VGPU_MANAGER = Owner(
    program="NVIDIA's vGPU device manager",
    keys=("vgpu-configs",),
    means="stays with the vGPU device manager",
)
HAMI = Owner(
    program="HAMi's device plugin",
    keys=_keys(
        "resourceMem resourceMemPercentage resourceCores resourcePriority mockDevicePlugin"
        " schedulerName legacyMetrics devicePlugin.deviceSplitCount"
        " devicePlugin.deviceMemoryScaling devicePlugin.deviceCoreScaling"
        " devicePlugin.disablecorelimit devicePlugin.nvidiaNodeSelector"
        " scheduler.defaultSchedulerPolicy scheduler.kubeScheduler"
    ),
    means=f"nodetopo has no nvidia.com/gpumem and nvidia.com/gpucores; {TWO_PLUGINS}",
    verdict=Verdict.DIFFERS,
)
OWNERS = (MIG_MANAGER, NETWORK_OPERATOR, DRA_DRIVER, EFA, SRIOV, VGPU_MANAGER, HAMI)

_HAMI_FLAGS = (
    "device-split-count",
    "device-memory-scaling",
    "device-cores-scaling",
    "disable-core-limit",
)
"""Of HAMi's plugin alone, whose command is that of NVIDIA's."""


def is_hami(container: Value) -> bool:
    """Return whether a container runs HAMi's device plugin: by its image, or flags of its own."""
    words = [*items_of(below(container, "command")), *items_of(below(container, "args"))]
    flags = {text_of(it).lstrip("-").partition("=")[0] for it in words}
    image = re.split("[@:]", text_of(below(container, "image")).rpartition("/")[2])[0]
    command = text_of(next(iter(words), None)).rpartition("/")[2]
    is_its_image = image == "hami" and command.endswith("device-plugin")
    return is_its_image or not flags.isdisjoint(_HAMI_FLAGS)


NFD_RULES = "stays with NFD; rules may select by nodetopo's labels where those go through NFD"

KINDS: Mapping[str, tuple[str, Verdict, str]] = {
    "GPUCluster": (charts.OPERATOR, Verdict.DIFFERS, PUBLISHED),
    "NVIDIADriver": (charts.OPERATOR, Verdict.NOT_OURS, "the driver stays with the operator"),
    **dict.fromkeys(
        ("NodeFeatureRule", "NodeFeatureGroup", "NodeFeature"),
        (charts.NFD, Verdict.NOT_OURS, NFD_RULES),
    ),
    **dict.fromkeys(
        (
            *("SriovNetworkNodePolicy", "SriovNetworkPoolConfig", "SriovNetworkNodeState"),
            *("SriovOperatorConfig", "SriovNetwork", "SriovIBNetwork", "OVSNetwork"),
        ),
        (SRIOV.program, Verdict.NOT_OURS, "stays with the SR-IOV network operator"),
    ),
    **dict.fromkeys(
        ("HostDeviceNetwork", "MacvlanNetwork", "IPoIBNetwork"),
        (NETWORK_OPERATOR.program, Verdict.NOT_OURS, NETWORK_OPERATOR.means),
    ),
}
"""Of objects, by kind: the program, the verdict and what it means."""

_PROGRAMS: tuple[tuple[str, str, Verdict, str], ...] = (
    *(
        (word, MIG_MANAGER.program, Verdict.NOT_OURS, "stays: NVIDIA's MIG manager")
        for word in ("nvidia-mig-manager", "k8s-mig-manager")
    ),
    *(
        (word, "NVIDIA's KubeVirt plugin", Verdict.NOT_OURS, "stays: it offers GPUs to VMs")
        for word in ("nvidia-kubevirt-gpu-device-plugin", "kubevirt-gpu-device-plugin")
    ),
    ("gpu-kubelet-plugin", DRA_DRIVER.program, Verdict.DIFFERS, PUBLISHED),
    *(
        (word, EFA.program, Verdict.NOT_OURS, EFA.means)
        for word in ("aws-efa-k8s-device-plugin", "efa-device-plugin")
    ),
    *(
        (word, SRIOV.program, Verdict.NOT_OURS, SRIOV.means)
        for word in ("sriov-network-device-plugin", "kube-sriovdp", "sriovdp")
    ),
)
_OTHER_VENDORS = re.compile(r"\b(amd|rocm|intel|i915|xe|neuron|habana|tpu)\b")
_SOCKETS = "device-plugins"
"""The kubelet's directory in which device plugins register."""


def judged_container(container: Value, spec: Value) -> tuple[str, Verdict, str]:
    """Return the program, the verdict and what it means, for a container of another program."""
    if is_hami(container):
        return HAMI.program, HAMI.verdict, HAMI.means
    names = [text_of(below(container, "name")), text_of(below(container, "image"))]
    commands = [text_of(it) for it in items_of(below(container, "command"))]
    words = [re.split("[@:]", word.rpartition("/")[2])[0] for word in (*commands[:1], *names)]
    for word in words:
        for beginning, program, verdict, means in _PROGRAMS:
            if word.startswith(beginning):
                return program, verdict, means
    if not _registers(container, spec):
        return charts.OTHER, Verdict.NOT_OURS, "another program"
    variables = [text_of(below(it, "value")) for it in items_of(below(container, "env"))]
    flags = [text_of(it) for it in items_of(below(container, "args"))]
    # An image's registry says nothing: nvcr.io/nvidia has other plugins, too.
    text = " ".join((*words, *commands, *flags, *variables)).lower()
    if "nvidia.com/gpu" in text or "nvidia" in text:
        return "another device plugin", Verdict.DIFFERS, TWO_PLUGINS
    if "gpu" in text and not _OTHER_VENDORS.search(f"{names[1]} {text}"):
        means = "a device plugin whose resource its manifest does not say: see whether it offers "
        return "another device plugin", Verdict.UNKNOWN, f"{means}nvidia.com/gpu"
    return "another device plugin", Verdict.NOT_OURS, "a device plugin of other resources"


def _registers(container: Value, spec: Value) -> bool:
    """Return whether a container of the pod *spec* mounts the kubelet's plugin directory."""
    volumes = {
        text_of(below(volume, "name"))
        for volume in items_of(below(spec, "volumes"))
        if _SOCKETS in text_of(below(volume, "hostPath", "path")).split("/")
    }
    mounts = items_of(below(container, "volumeMounts"))
    return any(text_of(below(mount, "name")) in volumes for mount in mounts)
