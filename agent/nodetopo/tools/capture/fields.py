"""What becomes of each text of a snapshot: kept for a reason, or replaced.

:data:`KEPT` lists the fields that are kept, by reason; names of the node, its owner and its
workloads that they contain are replaced all the same. :data:`RULES` has the other fields. The
text of a field that stands in neither is replaced by a numbered word.
"""

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from nodetopo.model.dra import DRIVER, NVIDIA_DRIVER, STANDARD, ClaimedDevice, PublishedDevice
from nodetopo.model.kubelet_keys import KEYS, closest
from nodetopo.model.pod import Pod
from nodetopo.probes.host.processes import PEERS
from nodetopo.tools.capture.substitutes import LEFT_OUT, NAMED_BY_ADDRESS, Substitutes
from nodetopo.tools.capture.words import DEVICE, PCI, Words, is_composed
from nodetopo.topology.published import uuids_of

NODE = "node"
"""The name of every scrubbed node."""

PARAMETERS = frozenset(
    """
    amd_iommu amd_pstate cgroup_enable cgroup_no_v1 clocksource default_hugepagesz hugepages
    hugepagesz idle init_on_alloc intel_idle.max_cstate intel_iommu intel_pstate iommu
    iommu.passthrough iommu.strict irqaffinity isolcpus kthread_cpus maxcpus mitigations
    nmi_watchdog nohz nohz_full noht nosmt nosoftlockup nr_cpus numa numa_balancing pci
    pcie_acs_override pcie_aspm pcie_ports processor.max_cstate quiet rcu_nocbs ro rw
    skew_tick split_lock_detect transparent_hugepage tsc vfio-pci.ids
    systemd.unified_cgroup_hierarchy
    """.split(),  # noqa: SIM905 - as prose
)
"""Kernel parameters that are kept with their value (admin-guide/kernel-parameters.txt)."""

MODULES = ("nvidia", "nvidia_drm", "nvidia-drm", "mlx5_core", "mlx4_core", "ib_core", "vfio_pci")
"""Kernel modules whose parameters (``module.name=value``) are kept too."""

PUBLIC_WRITERS = (
    *("kubectl", "kubelet", "nfd", "nvidia", "gpu-", "nodetopo", "helm", "node-feature", "kube-"),
)
"""Prefixes of field managers that are public programs."""

PUBLIC_PROGRAMS = PEERS | frozenset(
    """
    containerd crio dcgm dcgm-exporter dcgmi dockerd kubelet nodetopo nv-fabricmanager
    nv-hostengine nvidia-container-cli nvidia-cuda-mps-control nvidia-cuda-mps-server
    nvidia-imex nvidia-mig-manager nvidia-mig-parted nvidia-persistenced nvidia-powerd nvidia-smi
    nvidia-topologyd nvidia-vgpu-mgr
    """.split()  # noqa: SIM905 - as prose
)
"""Programs that can hold the driver and are no workload."""

PUBLIC_IMAGES = ("nvcr.io/nvidia/", "registry.k8s.io/", "k8s.gcr.io/")
"""Registries of public images, whose names are kept."""

PUBLIC_RUNTIMES = ("nvidia", "runc", "crun", "kata", "gvisor")
"""Prefixes of public runtimes."""

PUBLIC_LABELS = ("nvidia.com/", "kubernetes.io/arch", "kubernetes.io/os", "node.kubernetes.io/")
"""Prefixes of node labels that describe hardware."""

PUBLIC_SOCKETS = ("nvidia", "nodetopo", "rdma", "sriov", "amd", "intel", "gpu", "hami", "volcano")
"""Prefixes of the sockets of known device plugins."""

PUBLIC_DRIVERS = (DRIVER, NVIDIA_DRIVER)
"""DRA drivers whose devices, attributes, counters and taints describe hardware."""

PLACES = ("uuid", "parentUUID", "pciBusID", "pciAddress", "numaNode", "type")
"""Attributes of other drivers that identify and locate a device; other attributes can have a
network's names and addresses (dranet's ``ifName``, ``ipv4``, and a cloud's project).
"""

_OWN_REASONS = ("TopologyAffinityError", "SMTAlignmentError", "UnexpectedAdmissionError", "OutOf")
"""Prefixes of the reasons whose messages are the kubelet's own."""

