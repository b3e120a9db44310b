"""Invented names in place of those that tell one node, owner or workload from others.

Each original has one substitute of the same form, the same wherever it stands, so that what
was equal stays equal.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TypeVar

from agent.model.codec import decode, encode
from agent.model.host import HostSettings
from agent.model.kubelet_state import CpuState, DeviceState, KubeletState, MemoryState
from agent.model.node import NodeStatus
from agent.model.pod import Container, Pod
from agent.model.snapshot import Kernel, ProbeIssue, Snapshot
from agent.probes.capture.substitutes import LEAST, Substitutes

# An issue without the addresses and names that a network's answers hold.

_NETWORK_PROBES = ("pods", "podresources", "node", "rights", "kubelet")


_LEAST = 4
"""Shorter names are found inside of words."""


_IPV4 = re.compile(r"(?<![0-9.])[0-9]{1,3}(?:\.[0-9]{1,3}){3}(?![0-9.])")


_IPV6 = re.compile(r"\[[0-9a-f:]+(?:%\w+)?\]", re.IGNORECASE)


_HOST = re.compile(r"(?<=https://)[^\s/:'\"]+|(?<=host=')[^']*|(?<=resolve ')[^']*")
"""Where URLs and urllib3's errors name a host."""


def scrub_issue(issue: ProbeIssue, pods: Iterable[Pod]) -> ProbeIssue:
    """Return *issue* without addresses, host names, and names of *pods*."""
    if issue.probe not in _NETWORK_PROBES:
        return issue
    names = sorted({name for pod in pods for name in _names(pod)}, key=len, reverse=True)
    return replace(
        issue, subject=_without(issue.subject, names), reason=_without(issue.reason, names)
    )


def without_names(text: str, pod: Pod) -> str:
    """Return a message about *pod* without its names, and without addresses."""
    return _without(text, sorted(_names(pod), key=len, reverse=True))


def _names(pod: Pod) -> list[str]:
    containers = [one.name for one in pod.containers if len(one.name) >= _LEAST]
    names = [pod.name, pod.namespace, pod.uid or "", pod.hostname or ""]
    return [name for name in names if name] + containers


def _without(text: str, names: Iterable[str]) -> str:
    text = _IPV4.sub("192.0.2.1", _IPV6.sub("[2001:db8::1]", _HOST.sub("host.example", text)))
    for name in names:
        text = text.replace(name, "…")
    return text


# The host's settings and its Node object without names that people chose.

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
"""How the names of field managers begin that are programs everybody runs."""


_PLAIN_SWAP = re.compile(r"/dev/(?:sd|vd|xvd|nvme|zram|dm-|md)[0-9a-z]{1,16}|/swap(?:file|\.img)")


def scrub_host(host: HostSettings | None, substitutes: Substitutes) -> HostSettings | None:
    """Return *host* with swap areas named by number where their names are not the kernel's."""
    if host is None or host.swaps is None:
        return host
    swaps = (
        area
        if _PLAIN_SWAP.fullmatch(area.name)
        else replace(area, name=f"/{substitutes.counted('swap', area.name)}")
        for area in host.swaps
    )
    return replace(host, swaps=tuple(swaps))


def scrub_node_status(status: NodeStatus | None, substitutes: Substitutes) -> NodeStatus | None:
    """Return *status* with writers of labels named by number where they are no known program."""
    if status is None or status.label_writers is None:
        return status
    writers = {
        label: tuple(sorted(_writer(name, substitutes) for name in names))
        for label, names in status.label_writers.items()
    }
    return replace(status, label_writers=writers)


def _writer(name: str, substitutes: Substitutes) -> str:
    return name if name.startswith(PUBLIC_WRITERS) else substitutes.counted("writer", name)


# Pods without what tells whose they are.

PUBLIC_IMAGES = ("nvcr.io/nvidia/", "registry.k8s.io/", "k8s.gcr.io/")
"""Registries whose images are everybody's, and tell what they are."""


PUBLIC_RUNTIMES = ("nvidia", "runc", "crun", "kata", "gvisor")
"""How the names of runtimes begin that are everybody's."""


PUBLIC_LABELS = ("nvidia.com/", "kubernetes.io/arch", "kubernetes.io/os", "node.kubernetes.io/")
"""How the names of node labels begin that say something of hardware."""


_LEFT_OUT = "…"


