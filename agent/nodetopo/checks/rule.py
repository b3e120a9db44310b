"""Rules: a check of a node, and a generator that judges a snapshot by it."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple, Self, TypeAlias, TypeVar

from msgspec import Struct

from nodetopo.errors import InputError, closest
from nodetopo.model.gpu import Gpu
from nodetopo.model.hca import Hca, HcaPort
from nodetopo.model.snapshot import Snapshot
from nodetopo.pages import texts_of

AnyClaim = TypeVar("AnyClaim", bound="Claim")

PAGE = "reference/checks.md"
"""The page with the texts of every rule, under a heading that is its code."""


class Verdict(StrEnum):
    """The result of a rule; UNKNOWN means that an input is missing, and is never a pass."""

    PASS = "pass"  # noqa: S105 - a verdict, not a password
    WARN = "warn"
    FAIL = "fail"
    UNKNOWN = "unknown"


class Severity(StrEnum):
    """The verdict when there are findings: a failure, a warning, or a remark on a pass."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


class Area(StrEnum):
    """The subject of a rule, the unit of ``--only``."""

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


class Finding(Struct, frozen=True, kw_only=True):
    """One thing that breaks a claim.

    The texts may hold names from a machine or from an untrusted file: escape control characters
    before printing them to a terminal.
    """

    subject: str
    observed: str
    expected: str


class Missing(str):
    """An input that the snapshot lacks, and why: ``GPUs (library: no such file)``.

    Attributes:
        what: its name, e.g. ``port states of mlx5_0``.
        reason: what kept it from being read; ``None`` if that is not known.
    """

    __slots__ = ("reason", "what")
    what: str
    reason: str | None

    def __new__(cls, what: str, reason: str | None = None) -> Self:
        """Return the text of both."""
        made = super().__new__(cls, what if reason is None else f"{what} ({reason})")
        made.what = what
        made.reason = reason
        return made


class Skip(NamedTuple):
    """Why a rule does not apply to this node, such as ``no RDMA device``."""

    reason: str


Reason: TypeAlias = Callable[[Snapshot], str | None]
"""Returns why a rule does not apply to a snapshot; None if it applies."""

Cure: TypeAlias = Callable[[Snapshot], Snapshot]
"""Returns a snapshot as it is once a remedy is applied."""

Caution: TypeAlias = Callable[[Snapshot, Snapshot], str | None]
"""Says what a change from one snapshot to another brings about; ``None`` for nothing bad."""

Judgement: TypeAlias = Iterator[Finding | Missing | Skip]
"""A rule's results on a snapshot.

A :class:`Skip` stands alone and comes first. Findings are proven by the known part of the snapshot,
in order; the unknown part is not guessed but named by :class:`Missing`. A rule that yields nothing
passes.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim(ABC):
    """A claim about a node or a cluster, and how to explain it.

    Attributes:
        code: stable for ever, e.g. ``NVL-001``; never given to another claim.
        claim: the subject of the check as a noun phrase in sentence case, without its expected
            state, so that it reads right after every verdict: ``✗ GPU-006 Persistence mode``.
        why: what a finding costs.
        remedy: what to do about a finding.
        reference: the text that the claim rests on.
    """

    code: str
    claim: str
    why: str
    severity: Severity
    remedy: str
    reference: str

    @property
    @abstractmethod
    def area(self) -> StrEnum:
        """The subject of the claim, the unit of ``--only``."""

    @property
    @abstractmethod
    def command(self) -> str:
        """The command that runs it."""

    @property
    @abstractmethod
    def url(self) -> str:
        """Its own section in the documentation."""


_AREAS = {
    "GPU": Area.GPU,
    "MIG": Area.MIG,
    "NVL": Area.NVLINK,
    "PCI": Area.PCIE,
    "NUM": Area.NUMA,
    "RDM": Area.RDMA,
    "GDR": Area.GPUDIRECT,
    "KRN": Area.KERNEL,
    "RUN": Area.RUNTIME,
    "KUB": Area.KUBELET,
    "PLG": Area.PLUGIN,
    "QOS": Area.QOS,
    "POD": Area.PODS,
    "ALN": Area.ALIGNMENT,
}
"""The area of a rule by the first letters of its code."""

_LAST_ABOUT_HARDWARE = {"GPU": 5, "NVL": 5, "PCI": 4, "NUM": 2, "RDM": 5}
"""The last rule of each area that `health` runs; those after it, and all others, are `audit`'s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule(Claim):
    """A claim about a node that can be checked on a snapshot.

    Area and suite follow from the code.

    Attributes:
        judge: yields what breaks the claim, what is missing, or why it does not apply.
        cure: applies the remedy to a snapshot; ``None`` where the remedy is outside of it.
        caution: says which known bugs the cure brings about; the catalogue gives it to every rule.
    """

    judge: Callable[[Snapshot], Judgement]
    cure: Cure | None = None
    caution: Caution | None = None

    @property
    def area(self) -> Area:
        """The subject of the rule, the unit of ``--only``."""
        return _AREAS[self.code[:3]]

    @property
    def suite(self) -> Suite:
        """Whether the rule is about hardware or about settings and pods."""
        is_health = int(self.code[4:]) <= _LAST_ABOUT_HARDWARE.get(self.code[:3], 0)
        return Suite.HEALTH if is_health else Suite.AUDIT

    @property
    def command(self) -> str:
        """The command that runs it."""
        return self.suite.value

    @property
    def url(self) -> str:
        """The rule's own section in the documentation."""
        return f"docs/{PAGE}#{self.code.lower()}"


