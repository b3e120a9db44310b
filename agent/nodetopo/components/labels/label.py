"""A label: one row of the catalogue, and the grammar of its key and value.

Source of the grammar: k8s.io/apimachinery v0.36 pkg/util/validation (IsQualifiedName,
IsValidLabelValue, IsDNS1123Subdomain). Patterns match whole texts only, by ``fullmatch``.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from nodetopo.components.labels.rules import LabelRules
from nodetopo.model.snapshot import Snapshot

MAX_VALUE_LENGTH = 63
"""Characters of a label value (k8s.io/apimachinery validation, LabelValueMaxLength)."""

RawValue: TypeAlias = str | int | bool | None
"""A value before it is sanitised; ``None`` where it is unknown, and so without a label."""

_DROPPED = re.compile(r"[^A-Za-z0-9\-_. ]")
_SPACES = re.compile(r" +")
_EDGES = "-_."


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelRow(ABC):
    """A key, or form of key, that this program can publish: a row of the reference.

    Attributes:
        key: the whole key, default prefix included; ``<…>`` stands for a part that varies.
        meaning: of the value, for authors of node selectors.
        source: of the fact.
        cardinality: number of different values in a cluster, which schedulers must index.
    """

    key: str
    meaning: str
    source: str
    cardinality: str

    @abstractmethod
    def raw_values(self, snapshot: Snapshot, rules: LabelRules) -> Mapping[str, RawValue]:
        """Return the raw values by key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelEntry(LabelRow):
    """One label that hardware alone decides."""

    value: Callable[[Snapshot], RawValue]

    def raw_values(self, snapshot: Snapshot, rules: LabelRules) -> Mapping[str, RawValue]:
        """Return its one value."""
        del rules
        return {self.key: self.value(snapshot)}


@dataclass(frozen=True, slots=True, kw_only=True)
class RuledLabel(LabelRow):
    """One label that the operator's settings decide, too."""

    value: Callable[[Snapshot, LabelRules], RawValue]

    def raw_values(self, snapshot: Snapshot, rules: LabelRules) -> Mapping[str, RawValue]:
        """Return its one value."""
        return {self.key: self.value(snapshot, rules)}


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelFamily(LabelRow):
    """Labels whose keys depend on the node; *values* returns them with whole keys."""

    values: Callable[[Snapshot, LabelRules], Mapping[str, RawValue]]

    def raw_values(self, snapshot: Snapshot, rules: LabelRules) -> Mapping[str, RawValue]:
        """Return the value of each label that the node has."""
        return self.values(snapshot, rules)


def label_value(raw: RawValue) -> str | None:
    """Return *raw* as a valid label value: booleans in lower case, numbers in decimal.

    ``None`` if it is unknown or has no valid characters.
    """
    if raw is None:
        return None
    return str(raw).lower() if isinstance(raw, bool) else sanitise(str(raw))


def sanitise(raw: str) -> str | None:
    """Return *raw* as a valid label value; ``None`` without valid characters.

    First like GPU Feature Discovery, so that values stay equal: characters outside ``[A-Za-z0-9-_.
    ]`` are dropped and runs of spaces become one hyphen. Then the API server's requirements, which
    GFD ignores: 63 characters at most, a letter or digit at either end (a DMI text ``To be filled
    by O.E.M.`` ends in a dot).
    """
    hyphenated = _SPACES.sub("-", _DROPPED.sub("", raw).strip(" "))
    return hyphenated.lstrip(_EDGES)[:MAX_VALUE_LENGTH].rstrip(_EDGES) or None


def marked(raw: str, marks: Sequence[str]) -> str | None:
    """Return *raw* sanitised, with *marks* appended by hyphens; a long *raw* is cut.

    ``None`` if *raw* has no valid characters. Marks consist of valid characters.
    """
    stem, tail = sanitise(raw), "".join(f"-{mark}" for mark in marks)
    return None if stem is None else stem[: MAX_VALUE_LENGTH - len(tail)].rstrip(_EDGES) + tail
