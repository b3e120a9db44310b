"""A snapshot without the names that identify its node, owner or workload.

Each original has one substitute of the same form, the same wherever it stands, so that what
was equal stays equal.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TypeVar

from nodetopo.model.cdi import CdiSpec
from nodetopo.model.codec import decode, encode
from nodetopo.model.dra import DRIVER, NVIDIA_DRIVER, STANDARD, ClaimedDevice, PublishedDevice
from nodetopo.model.host import HostSettings
from nodetopo.model.kubelet_state import KubeletState
from nodetopo.model.node import NodeStatus
from nodetopo.model.pod import Container, Pod
from nodetopo.model.probe_issue import ProbeIssue
from nodetopo.model.snapshot import Snapshot
from nodetopo.tools.capture.substitutes import LEAST, Substitutes
from nodetopo.topology.published import uuids_of

__all__ = ["NODE", "Substitutes", "command_line", "learn_hosts", "scrubbed", "without"]

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
    "kubectl",
    "kubelet",
    "nfd",
    "nvidia",
    "gpu-",
    "nodetopo",
    "helm",
    "node-feature",
    "kube-",
)
"""Prefixes of field managers that are public programs."""

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

_NETWORK_PROBES = ("pods", "podresources", "slices", "node", "rights", "kubelet")
"""Probes whose issues can contain addresses and names from the network."""

_LEFT_OUT = "…"
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

_DEVICE = r"(?:mlx[45]_|eth|ib|bond|docker|hsn|net|efa|en[ops]|rocep|ib[ps])[0-9][0-9a-fnpsv]{0,15}"
"""A network device or HCA as kernels and udev name it."""

_PART = re.compile(
    rf"[0-9]{{1,12}}[kmgi]?b?|0x[0-9a-f]{{1,16}}|(?:GPU|MIG)-[0-9a-f-]{{36}}|{_DEVICE}|lo|docker",
    re.IGNORECASE,
)
"""A number, an amount, a GPU, or a network device."""

_BETWEEN = re.compile(r"[,:;=^~+|\s-]+")
_PLAIN_ID = re.compile(
    r"(?:GPU|MIG)-[0-9a-f-]{36}(?:[:-].{0,8})?"
    r"|(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7](?:::?[0-9]+)?"
    rf"|(?:nvidia|gpu|cpu|rdma|vf|uverbs)[_-]?[0-9]{{1,4}}|[0-9]{{1,4}}|{_DEVICE}",
    re.IGNORECASE,
)
"""Device ids that show their kind and place only; UUIDs in them are replaced as text."""

_PLAIN_SWAP = re.compile(r"/dev/(?:sd|vd|xvd|nvme|zram|dm-|md)[0-9a-z]{1,16}|/swap(?:file|\.img)")
_HOST_PATH = re.compile(
    r"(?<!\S)/(?!(?:dev|usr|lib|lib64|bin|sbin|proc|run/nvidia[\w-]*|opt/nvidia)/)[^\s,]+"
)
"""A path that no distribution and no program of NVIDIA's has by itself."""

_IPV4 = re.compile(r"(?<![0-9.])[0-9]{1,3}(?:\.[0-9]{1,3}){3}(?![0-9.])")
_IPV6 = re.compile(r"\[[0-9a-f:]+(?:%\w+)?\]", re.IGNORECASE)
_HOST = re.compile(r"(?<=https://)[^\s/:'\"]+|(?<=host=')[^']*|(?<=resolve ')[^']*")
"""Where URLs and urllib3's errors name a host."""

_Entry = TypeVar("_Entry")


def scrubbed(
    snapshot: Snapshot, substitutes: Substitutes, hosts: Iterable[str] = ()
) -> tuple[Snapshot, tuple[str, ...]]:
    """Return *snapshot* without its node's identity, and a report of the changes.

    Names of the kubelet's files, of resources and of labels are kept unless they contain replaced
    names.

    Args:
        hosts: other names of the node.
    """
    learn_hosts(substitutes, (snapshot.node or "", *hosts))
    substitutes.learn(snapshot)
    for kind, original in _identifiers(snapshot):
        if len(original) >= LEAST:
            substitutes.of(kind, original)

    # Names that are no identifiers by their form are replaced where they stand, all others in
    # the text of the whole.
    kernel, pods = snapshot.kernel, snapshot.pods
    if kernel is not None and kernel.command_line is not None:
        kernel = replace(kernel, command_line=command_line(kernel.command_line))
    named = replace(
        snapshot,
        node=None if snapshot.node is None else NODE,
        kernel=kernel,
        host=_host(snapshot.host, substitutes),
        kubelet_state=_state(snapshot.kubelet_state, substitutes),
        node_status=_node_status(snapshot.node_status, substitutes),
        pods=None if pods is None else tuple(_pod(pod, substitutes) for pod in pods),
        published=None
        if snapshot.published is None
        else tuple(_published(device, substitutes) for device in snapshot.published),
        issues=tuple(_issue(issue, pods or ()) for issue in snapshot.issues),
    )
    text = encode(named)
    substitutes.learn_text(text)
    done = [] if kernel == snapshot.kernel else ["parameters of the kernel's command line left out"]
    return decode(substitutes.apply(text)).snapshot, (*substitutes.summary(), *done)


