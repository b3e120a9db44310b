"""A label: one entry of the catalogue, and what Kubernetes takes as a value."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from agent.model.snapshot import Snapshot

MAX_VALUE_LENGTH = 63
"""Characters of a label value (k8s.io/apimachinery validation, LabelValueMaxLength)."""

_DROPPED = re.compile(r"[^A-Za-z0-9\-_. ]")
_SPACES = re.compile(r" +")
_EDGES = "-_."


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelEntry:
    """One label that this program may publish: a row of ``docs/labels.md``.

    Attributes:
        key: the whole key, prefix included.
        meaning: what the value says, for somebody who writes a node selector.
        source: where the fact is read.
        cardinality: how many different values a cluster shows, as schedulers must index them.
        value: the raw value; ``None`` when the snapshot does not tell, and then no label.
    """

    key: str
    meaning: str
    source: str
    cardinality: str
    value: Callable[[Snapshot], str | None]


def sanitise(raw: str) -> str | None:
    """Return *raw* as a valid label value; ``None`` when nothing of it is left.

    First as GPU Feature Discovery does, so that values stay equal to its own: characters
    outside ``[A-Za-z0-9-_. ]`` are dropped and runs of spaces become one hyphen. Then what
    it leaves undone and the API server refuses: 63 characters at most, a letter or digit at
    either end (a DMI text ``To be filled by O.E.M.`` ends in a dot).
    """
    hyphenated = _SPACES.sub("-", _DROPPED.sub("", raw).strip(" "))
    return hyphenated.lstrip(_EDGES)[:MAX_VALUE_LENGTH].rstrip(_EDGES) or None


def boolean(claim: bool | None) -> str | None:
    """Return ``true`` or ``false`` as labels spell them; unknown stays ``None``."""
    return None if claim is None else str(claim).lower()


def number(amount: int | None) -> str | None:
    """Return a whole number in decimal; unknown stays ``None``."""
    return None if amount is None else str(amount)