_WORDS = frozenset(
    """
    INFO WARN TRACE VERSION ABORT ALL INIT COLL P2P SHM NET GRAPH TUNING ENV ALLOC CALL PROXY
    NVLS BOOTSTRAP REG LOC NVL PIX PXB PXN PHB NODE SYS P2C RING TREE COLLNET COLLNETDIRECT
    COLLNETCHAIN NVLSTREE PAT LL LL128 SIMPLE IB ROCE SOCKET TRUE FALSE AUTO NONE VOID COMPUTE
    UTILITY GRAPHICS VIDEO DISPLAY COMPAT32 NGX ON OFF LO RC UD DC TCP SM SELF RDMA CUDA
    CUDA_COPY CUDA_IPC GDR_COPY RC_X UD_X DC_X FIFO CAP ENABLED DISABLED DEFAULT
    PCI_BUS_ID FASTEST_FIRST
    """.split()  # noqa: SIM905 - as prose
)
"""Words that NCCL, UCX and NVIDIA's container toolkit give a meaning, in capital letters."""

_PART = re.compile(
    rf"[0-9]{{1,12}}[kmgi]?b?|0x[0-9a-f]{{1,16}}|(?:GPU|MIG)-[0-9a-f-]{{36}}|{DEVICE.pattern}|docker",
    re.IGNORECASE,
)
"""A number, an amount, a GPU, or a network device."""

_BETWEEN = re.compile(r"[,:;=^~+|\s-]+")
_PLAIN_ID = re.compile(
    r"(?:MIG-)?(?:GPU-)?[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?:[:/-]{1,2}[0-9]{1,4})*"
    rf"|{PCI}(?:::?[0-9]+)?|gpu-[0-9a-f]{{1,4}}(?:-[0-9]{{1,2}})*|(?:nvidia|cpu|rdma|vf|uverbs)-[0-9]{{1,4}}|[0-9]{{1,4}}|{DEVICE.pattern}"
)
"""Device ids that show their kind and place only; UUIDs in them are substitutes."""

_PLAIN_SWAP = re.compile(r"/dev/(?:sd|vd|xvd|nvme|zram|dm-|md)[0-9a-z]{1,16}|/swap(?:file|\.img)")
_PATH = re.compile(r"/[^\s,+]*")
_SYSTEM_PATH = re.compile(r"/(?:etc|usr|lib|run|var|dev|proc|home/kubernetes)(?:/|$)")
_SUFFIX = re.compile(r"\.(?:conf|yaml|yml|json|toml)$")


class Scrub:
    """The substitutes of one run, and the rules' common steps."""

    def __init__(self, substitutes: Substitutes) -> None:
        self.substitutes = substitutes
        self.words = Words(substitutes)

    def plain(self, text: str) -> str:
        """Return *text* with all learned identifiers, UUIDs and MAC addresses replaced."""
        self.substitutes.learn_text(text)
        return self.substitutes.apply(text)

    def place(self, text: str) -> str:
        """Return *text* with the parts of paths replaced that are in no directory of a system.

        Below ``/opt`` the names of public programs stay.

        The suffix of a file stays, which decides whether a kubelet reads it.
        """
        return self.plain(_PATH.sub(self._moved, text))

    def told_place(self, text: str) -> str:
        """Return *text*, words with paths among them, with public words and paths as in a file."""
        parts, at = [], 0
        for match in _PATH.finditer(text):
            parts += [self.words.kept(text[at : match.start()]), self.place(match[0])]
            at = match.end()
        return "".join((*parts, self.words.kept(text[at:])))

    def _moved(self, match: re.Match[str]) -> str:
        if _SYSTEM_PATH.match(match[0]):
            return match[0]
        parts = match[0].split("/")
        if parts[1] == "opt":  # public programs and others
            return "/".join(it if is_composed(it) else self.component(it) for it in parts)
        return "/".join(map(self.component, parts))

    def component(self, name: str) -> str:
        """Return the substitute of one part of a path that an owner chose."""
        if name in ("", ".", ".."):
            return name
        suffix = _SUFFIX.search(name)
        counted = self.substitutes.counted("path", name)
        return counted + (suffix[0] if suffix else "")


Rule = Callable[[Scrub, Any, str], str | None]
"""A function of the record that has the text, or of the key in a map, and of the text; ``None``
leaves the text out."""


def kept(scrub: Scrub, _around: Any, text: str) -> str:
    """Return *text* but for the names that other fields have."""
    return scrub.plain(text)


def _prose(scrub: Scrub, _around: Any, text: str) -> str:
    return scrub.words.kept(text)


def _place(scrub: Scrub, _around: Any, text: str) -> str:
    return scrub.told_place(text)


