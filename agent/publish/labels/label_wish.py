"""What should be published about a node."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

_NONE: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelWish:
    """All that one scan, by one set of rules, asks for.

    Attributes:
        labels: value by key.
        unread: keys that are not in *labels* because what they are made of was not read; where
            they are published already they stay.
        annotations: of the Node, value by key; ``None`` leaves those that are there.
    """

    labels: Mapping[str, str] = field(default_factory=lambda: _NONE)
    unread: frozenset[str] = field(default_factory=frozenset)
    annotations: Mapping[str, str] | None = None


NOTHING = LabelWish(annotations=_NONE)
"""Of a node that is to hold nothing of ours any more."""