_OWN_WORDS = ("TopologyAffinityError", "SMTAlignmentError", "UnexpectedAdmissionError", "OutOf")
"""How the reasons begin whose messages are the kubelet's own."""


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
"""A network device or HCA as kernels and udev call it."""


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
"""Ids of devices that tell their kind and place only; UUIDs in them are replaced as text."""


def learn_devices(snapshot: Snapshot, substitutes: Substitutes) -> None:
    """Invent substitutes for ids of devices, pods and containers that other sources name too."""
    for kind, original in _originals(snapshot):
        if len(original) >= LEAST:
            substitutes.of(kind, original)


def _originals(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    for pod in snapshot.pods or ():
        yield "UUID", pod.uid or ""
        for container in pod.containers:
            yield "container id", container.id or ""
    for uid in _uids_of_state(snapshot):
        yield "UUID", uid
    for name in _device_ids(snapshot):
        if not _PLAIN_ID.fullmatch(name):
            yield "device id", name


def _uids_of_state(snapshot: Snapshot) -> Iterator[str]:
    state = snapshot.kubelet_state
    if state is not None:
        yield from (state.cpu.entries if state.cpu else None) or ()
        yield from (state.memory.entries if state.memory else None) or ()
        yield from (held.pod_uid for held in (state.devices.held if state.devices else ()))


def _device_ids(snapshot: Snapshot) -> Iterator[str]:
    for pod in snapshot.pods or ():
        for container in pod.containers:
            yield from container.unhealthy_devices or ()
            for devices in container.devices or ():
                yield from devices.ids
    yield from (device.id for device in (snapshot.offer.devices if snapshot.offer else ()))
    state = snapshot.kubelet_state.devices if snapshot.kubelet_state else None
    if state is not None:
        for ids in (state.registered or {}).values():
            yield from ids
        for held in state.held:
            for names in held.ids.values():
                yield from names


def scrub_pods(pods: Iterable[Pod], substitutes: Substitutes) -> tuple[Pod, ...]:
    """Return *pods* with invented names, and without texts of their owners."""
    return tuple(_pod(pod, substitutes) for pod in pods)


def _pod(pod: Pod, substitutes: Substitutes) -> Pod:
    return replace(
        pod,
        namespace=substitutes.counted("namespace", pod.namespace),
        name=substitutes.counted("pod", f"{pod.namespace}/{pod.name}"),
        containers=tuple(_container(container, substitutes) for container in pod.containers),
        status_message=_message(pod),
        hostname=pod.hostname and substitutes.counted("hostname", pod.hostname),
        runtime_class=_unless(pod.runtime_class, PUBLIC_RUNTIMES, "runtime", substitutes),
        node_selector=_labels(pod.node_selector, substitutes),
    )


def _message(pod: Pod) -> str | None:
    if pod.status_message is None:
        return None
    is_the_kubelet_s = (pod.status_reason or "").startswith(_OWN_WORDS)
    return without_names(pod.status_message, pod) if is_the_kubelet_s else _LEFT_OUT


def _labels(labels: Mapping[str, str] | None, substitutes: Substitutes) -> dict[str, str] | None:
    if labels is None:
        return None
    return {
        name if name.startswith(PUBLIC_LABELS) else substitutes.counted("label", name): (
            value if name.startswith(PUBLIC_LABELS) else substitutes.counted("value", value)
        )
        for name, value in labels.items()
    }


def _container(container: Container, substitutes: Substitutes) -> Container:
    environment = container.environment
    return replace(
        container,
        name=substitutes.counted("container", container.name),
        image=_unless(container.image, PUBLIC_IMAGES, "image", substitutes),
        environment=environment
        and {
            name: None if value is None else variable(value) for name, value in environment.items()
        },
    )


def variable(value: str) -> str:
    """Return the *value* of a variable if all of it has a public meaning, else three dots."""
    parts = (part for part in _BETWEEN.split(value) if part)
    whole = _PART.fullmatch(value) is not None
    is_public = whole or all(part.upper() in _WORDS or _PART.fullmatch(part) for part in parts)
    return value if is_public else _LEFT_OUT


def _unless(
    name: str | None, public: tuple[str, ...], kind: str, substitutes: Substitutes
) -> str | None:
    if name is None or name.startswith(public):
        return name
    return substitutes.counted(kind, name)


# The kubelet's state files without the names of pods; their uids are replaced as text.

PUBLIC_SOCKETS = ("nvidia", "nodetopo", "rdma", "sriov", "amd", "intel", "gpu", "hami", "volcano")
"""How the names of sockets begin that tell which known plugin has them."""


_Held = TypeVar("_Held")


def scrub_state(state: KubeletState | None, substitutes: Substitutes) -> KubeletState | None:
    """Return *state* with the names that pods and their containers have elsewhere too."""
    if state is None:
        return None
    sockets = state.plugin_sockets
    return replace(
        state,
        cpu=_cpu(state.cpu, substitutes),
        memory=_memory(state.memory, substitutes),
        devices=_devices(state.devices, substitutes),
        plugin_sockets=sockets and tuple(sorted(_socket(name, substitutes) for name in sockets)),
    )


def _socket(name: str, substitutes: Substitutes) -> str:
    is_public = name.startswith(PUBLIC_SOCKETS)
    return name if is_public else f"{substitutes.counted('socket', name)}.sock"


def _cpu(state: CpuState | None, substitutes: Substitutes) -> CpuState | None:
    if state is None or state.entries is None:
        return state
    return replace(state, entries=_entries(state.entries, substitutes))


def _memory(state: MemoryState | None, substitutes: Substitutes) -> MemoryState | None:
    if state is None or state.entries is None:
        return state
    return replace(state, entries=_entries(state.entries, substitutes))


def _entries(
    entries: Mapping[str, Mapping[str, _Held]], substitutes: Substitutes
) -> dict[str, dict[str, _Held]]:
    return {
        uid: {substitutes.counted("container", name): held for name, held in containers.items()}
        for uid, containers in entries.items()
    }


def _devices(state: DeviceState | None, substitutes: Substitutes) -> DeviceState | None:
    if state is None:
        return None
    held = tuple(
        replace(one, container=substitutes.counted("container", one.container))
        for one in state.held
    )
    return replace(state, held=held)


__all__ = ["NODE", "Substitutes", "command_line", "learn_hosts", "scrubbed"]


NODE = "node"
"""What every scrubbed node is called."""


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


def scrubbed(
    snapshot: Snapshot, substitutes: Substitutes, hosts: Iterable[str] = ()
) -> tuple[Snapshot, tuple[str, ...]]:
    """Return *snapshot* without what identifies its node, and what was done to it.

    Names of the kubelet's files, of resources and of labels are kept as far as they hold none
    of the names that are replaced.

    Args:
        hosts: other names of the node.
    """
    before = snapshot.kernel.command_line if snapshot.kernel else None
    learn_hosts(substitutes, (snapshot.node or "", *hosts))
    substitutes.learn(snapshot)
    learn_devices(snapshot, substitutes)
    named = _named(snapshot, substitutes)
    text = encode(named)
    substitutes.learn_text(text)
    after = named.kernel.command_line if named.kernel else None
    done = [] if before == after else ["parameters of the kernel's command line left out"]
    return decode(substitutes.apply(text)).snapshot, (*substitutes.summary(), *done)


def _named(snapshot: Snapshot, substitutes: Substitutes) -> Snapshot:
    """Return *snapshot* with those names replaced that are no identifiers by their form."""
    pods = snapshot.pods
    return replace(
        snapshot,
        node=None if snapshot.node is None else NODE,
        kernel=_kernel(snapshot.kernel),
        host=scrub_host(snapshot.host, substitutes),
        kubelet_state=scrub_state(snapshot.kubelet_state, substitutes),
        node_status=scrub_node_status(snapshot.node_status, substitutes),
        pods=None if pods is None else scrub_pods(pods, substitutes),
        issues=tuple(scrub_issue(issue, pods or ()) for issue in snapshot.issues),
    )


def learn_hosts(substitutes: Substitutes, names: Iterable[str]) -> None:
    """Invent nothing for the node's names: all of them become :data:`NODE`."""
    for name in names:
        if len(name) >= LEAST:
            substitutes.kinds.setdefault("host name", {})[name] = NODE


def command_line(text: str) -> str:
    """Return a kernel command line with the parameters that are known to tell no secret."""
    kept = (word for word in text.split() if _is_kept(word.partition("=")[0]))
    return " ".join(kept)


def _is_kept(name: str) -> bool:
    return name in PARAMETERS or name.startswith(tuple(f"{module}." for module in MODULES))


def _kernel(kernel: Kernel | None) -> Kernel | None:
    if kernel is None or kernel.command_line is None:
        return kernel
    return replace(kernel, command_line=command_line(kernel.command_line))