def learn_hosts(substitutes: Substitutes, names: Iterable[str]) -> None:
    """Make :data:`NODE` the substitute of the node's names."""
    for name in names:
        if len(name) >= LEAST:
            substitutes.kinds.setdefault("host name", {})[name] = NODE


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
    return value if is_public else _LEFT_OUT


def _identifiers(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    """Yield kind and text of ids of devices, pods and containers that other sources name too."""
    state = snapshot.kubelet_state
    devices = state.devices if state else None
    held = devices.held if devices else ()
    device_ids: list[str] = []
    for pod in snapshot.pods or ():
        yield "UUID", pod.uid or ""
        for container in pod.containers:
            yield "container id", container.id or ""
            device_ids += container.unhealthy_devices or ()
            device_ids += (name for each in container.devices or () for name in each.ids)
    if state is not None:
        for entries in (state.cpu and state.cpu.entries, state.memory and state.memory.entries):
            yield from (("UUID", uid) for uid in entries or ())
        yield from (("UUID", each.pod_uid) for each in held)

    device_ids += (device.id for device in (snapshot.offer.devices if snapshot.offer else ()))
    for ids in ((devices and devices.registered) or {}).values():
        device_ids += ids
    for each in held:
        device_ids += (name for names in each.ids.values() for name in names)
    yield from (("device id", name) for name in device_ids if not _PLAIN_ID.fullmatch(name))


def _host(host: HostSettings | None, substitutes: Substitutes) -> HostSettings | None:
    """Return *host* with swap areas named by number where their names are not the kernel's.

    Paths in CDI specifications that programs of the node chose are left out.
    """
    if host is None:
        return None
    if host.cdi_specs is not None:
        host = replace(host, cdi_specs=tuple(map(_cdi_spec, host.cdi_specs)))
    if host.swaps is None:
        return host
    swaps = (
        area
        if _PLAIN_SWAP.fullmatch(area.name)
        else replace(area, name=f"/{substitutes.counted('swap', area.name)}")
        for area in host.swaps
    )
    return replace(host, swaps=tuple(swaps))


def _cdi_spec(spec: CdiSpec) -> CdiSpec:
    def plain(text: str) -> str:
        return _HOST_PATH.sub("/…", text)

    return replace(
        spec,
        faults=tuple(replace(fault, reason=plain(fault.reason)) for fault in spec.faults),
        unseen=tuple(map(plain, spec.unseen)),
    )


def _node_status(status: NodeStatus | None, substitutes: Substitutes) -> NodeStatus | None:
    """Return *status* with writers of labels named by number where they are no known program."""
    if status is None or status.label_writers is None:
        return status
    writers = {
        label: tuple(sorted(_unless(PUBLIC_WRITERS, "writer", name, substitutes) for name in names))
        for label, names in status.label_writers.items()
    }
    return replace(status, label_writers=writers)


def _pod(pod: Pod, substitutes: Substitutes) -> Pod:
    """Return *pod* with invented names, and without texts of its owner."""
    message, runtime, labels = pod.status_message, pod.runtime_class, pod.node_selector
    if message is not None:
        is_of_kubelet = (pod.status_reason or "").startswith(_OWN_REASONS)
        message = without(message, _names(pod)) if is_of_kubelet else _LEFT_OUT
    return replace(
        pod,
        namespace=substitutes.counted("namespace", pod.namespace),
        name=substitutes.counted("pod", f"{pod.namespace}/{pod.name}"),
        containers=tuple(_container(container, substitutes) for container in pod.containers),
        status_message=message,
        hostname=pod.hostname and substitutes.counted("hostname", pod.hostname),
        runtime_class=None
        if runtime is None
        else _unless(PUBLIC_RUNTIMES, "runtime", runtime, substitutes),
        node_selector=None
        if labels is None
        else {
            name if name.startswith(PUBLIC_LABELS) else substitutes.counted("label", name): (
                value if name.startswith(PUBLIC_LABELS) else substitutes.counted("value", value)
            )
            for name, value in labels.items()
        },
    )


def _container(container: Container, substitutes: Substitutes) -> Container:
    environment, image = container.environment, container.image
    return replace(
        container,
        name=substitutes.counted("container", container.name),
        claims=None
        if container.claims is None
        else tuple(substitutes.counted("claim", name) for name in container.claims),
        claimed=None
        if container.claimed is None
        else tuple(_claimed(device, substitutes) for device in container.claimed),
        image=None if image is None else _unless(PUBLIC_IMAGES, "image", image, substitutes),
        environment=environment
        and {
            name: None if value is None else variable(value) for name, value in environment.items()
        },
    )


def _claimed(device: ClaimedDevice, substitutes: Substitutes) -> ClaimedDevice:
    """Return *device* with invented names; of its CDI names the UUIDs of GPUs stay, as others."""
    return replace(
        device,
        pool=substitutes.counted("pool", device.pool),
        name=_device_name(device, substitutes),
        namespace=substitutes.counted("namespace", device.namespace),
        claim=substitutes.counted("claim", device.claim),
        cdi_devices=tuple(f"gpu={uuid}" for uuid in uuids_of(device)),
    )


def _published(device: PublishedDevice, substitutes: Substitutes) -> PublishedDevice:
    """Return *device* with an invented pool, and of a driver that is not known only its place."""
    named = replace(device, pool=substitutes.counted("pool", device.pool))
    if device.driver in PUBLIC_DRIVERS:
        return named
    kept = {f"{device.driver}/{name}" for name in PLACES}
    taints = (re.sub("=.*:", f"={_LEFT_OUT}:", taint) for taint in device.taints)
    return replace(
        named,
        name=_device_name(device, substitutes),
        attributes={
            name: value
            for name, value in device.attributes.items()
            if name in kept or name.startswith(f"{STANDARD}/")
        },
        counters=(),
        taints=tuple(taints),
    )


def _device_name(device: PublishedDevice | ClaimedDevice, substitutes: Substitutes) -> str:
    is_public = device.driver in PUBLIC_DRIVERS or _PLAIN_ID.fullmatch(device.name)
    return device.name if is_public else substitutes.counted("device", device.name)


def _state(state: KubeletState | None, substitutes: Substitutes) -> KubeletState | None:
    """Return *state* with the substitutes of container names; pods' uids are replaced as text."""
    if state is None:
        return None
    cpu, memory, devices, sockets = state.cpu, state.memory, state.devices, state.plugin_sockets
    if cpu is not None and cpu.entries is not None:
        cpu = replace(cpu, entries=_entries(cpu.entries, substitutes))
    if memory is not None and memory.entries is not None:
        memory = replace(memory, entries=_entries(memory.entries, substitutes))
    if devices is not None:
        held = (
            replace(each, container=substitutes.counted("container", each.container))
            for each in devices.held
        )
        devices = replace(devices, held=tuple(held))
    if sockets:
        names = (
            name
            if name.startswith(PUBLIC_SOCKETS)
            else f"{substitutes.counted('socket', name)}.sock"
            for name in sockets
        )
        sockets = tuple(sorted(names))
    return replace(state, cpu=cpu, memory=memory, devices=devices, plugin_sockets=sockets)


def _entries(
    entries: Mapping[str, Mapping[str, _Entry]], substitutes: Substitutes
) -> dict[str, dict[str, _Entry]]:
    return {
        uid: {substitutes.counted("container", name): entry for name, entry in containers.items()}
        for uid, containers in entries.items()
    }


def _unless(public: tuple[str, ...], kind: str, name: str, substitutes: Substitutes) -> str:
    """Return *name* if it begins with one of *public*, else its numbered substitute."""
    return name if name.startswith(public) else substitutes.counted(kind, name)


def _issue(issue: ProbeIssue, pods: Iterable[Pod]) -> ProbeIssue:
    """Return *issue* without addresses, host names, and names of *pods*."""
    if issue.probe not in _NETWORK_PROBES:
        return issue
    names = {name for pod in pods for name in _names(pod)}
    subject, reason = without(issue.subject, names), without(issue.reason, names)
    return replace(issue, subject=subject, reason=reason)


def _names(pod: Pod) -> list[str]:
    """Return the names of *pod* and its containers; shorter ones would be found inside words."""
    containers = [each.name for each in pod.containers if len(each.name) >= LEAST]
    names = [pod.name, pod.namespace, pod.uid or "", pod.hostname or ""]
    return [name for name in names if name] + containers


def without(text: str, names: Iterable[str]) -> str:
    """Return *text* without IP addresses, hosts of URLs, and *names*."""
    text = _IPV4.sub("192.0.2.1", _IPV6.sub("[2001:db8::1]", _HOST.sub("host.example", text)))
    for name in sorted(names, key=len, reverse=True):
        text = text.replace(name, "…")
    return text