def _named(kind: str) -> Rule:
    return lambda scrub, _around, text: scrub.substitutes.counted(kind, text)


replaced = _named("text")
"""The rule of a text that nobody declared."""


def _identity(kind: str) -> Rule:
    return lambda scrub, _around, text: scrub.substitutes.of(kind, text)


def _public(kind: str, *prefixes: str) -> Rule:
    """Return the rule that keeps what begins with one of *prefixes* and has only public words."""

    def rule(scrub: Scrub, _around: Any, text: str) -> str:
        if text.startswith(prefixes) and is_composed(text):
            return text
        return scrub.substitutes.counted(kind, text)

    return rule


def _program(scrub: Scrub, _around: Any, text: str) -> str:
    return text if text in PUBLIC_PROGRAMS else scrub.substitutes.counted("program", text)


def _image(scrub: Scrub, _around: Any, text: str) -> str:
    is_public = text.startswith(PUBLIC_IMAGES)
    return scrub.plain(text) if is_public else scrub.substitutes.counted("image", text)


def device_name(scrub: Scrub, _around: Any, text: str) -> str:
    """Return the name of an HCA or interface if it tells only its place, else a substitute."""
    if NAMED_BY_ADDRESS.fullmatch(text):
        return scrub.substitutes.of("device name", text)
    if DEVICE.fullmatch(text):
        return text
    name = scrub.substitutes.counted("network", text)
    scrub.substitutes.learn("device name", text, name)
    return name


def _device_id(scrub: Scrub, _around: Any, text: str) -> str:
    plain = scrub.plain(text)
    return plain if _PLAIN_ID.fullmatch(plain) else scrub.substitutes.of("device id", text)


def _container_prefix(scrub: Scrub, _around: Any, text: str) -> str:
    known = scrub.substitutes.kinds.get("container id", {})
    whole = max((name for name in known if name.startswith(text)), key=len, default=None)
    if whole is None:
        return scrub.substitutes.of("container id", text)
    return known[whole][: len(text)]


def _odd_key(scrub: Scrub, _around: Any, text: str) -> str:
    return text if closest(text, KEYS) else scrub.substitutes.counted("key", text)


def _swap(scrub: Scrub, _around: Any, text: str) -> str:
    return text if _PLAIN_SWAP.fullmatch(text) else f"/{scrub.substitutes.counted('swap', text)}"


def _socket(scrub: Scrub, _around: Any, text: str) -> str:
    if text.startswith(PUBLIC_SOCKETS) and is_composed(text):
        return text
    return f"{scrub.substitutes.counted('socket', text)}.sock"


def _pod_name(scrub: Scrub, pod: Pod, text: str) -> str:
    return scrub.substitutes.counted("pod", f"{pod.namespace}/{text}", text)


def _claim(scrub: Scrub, device: ClaimedDevice, text: str) -> str:
    return scrub.substitutes.counted("claim", f"{device.namespace}/{text}", text)


def _message(scrub: Scrub, pod: Pod, text: str) -> str:
    is_of_kubelet = (pod.status_reason or "").startswith(_OWN_REASONS)
    return scrub.words.kept(text) if is_of_kubelet else LEFT_OUT


def _selector_key(scrub: Scrub, _around: Any, text: str) -> str:
    return text if text.startswith(PUBLIC_LABELS) else scrub.substitutes.counted("label", text)


def _selector_value(scrub: Scrub, key: str, text: str) -> str:
    return text if key.startswith(PUBLIC_LABELS) else scrub.substitutes.counted("value", text)


def _dra_name(scrub: Scrub, device: PublishedDevice | ClaimedDevice, text: str) -> str:
    if device.driver in PUBLIC_DRIVERS or _PLAIN_ID.fullmatch(text):
        return scrub.plain(text)
    return scrub.substitutes.counted("device", text)


def _cdi_name(scrub: Scrub, device: ClaimedDevice, text: str) -> str | None:
    """Return of the CDI names of a claim only the UUIDs of GPUs."""
    return next(
        (f"gpu={scrub.plain(uuid)}" for uuid in uuids_of(device) if uuid in text),
        None,
    )


def _attribute(_scrub: Scrub, device: PublishedDevice, text: str) -> str | None:
    is_place = text.startswith(f"{STANDARD}/") or text in {f"{device.driver}/{it}" for it in PLACES}
    return text if is_place or device.driver in PUBLIC_DRIVERS else None


def _of_public_driver(scrub: Scrub, device: PublishedDevice, text: str) -> str | None:
    return scrub.plain(text) if device.driver in PUBLIC_DRIVERS else None


