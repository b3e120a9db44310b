"""A rule as data: what it claims, what it needs to know, and what breaks the claim."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from agent.model.gpu import Gpu
from agent.model.hca import Hca, HcaPort
from agent.model.snapshot import Snapshot

PAGE = "docs/reference/checks.md"
"""Where every rule is described, under a heading that is its code."""


class Verdict(StrEnum):
    """What became of a rule; UNKNOWN means that an input is missing, and is never a pass."""

    PASS = "pass"  # noqa: S105 - a verdict, not a password
    WARN = "warn"
    FAIL = "fail"
    UNKNOWN = "unknown"


class Severity(StrEnum):
    """What findings make of the verdict: a failure, a warning, or a remark on a pass."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


class Area(StrEnum):
    """What a rule is about, the unit of ``--only``."""

    GPU = "gpu"
    MIG = "mig"
    NVLINK = "nvlink"
    PCIE = "pcie"
    NUMA = "numa"
    RDMA = "rdma"
    GPUDIRECT = "gpudirect"
    KERNEL = "kernel"
    RUNTIME = "runtime"
    KUBELET = "kubelet"
    PLUGIN = "plugin"
    QOS = "qos"
    PODS = "pods"
    ALIGNMENT = "alignment"


class Suite(StrEnum):
    """Which command runs a rule: HEALTH is about hardware, AUDIT about settings and pods."""

    HEALTH = "health"
    AUDIT = "audit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that breaks a claim.

    The texts may hold names that a machine or a stranger's file chose: treat them as data
    and neutralise control characters before a terminal sees them.
    """

    subject: str
    observed: str
    expected: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim(ABC):
    """What is claimed, of a node or of a cluster, and what there is to say about it.

    Attributes:
        code: stable for ever, e.g. ``NVL-001``; never given to another claim.
        claim: how the world is when the rule passes.
        why: what is lost when it does not hold.
        area: what it is about, the unit of ``--only``.
        remedy: what to do about a finding.
        reference: the text that the claim rests on.
    """

    code: str
    claim: str
    why: str
    area: StrEnum
    severity: Severity
    remedy: str
    reference: str

    @property
    @abstractmethod
    def command(self) -> str:
        """The command that judges it."""

    @property
    @abstractmethod
    def url(self) -> str:
        """Its own section in the documentation."""


def _always_applies(_snapshot: Snapshot) -> str | None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule(Claim):
    """A claim about a node that can be checked on a snapshot.

    Attributes:
        needs: names the inputs that the snapshot lacks; empty when everything is known,
            which includes that the rule does not apply to this node.
        check: the findings that the known part of the snapshot proves, in its order;
            it guesses nothing about the unknown part.
        skips: why the claim says nothing about this node, such as ``no RDMA device``;
            ``None`` where it applies, and where that is not known.
    """

    area: Area
    suite: Suite
    needs: Callable[[Snapshot], tuple[str, ...]]
    check: Callable[[Snapshot], tuple[Finding, ...]]
    skips: Callable[[Snapshot], str | None] = _always_applies

    @property
    def command(self) -> str:
        """The command that judges it."""
        return self.suite.value

    @property
    def url(self) -> str:
        """The rule's own section in the documentation."""
        return f"{PAGE}#{self.code.lower()}"


# What a rule has to know, told by the rule itself: what it misses of a node that tells nothing.

_GPUS = (Gpu(index=0), Gpu(index=1))


_HCA = Hca(name="HCA", ports=(HcaPort(number=1),))


SILENT: tuple[Snapshot, ...] = (
    Snapshot(gpus=_GPUS),
    Snapshot(gpus=_GPUS, hcas=(_HCA,)),
)
"""Nodes of which nothing is known but that they have GPUs, and in the second one that there is an
HCA: what is needed of HCAs is asked only where there are some."""


_WORDS: Mapping[str, str] = MappingProxyType(
    {
        "GPU0, GPU1, HCA": "every GPU and HCA",
        "GPU0, GPU1": "every GPU",
        " of HCA": " of every HCA",
        "pods were not read": "pods",
    },
)


def needed(rule: Rule) -> tuple[str, ...]:
    """Return the inputs without which *rule* is unknown, as a person reads them, each once.

    Some are asked for only once others are known; those of a device that a job asks for are
    named by the report.
    """
    found = (name for snapshot in SILENT for name in _of(rule, snapshot))
    return tuple(dict.fromkeys(map(_general, found)))


def _of(rule: Rule, snapshot: Snapshot) -> tuple[str, ...]:
    return rule.needs(snapshot) if rule.skips(snapshot) is None else ()


def _general(name: str) -> str:
    for one, every in _WORDS.items():
        name = name.replace(one, every)
    return name
