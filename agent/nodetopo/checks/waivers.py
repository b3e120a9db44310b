"""The owner's overrides for a node: severities of rules, and accepted findings."""

from collections.abc import Mapping
from datetime import date
from fnmatch import fnmatchcase
from types import MappingProxyType

from msgspec import Struct, field

from nodetopo.checks.rule import Finding, Severity


class Waiver(Struct, frozen=True, kw_only=True):
    """A verdict that is accepted for a while.

    Attributes:
        reason: why, as the report prints it.
        until: the last day on which it is in force.
        subject: which findings, as a shell pattern of their subject (``GPU3*``); ``None`` for
            all, and for what is unknown.
    """

    code: str
    reason: str
    until: date
    subject: str | None = None

    def covers(self, finding: Finding) -> bool:
        """Return whether *finding* is accepted."""
        return self.subject is None or fnmatchcase(finding.subject, self.subject)

    def __str__(self) -> str:
        return f"{self.reason}; until {self.until}"


class Overrides(Struct, frozen=True, kw_only=True):
    """Overrides of rules by code; the codes are known ones.

    Attributes:
        severities: in place of the rules' own.
        today: the day that decides which *waivers* are in force.
    """

    severities: Mapping[str, Severity] = field(default_factory=lambda: MappingProxyType({}))
    waivers: tuple[Waiver, ...] = ()
    today: date = date.min

    def in_force(self, code: str) -> tuple[Waiver, ...]:
        """Return the waivers of *code* that are in force."""
        return tuple(it for it in self.waivers if it.code == code and it.until >= self.today)

    def expired(self, code: str) -> tuple[Waiver, ...]:
        """Return the waivers of *code* that have expired."""
        return tuple(it for it in self.waivers if it.code == code and it.until < self.today)


NO_OVERRIDES = Overrides()
"""Every rule at its own severity, nothing accepted."""