def _taint(scrub: Scrub, device: PublishedDevice, text: str) -> str:
    if device.driver in PUBLIC_DRIVERS:
        return scrub.plain(text)
    parts = re.fullmatch(r"([^=]*)=.*:(\w+)", text, re.DOTALL)
    return f"{parts[1]}={LEFT_OUT}:{parts[2]}" if parts else LEFT_OUT


def command_line(text: str) -> str:
    """Return a kernel command line with only the parameters known to hold no secret."""
    prefixes = tuple(f"{module}." for module in MODULES)
    names = ((word, word.partition("=")[0]) for word in text.split())
    return " ".join(word for word, it in names if it in PARAMETERS or it.startswith(prefixes))


def variable(value: str) -> str:
    """Return the *value* of a variable if all of it has a public meaning, else three dots."""
    parts = (part for part in _BETWEEN.split(value) if part)
    whole = _PART.fullmatch(value) is not None
    is_public = whole or all(part.upper() in _WORDS or _PART.fullmatch(part) for part in parts)
    return value if is_public else LEFT_OUT


KEPT: Mapping[str, str] = MappingProxyType(
    {
        "models of hardware, as their makers name them": """
            Snapshot.product_name Gpu.product Gpu.architecture Gpu.vbios MigInstance.profile
            CpuTopology.vendor CpuTopology.model Hca.hca_type Hca.board_id Hca.firmware
            PciFunction.pci_class PciFunction.vendor PciFunction.device PciFunction.subsystem_vendor
            PciFunction.subsystem_device PciBridge.vendor PciBridge.device
            PciBridge.subsystem_vendor PciBridge.subsystem_device PciPath.root Kernel.machine
        """,
        "versions": """
            Snapshot.driver_version Snapshot.nvml_version Kernel.release VgpuHost.driver_version
            VgpuHost.driver_branch ContainerToolkit.version CdiSpec.driver_version
            KubeletSettings.version NodeStatus.kubelet_version NodeStatus.container_runtime
        """,
        "words of the kernel and of its drivers": """
            Kernel.modules Kernel.sysctls Kernel.transparent_hugepages Kernel.rdma_netns
            NvidiaDriver.parameters PciFunction.driver UnlistedGpu.driver CpuTopology.governors
            NetDevice.state HcaPort.state HcaPort.physical_state HcaPort.counters Gid.type
            IdleState.name HostSettings.frequency_drivers HostSettings.energy_preferences
        """,
        "programs by names that this program lists": """
            RuntimeProcess.name RuntimeConfig.name HostSettings.peer_programs
            KubeletSettings.embedded_in ContainerToolkit.mode ProbeIssue.probe
        """,
        "settings of the kubelet: policies, options, amounts": """
            KubeletSettings.cpu_manager_policy KubeletSettings.cpu_manager_options
            KubeletSettings.memory_manager_policy KubeletSettings.topology_manager_policy
            KubeletSettings.topology_manager_scope KubeletSettings.topology_manager_options
            KubeletSettings.reserved_system_cpus KubeletSettings.system_reserved
            KubeletSettings.kube_reserved KubeletSettings.eviction_hard ReservedMemory.limits
            KubeletSettings.feature_gates KubeletSettings.enforce_node_allocatable
            KubeletSettings.system_reserved_cgroup KubeletSettings.kube_reserved_cgroup
            KubeletSettings.cgroup_driver KubeletSettings.swap_behavior OddKey.within
            CpuState.policy MemoryState.policy
        """,
        "resources, by the names that pods request": """
            MemoryBlock.kind HeldMemory.kind AssignedMemory.kind HeldDevices.resource
            AssignedDevices.resource PlacedDevice.resource KubeletMetrics.rejections
            KubeletMetrics.slow_allocations NodeStatus.capacity NodeStatus.allocatable
            Container.requests Container.limits Pod.requests Pod.limits CdiSpec.kind
            ContainerToolkit.cdi_kind PublishedDevice.driver ClaimedDevice.driver
        """,
        "labels that this program lists": "NodeStatus.labels",
        "words of Kubernetes": """
            Snapshot.agent_rights Pod.phase Pod.qos_class Pod.owner_kind Pod.status_reason
            Container.capabilities
        """,
    }
)
"""Reason → fields whose text is kept. Their values come from makers, kernels and Kubernetes, and
tell how a node is built, not whose it is."""

