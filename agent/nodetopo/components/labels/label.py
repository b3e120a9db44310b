"""A label: one row of the catalogue, and the grammar of its key and value.

Source of the grammar: k8s.io/apimachinery v0.36 pkg/util/validation (IsQualifiedName,
IsValidLabelValue, IsDNS1123Subdomain). Patterns match whole texts only, by ``fullmatch``.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from msgspec import Struct

from nodetopo.components.labels.rules import LabelRules
from nodetopo.model.snapshot import Snapshot

MAX_VALUE_LENGTH = 63
"""Characters of a label value (k8s.io/apimachinery validation, LabelValueMaxLength)."""

RawValue: TypeAlias = str | int | bool | None
"""A value before it is sanitised; ``None`` where it is unknown, and so without a label."""

_DROPPED = re.compile(r"[^A-Za-z0-9\-_. ]")
_SPACES = re.compile(r" +")
_EDGES = "-_."


class Label(Struct, frozen=True):
    """A key, or form of key, that this program can publish: a row of the reference."""

    key: str  # the whole key, default prefix included; ``<…>`` stands for a part that varies
    meaning: str  # of the value, for authors of node selectors
    source: str  # of the fact
    cardinality: str  # number of different values in a cluster, which schedulers must index
    # Returns the raw value, or the values by whole key where the key varies; from the hardware
    # alone, or by the operator's settings too if *is_ruled*.
    value: Callable[..., Any]
    is_ruled: bool = False

    def __call__(self, snapshot: Snapshot) -> Any:
        """Return the raw value that hardware alone decides."""
        return self.value(snapshot)

    def raw_values(self, snapshot: Snapshot, rules: LabelRules) -> Mapping[str, RawValue]:
        """Return the raw values by key."""
        value = self.value(snapshot, rules) if self.is_ruled else self.value(snapshot)
        return value if isinstance(value, Mapping) else {self.key: value}

    @property
    def is_family(self) -> bool:
        """Whether its keys depend on the node."""
        return "<" in self.key


def label(
    key: str, meaning: str, source: str, cardinality: str, *, is_ruled: bool = False
) -> Callable[[Callable[..., Any]], Label]:
    """Return a decorator that makes the label *key* of the function that returns its value."""
    return lambda value: Label(key, meaning, source, cardinality, value, is_ruled)


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
