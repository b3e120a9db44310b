"""A rule as data: what it claims, what it needs to know, and what breaks the claim."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from agent.model.snapshot import Snapshot

PAGE = "docs/checks.md"
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
