"""The form of a rule about a whole cluster."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from nodetopo.checks.rule import Claim, Finding, Missing, Severity
from nodetopo.pages import texts_of
from nodetopo.tools.cluster.cluster import Cluster

PAGE = "reference/doctor.md"
"""The page with the texts of every rule, under a heading that is its code."""

ClusterJudgement: TypeAlias = Iterator[Finding | Missing]
"""Findings, which the known part of the cluster proves, and the inputs that are missing."""


class ClusterArea(StrEnum):
    """The subject of a rule, the unit of ``--only``."""

    LEVELS = "levels"
    OWNERS = "owners"
    NVLINK = "nvlink"
    GANGS = "gangs"
    DRA = "dra"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRule(Claim):
    """A claim about a cluster."""

    area: ClusterArea
    # Yields violations and missing inputs; labels are always known.
    judge: Callable[[Cluster], ClusterJudgement]

    @property
    def command(self) -> str:
        return "doctor"

    @property
    def url(self) -> str:
        """The rule's own section in the documentation."""
        return f"docs/{PAGE}#{self.code.lower()}"


def cluster_rule(
    code: str, area: ClusterArea, severity: Severity
) -> Callable[[Callable[[Cluster], ClusterJudgement]], ClusterRule]:
    """Return a decorator that makes a generator function the rule *code*, with the page's texts."""
    texts = texts_of(code, PAGE)
    return lambda judge: ClusterRule(code=code, area=area, severity=severity, judge=judge, **texts)
