"""The alignment of a running container: one row of the audit's table, and its CPUs and memory."""

from enum import StrEnum
from typing import Any

from msgspec import Struct

from nodetopo.model.numa import CpuSet
from nodetopo.model.pod import Container, Pod, pool
from nodetopo.model.snapshot import Snapshot

# CPUs and memory of a container. The cgroup decides where it is known; otherwise what the kubelet
# assigned, or what it leaves to all containers without CPUs of their own.

NONE = "none"
"""The CPU Manager's policy that gives no exclusive CPUs."""


MEMORY = "memory"
"""The kind of memory that is not huge pages."""


class Cpus(Struct, frozen=True, kw_only=True):
    """The CPUs of a container; ``None`` if unknown.

    Attributes:
        are_own: whether its CPUs are exclusive.
        count: of CPUs exclusive to the container or its pod.
    """

    cpus: CpuSet | None
    are_own: bool | None
    count: int
    nodes: tuple[int, ...] | None


class Memory(Struct, frozen=True, kw_only=True):
    """The memory of a container; ``None`` if unknown.

    Attributes:
        is_bound: whether it is restricted to some NUMA nodes.
        size: bytes reserved by the Memory Manager for it or its pod; 0 for none.
    """

    is_bound: bool | None
    nodes: tuple[int, ...] | None
    size: int


def cpus_of(pod: Pod, container: Container, snapshot: Snapshot) -> Cpus:
    """Return where *container* of *pod* runs."""
    own = container.cpus or pool(pod)
    count = len(own or ())
    are_own = None if container.cpus is None else len(container.cpus) > 0
    cpus = container.cpuset
    if cpus is None and container.cpus is not None:
        cpus = own or shared_cpus(snapshot)
    nodes = cpu_nodes(snapshot)
    if nodes is not None and len(nodes) > 1:
        known = snapshot.numa_nodes or ()
        nodes = None if cpus is None else tuple(sorted(n.id for n in known if len(n.cpus & cpus)))
    return Cpus(cpus=cpus, are_own=are_own, count=count, nodes=nodes)


def shared_cpus(snapshot: Snapshot) -> CpuSet | None:
    """Return the CPUs of containers without exclusive CPUs; ``None`` if unknown."""
    if cpu_policy(snapshot) == NONE:
        return all_cpus(snapshot)
    state = None if snapshot.kubelet_state is None else snapshot.kubelet_state.cpu
    return None if state is None or not state.default else state.default


def cpu_policy(snapshot: Snapshot) -> str | None:
    """Return the CPU Manager's policy that is in force."""
    state = snapshot.kubelet_state
    if state is not None and state.cpu is not None:
        return state.cpu.policy
    return None if snapshot.kubelet is None else snapshot.kubelet.cpu_manager_policy


def memory_policy(snapshot: Snapshot) -> str | None:
    """Return the Memory Manager's policy that is in force."""
    state = snapshot.kubelet_state
    if state is not None and state.memory is not None:
        return state.memory.policy
    return None if snapshot.kubelet is None else snapshot.kubelet.memory_manager_policy


def all_cpus(snapshot: Snapshot) -> CpuSet | None:
    """Return the CPUs of all NUMA nodes; ``None`` where those were not read."""
    if snapshot.numa_nodes is None:
        return None
    return CpuSet.of(cpu for node in snapshot.numa_nodes for cpu in node.cpus)


def cpu_nodes(snapshot: Snapshot) -> tuple[int, ...] | None:
    """Return the NUMA nodes that have CPUs; ``None`` where they were not read.

    The memory of a Grace GPU is a node without, and so is memory behind CXL: neither is a place
    that CPUs and devices can be aligned with.
    """
    nodes = snapshot.numa_nodes
    return None if nodes is None else tuple(sorted(node.id for node in nodes if len(node.cpus)))


def memory_of(pod: Pod, container: Container, snapshot: Snapshot) -> Memory:
    """Return where memory of *container* of *pod* can be."""
    held = [piece for piece in container.memory or pod.memory or () if piece.kind == MEMORY]
    pinned = {node for piece in held for node in piece.numa_nodes}
    size = sum(piece.size_bytes for piece in held)
    everywhere = cpu_nodes(snapshot)
    allowed = container.memory_nodes
    if everywhere is None or (allowed is None and container.memory is None and len(everywhere) > 1):
        return Memory(is_bound=None, nodes=None, size=size)
    if allowed is None and not pinned:
        return Memory(is_bound=False, nodes=everywhere, size=size)
    nodes = tuple(node for node in everywhere if node in (pinned if allowed is None else allowed))
    is_bound = nodes != everywhere or pinned.issuperset(everywhere)
    return Memory(is_bound=is_bound, nodes=nodes, size=size)


