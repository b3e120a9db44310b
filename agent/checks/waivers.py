"""The terms on which a node is judged: severities of its owner, and findings that are accepted."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from fnmatch import fnmatchcase
from types import MappingProxyType

from agent.checks.rule import Finding, Severity


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiver:
    """A verdict that is accepted for a while.

    Attributes:
        reason: why, for those who read the report.
        until: the last day on which it holds.
        subject: which findings, as a shell pattern of their subject (``GPU3*``); ``None`` for
            all, and for what is unknown.
    """

    code: str
    reason: str
    until: date
    subject: str | None = None

    def covers(self, finding: Finding) -> bool:
        """Return whether *finding* is among those that are accepted."""
        return self.subject is None or fnmatchcase(finding.subject, self.subject)

    def __str__(self) -> str:
        return f"{self.reason}; until {self.until}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What the owner of a node says about rules, by code; the codes are known ones.

    Attributes:
        severities: instead of the rules' own.
        today: on which *waivers* are judged.
    """

    severities: Mapping[str, Severity] = field(default_factory=lambda: MappingProxyType({}))
    waivers: tuple[Waiver, ...] = ()
    today: date = date.min

    def in_force(self, code: str) -> tuple[Waiver, ...]:
        """Return the waivers of *code* that still hold."""
        return tuple(one for one in self.waivers if one.code == code and one.until >= self.today)

    def expired(self, code: str) -> tuple[Waiver, ...]:
        """Return the waivers of *code* that hold no more."""
        return tuple(one for one in self.waivers if one.code == code and one.until < self.today)


USUAL = Terms()
"""Every rule at its own severity, nothing accepted."""