def rule(
    code: str,
    severity: Severity,
    *,
    unless: Reason | tuple[Reason, ...] = (),
    cure: Cure | None = None,
) -> Callable[[Callable[[Snapshot], Judgement]], Rule]:
    """Return a decorator that makes a generator function the rule *code*, with the page's texts.

    Where *unless*, or the first of several, returns a reason, the rule does not apply and the
    function is not called.
    """
    reasons = (unless,) if callable(unless) else unless

    def decorated(judge: Callable[[Snapshot], Judgement]) -> Rule:
        def judge_or_skip(snapshot: Snapshot) -> Judgement:
            for why_not in reasons:
                if (reason := why_not(snapshot)) is not None:
                    yield Skip(reason)
                    return
            yield from judge(snapshot)

        texts = texts_of(code, PAGE)
        return Rule(code=code, severity=severity, judge=judge_or_skip, cure=cure, **texts)

    return decorated


# The inputs of a rule are those that it misses on a node without known facts.

_GPUS = (Gpu(index=0), Gpu(index=1))
_HCA = Hca(name="HCA", ports=(HcaPort(number=1),))

SILENT: tuple[Snapshot, ...] = (
    Snapshot(gpus=_GPUS),
    Snapshot(gpus=_GPUS, hcas=(_HCA,)),
)
"""Nodes of which only the number of GPUs is known, and in the second one that there is an HCA:
rules need something of HCAs only where there are some."""

_WORDS: Mapping[str, str] = MappingProxyType(
    {
        "GPU0, GPU1, HCA": "every GPU and HCA",
        "GPU0, GPU1": "every GPU",
        " of HCA": " of every HCA",
    },
)


def needed(rule: Rule) -> tuple[str, ...]:
    """Return the inputs without which *rule* is unknown, as a person reads them, each once.

    Some inputs are needed only if others are known; the report names the inputs of a device that a
    job requests.
    """
    names = []
    for snapshot in SILENT:
        for part in rule.judge(snapshot):
            if isinstance(part, Missing):
                name = part.what
                for words, general in _WORDS.items():
                    name = name.replace(words, general)
                names.append(name)
    return tuple(dict.fromkeys(names))


def by_code(code: str, claims: Iterable[AnyClaim]) -> AnyClaim:
    """Return the claim with *code*, in either case.

    Raises:
        InputError: there is none.
    """
    known = {claim.code: claim for claim in claims}
    claim = known.get(code.strip().upper())
    if claim is None:
        hint = suggestion(code.upper(), known)
        raise InputError(f"unknown check {code!r}", f"{hint}`nodetopo explain` lists all")
    return claim


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return the name of *known* that is near to *name*, as a question; empty for none."""
    close = closest(name, list(known), cutoff=0.5)
    return f"did you mean {close!r}? " if close else ""