_RULES: Mapping[str, Any] = {
    "Snapshot.node": lambda _scrub, _around, _text: NODE,
    "Provenance.description": _prose,
    "Provenance.sources": _prose,
    "Kernel.command_line": lambda _scrub, _around, text: command_line(text),
    "Gpu.uuid": _identity("GPU UUID"),
    "Gpu.serial": _identity("serial number"),
    "MigInstance.uuid": _identity("MIG UUID"),
    "MigInstance.parent_uuid": _identity("GPU UUID"),
    "Fabric.cluster_uuid": _identity("UUID"),
    "ExpectedGpus.source": _prose,
    "ExpectedGpus.doubt": _prose,
    "Hca.node_guid": _identity("GUID"),
    "Hca.sys_image_guid": _identity("GUID"),
    "Gid.gid": _identity("GID"),
    **dict.fromkeys(
        (
            *("ReportedPair.a", "ReportedPair.b", "Hca.name", "NetDevice.name", "NetDevice.master"),
            *("Gid.netdev", "Hca.char_devices", "DataDirect.hcas", "Interrupts.hca"),
            *("HostSettings.infiniband_devices", "HostSettings.interfaces"),
        ),
        device_name,
    ),
    "SwapArea.name": _swap,
    **dict.fromkeys(
        (
            *("RuntimeConfig.path", "RuntimeConfig.cdi_dirs", "CdiSpec.path"),
            *("ContainerToolkit.path", "ContainerToolkit.cdi_dirs", "KubeletSettings.source"),
            *("KubeletSettings.changed_since_start", "KubeletSettings.unloaded_drop_ins"),
            *("KubeletSettings.root_directory", "OddKey.file"),
        ),
        _place,
    ),
    "KubeletSettings.origins": (kept, _place),
    "OddKey.key": _odd_key,
    "RuntimeConfig.default_runtime": _public("runtime", *PUBLIC_RUNTIMES),
    "RuntimeConfig.nvidia_runtimes": _public("runtime", *PUBLIC_RUNTIMES),
    **dict.fromkeys(
        (
            *("CdiSpec.devices", "CdiFault.devices", "AssignedDevices.ids", "PlacedDevice.id"),
            "Container.unhealthy_devices",
        ),
        _device_id,
    ),
    "CdiSpec.error": _prose,
    "CdiSpec.unseen": _prose,
    "CdiFault.reason": _prose,
    "DriverHolder.name": _program,
    "DriverHolder.container": _container_prefix,
    "CpuState.entries": (_identity("UUID"), (_named("container"), kept)),
    "MemoryState.entries": (_identity("UUID"), (_named("container"), kept)),
    "HeldDevices.pod_uid": _identity("UUID"),
    "HeldDevices.container": _named("container"),
    "HeldDevices.ids": (kept, _device_id),
    "DeviceState.registered": (kept, _device_id),
    "KubeletState.plugin_sockets": _socket,
    "NodeStatus.label_writers": (kept, _public("writer", *PUBLIC_WRITERS)),
    "Pod.namespace": _named("namespace"),
    "Pod.name": _pod_name,
    "Pod.uid": _identity("UUID"),
    "Pod.status_message": _message,
    "Pod.hostname": _named("hostname"),
    "Pod.runtime_class": _public("runtime", *PUBLIC_RUNTIMES),
    "Pod.node_selector": (_selector_key, _selector_value),
    "Container.name": _named("container"),
    "Container.id": _identity("container id"),
    "Container.image": _image,
    "Container.claims": _named("claim"),
    "Container.environment": (kept, lambda scrub, _key, text: variable(scrub.plain(text))),
    "ClaimedDevice.pool": _named("pool"),
    "ClaimedDevice.name": _dra_name,
    "ClaimedDevice.namespace": _named("namespace"),
    "ClaimedDevice.claim": _claim,
    "ClaimedDevice.cdi_devices": _cdi_name,
    "PublishedDevice.pool": _named("pool"),
    "PublishedDevice.name": _dra_name,
    "PublishedDevice.attributes": (_attribute, kept),
    "PublishedDevice.counters": _of_public_driver,
    "PublishedDevice.taints": _taint,
    "PublishedDevice.capacity": (_of_public_driver, kept),
    "ProbeIssue.subject": _prose,
    "ProbeIssue.reason": _prose,
}

RULES: Mapping[str, Any] = MappingProxyType(
    {**dict.fromkeys(" ".join(KEPT.values()).split(), kept), **_RULES}
)
"""``Record.field`` → the rule of its text; for a map the pair of its keys' and its values'."""
