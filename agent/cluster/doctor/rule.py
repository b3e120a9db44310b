"""A rule about a whole cluster, as data."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from agent.checks.rule import Claim, Finding
from agent.cluster.cluster import Cluster

PAGE = "docs/reference/doctor.md"
"""Where every rule is described, under a heading that is its code."""


class ClusterArea(StrEnum):
    """What a rule is about, the unit of ``--only``."""

    LEVELS = "levels"
    OWNERS = "owners"
    NVLINK = "nvlink"
    GANGS = "gangs"


def _nothing(_cluster: Cluster) -> tuple[str, ...]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRule(Claim):
    """A claim about a cluster.

    Attributes:
        check: the findings that what is known proves; it guesses nothing about the rest.
        needs: names the inputs that are missing; labels are always there.
    """

    area: ClusterArea
    check: Callable[[Cluster], tuple[Finding, ...]]
    needs: Callable[[Cluster], tuple[str, ...]] = _nothing

    @property
    def command(self) -> str:
        """The command that judges it."""
        return "doctor"

    @property
    def url(self) -> str:
        """The rule's own section in the documentation."""
        return f"{PAGE}#{self.code.lower()}"
