"""What a running container really got, by NUMA node: one row of the audit's table."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from agent.model.numa import CpuSet


class Alignment(StrEnum):
    """Whether all of it is together; UNKNOWN where something is not known and nothing is apart."""

    ALIGNED = "aligned"
    MISALIGNED = "misaligned"
    UNKNOWN = "unknown"


class Part(StrEnum):
    """What can be apart: the GPUs from each other, everything else from the GPUs."""

    GPUS = "gpus"
    CPUS = "cpus"
    MEMORY = "memory"
    HCAS = "hcas"


class NvlinkSpan(StrEnum):
    """How many pairs of the GPUs can use NVLink between them."""

    ALL = "all"
    SOME = "some"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """Why something is apart.

    Attributes:
        code: of the rule that explains it, such as ``QOS-001``; where none does, a word.
        text: the same as a sentence without its full stop.
    """

    code: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Apart:
    """One thing that is apart.

    Attributes:
        observed, expected: as a finding has them.
        causes: the first is the one to begin with; never empty.
    """

    part: Part
    observed: str
    expected: str
    causes: tuple[Cause, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """Something that had to be known, for people; *part* is ``None`` where nothing can be told."""

    part: Part | None
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PodAlignment:
    """One running container that holds GPUs or HCAs.

    NUMA nodes are ascending and only those that have CPUs; ``None`` where they are not known.

    Attributes:
        uid: of the pod.
        gpus: ``GPU<index>`` of each GPU that it holds all or a part of, by index; the device's id
            where the snapshot has no such GPU.
        cpus: those that it may run on.
        has_own_cpus: whether the CPU Manager gave it exclusive CPUs.
        is_memory_bound: whether it can have memory of some NUMA nodes only.
        hcas: names, by name; the device's id where the snapshot has no such HCA.
        hca_nodes: empty without HCAs.
        nvlink: ``None`` for fewer than two whole GPUs, and where links are not known.
        apart: what is not together, by :class:`Part`; :attr:`nvlink` has no say in it.
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
    missing: tuple[Missing, ...] = ()

    @property
    def verdict(self) -> Alignment:
        """What is proven outranks what is not known beside it."""
        if self.apart:
            return Alignment.MISALIGNED
        return Alignment.UNKNOWN if self.missing else Alignment.ALIGNED

    @property
    def causes(self) -> tuple[Cause, ...]:
        """All causes, each once, the one to begin with first."""
        return tuple(dict.fromkeys(cause for one in self.apart for cause in one.causes))


def to_plain(row: PodAlignment) -> dict[str, Any]:
    """Return *row* in JSON's own types, with ``null`` for what is not known."""
    return {
        "namespace": row.namespace,
        "pod": row.pod,
        "container": row.container,
        "uid": row.uid,
        "gpus": list(row.gpus),
        "gpu_nodes": _nodes(row.gpu_nodes),
        "cpus": None if row.cpus is None else str(row.cpus),
        "exclusive_cpus": row.has_own_cpus,
        "cpu_nodes": _nodes(row.cpu_nodes),
        "memory_bound": row.is_memory_bound,
        "memory_nodes": _nodes(row.memory_nodes),
        "hcas": list(row.hcas),
        "hca_nodes": _nodes(row.hca_nodes),
        "nvlink": None if row.nvlink is None else row.nvlink.value,
        "verdict": row.verdict.value,
        "apart": [
            {
                "part": one.part.value,
                "observed": one.observed,
                "expected": one.expected,
                "causes": [cause.code for cause in one.causes],
            }
            for one in row.apart
        ],
        "causes": [{"code": cause.code, "text": cause.text} for cause in row.causes],
        "missing": [one.what for one in row.missing],
    }


def _nodes(nodes: tuple[int, ...] | None) -> list[int] | None:
    return None if nodes is None else list(nodes)