class Alignment(StrEnum):
    """Whether everything is on the same NUMA nodes; UNKNOWN if no known part is apart."""

    ALIGNED = "aligned"
    MISALIGNED = "misaligned"
    UNKNOWN = "unknown"


class Part(StrEnum):
    """A part that can be misaligned: GPUs with each other, everything else with the GPUs."""

    GPUS = "gpus"
    CPUS = "cpus"
    MEMORY = "memory"
    HCAS = "hcas"


class NvlinkSpan(StrEnum):
    """How many pairs of the GPUs can use NVLink between them."""

    ALL = "all"
    SOME = "some"
    NONE = "none"


class Cause(Struct, frozen=True, kw_only=True):
    """Why something is apart.

    Attributes:
        code: of the rule that explains it, such as ``QOS-001``; where none does, a word.
        text: the same as a sentence without its full stop.
    """

    code: str
    text: str


class Apart(Struct, frozen=True, kw_only=True):
    """A misaligned part.

    Attributes:
        observed, expected: as in a finding.
        causes: begin with the first; never empty.
    """

    part: Part
    observed: str
    expected: str
    causes: tuple[Cause, ...]


class MissingInput(Struct, frozen=True, kw_only=True):
    """An unknown input, in words; *part* is ``None`` if nothing is known."""

    part: Part | None
    what: str


class PodAlignment(Struct, frozen=True, kw_only=True):
    """A running container with GPUs or HCAs.

    NUMA nodes are ascending and only include nodes with CPUs; ``None`` if unknown.

    Attributes:
        uid: of the pod.
        gpus: ``GPU<index>`` of each GPU that it holds all or a part of, by index; the device's id
            if the snapshot lacks the GPU.
        cpus: that it can run on.
        has_own_cpus: whether the CPU Manager gave it exclusive CPUs.
        is_memory_bound: whether its memory is restricted to some NUMA nodes.
        hcas: names, by name; the device's id if the snapshot lacks the HCA.
        hca_nodes: empty without HCAs.
        nvlink: ``None`` for fewer than two whole GPUs, or if links are unknown.
        apart: misaligned parts, by :class:`Part`, regardless of :attr:`nvlink`.
    """

    namespace: str
    pod: str
    container: str
    uid: str | None = None
    gpus: tuple[str, ...] = ()
    gpu_nodes: tuple[int, ...] | None = None
    cpus: CpuSet | None = None
    has_own_cpus: bool | None = None
    cpu_nodes: tuple[int, ...] | None = None
    is_memory_bound: bool | None = None
    memory_nodes: tuple[int, ...] | None = None
    hcas: tuple[str, ...] = ()
    hca_nodes: tuple[int, ...] | None = None
    nvlink: NvlinkSpan | None = None
    apart: tuple[Apart, ...] = ()
    missing: tuple[MissingInput, ...] = ()

    @property
    def verdict(self) -> Alignment:
        """Proven misalignment outranks missing inputs."""
        if self.apart:
            return Alignment.MISALIGNED
        return Alignment.UNKNOWN if self.missing else Alignment.ALIGNED

    @property
    def causes(self) -> tuple[Cause, ...]:
        """All causes without duplicates, in order of priority."""
        return tuple(dict.fromkeys(cause for part in self.apart for cause in part.causes))


def to_plain(row: PodAlignment) -> dict[str, Any]:
    """Return *row* as JSON types, with ``null`` for unknown values."""

    def nodes(known: tuple[int, ...] | None) -> list[int] | None:
        return None if known is None else list(known)

    return {
        "namespace": row.namespace,
        "pod": row.pod,
        "container": row.container,
        "uid": row.uid,
        "gpus": list(row.gpus),
        "gpu_nodes": nodes(row.gpu_nodes),
        "cpus": None if row.cpus is None else str(row.cpus),
        "exclusive_cpus": row.has_own_cpus,
        "cpu_nodes": nodes(row.cpu_nodes),
        "memory_bound": row.is_memory_bound,
        "memory_nodes": nodes(row.memory_nodes),
        "hcas": list(row.hcas),
        "hca_nodes": nodes(row.hca_nodes),
        "nvlink": None if row.nvlink is None else row.nvlink.value,
        "verdict": row.verdict.value,
        "apart": [
            {
                "part": part.part.value,
                "observed": part.observed,
                "expected": part.expected,
                "causes": [cause.code for cause in part.causes],
            }
            for part in row.apart
        ],
        "causes": [{"code": cause.code, "text": cause.text} for cause in row.causes],
        "missing": [unknown.what for unknown in row.missing],
    }
