"""The verdict on each line of another program's configuration, and their sum."""

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct, field

from nodetopo.kernel.settings.origin import Given


class Verdict(StrEnum):
    """The effect of a line after the migration."""

    SAME = "same"
    SET = "set"
    DIFFERS = "differs"
    NOT_SUPPORTED = "not supported"
    IGNORED = "ignored"
    NOT_OURS = "not ours"
    UNKNOWN = "unknown"


LOST = (Verdict.DIFFERS, Verdict.NOT_SUPPORTED)
"""Verdicts on lines whose effect is not kept."""


class Finding(Struct, frozen=True, kw_only=True):
    """The verdict on one line."""

    file: str
    line: int | None  # from 1; None for a missing line that should be there
    program: str  # that is configured
    written: str  # the line's text, without a value that could be a secret
    verdict: Verdict
    means: str  # the meaning of the verdict for this line
    # Keys of nodetopo's configuration file with their values.
    settings: Mapping[str, str] = field(default_factory=dict)
    components: tuple[str, ...] = ()  # of deploy/daemonset/components

    @property
    def where(self) -> str:
        return self.file if self.line is None else f"{self.file}:{self.line}"


class Plan(Struct, kw_only=True):
    """The configuration that sets nodetopo up in the same way."""

    # Settings for every node, by NVIDIA's name: of the environment and of flags.
    base: dict[str, Given] = field(default_factory=dict)
    # Settings of each named configuration, by NVIDIA's name, then by its own.
    named: dict[str, dict[str, Given]] = field(default_factory=dict)
    # For every node, by key of nodetopo's file.
    settings: dict[str, str] = field(default_factory=dict)
    components: set[str] = field(default_factory=set)  # of deploy/daemonset/components


class Report(Struct, frozen=True, kw_only=True):
    """Everything that was found, in the order of the files and their lines."""

    findings: tuple[Finding, ...]
    plan: Plan

    def count(self) -> Mapping[Verdict, int]:
        """Return the number of findings of each verdict, zeros included."""
        verdicts = [finding.verdict for finding in self.findings]
        return {verdict: verdicts.count(verdict) for verdict in Verdict}

    @property
    def is_lossless(self) -> bool | None:
        """Return whether no setting is lost; ``None`` if a line could not be judged."""
        counts = self.count()
        if any(counts[verdict] for verdict in LOST):
            return False
        return None if counts[Verdict.UNKNOWN] else True
