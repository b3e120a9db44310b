"""The levels that a scheduler was told about."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """One list of levels.

    Attributes:
        name: as people find it again, e.g. ``KAI Topology nvl72``.
        levels: label keys, broadest first.
        aliases: other names of levels → label key (KAI from v0.17 on).
        only: names of the nodes that are meant to have these levels; ``None`` for all.
    """

    name: str
    levels: tuple[str, ...]
    aliases: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    only: frozenset[str] | None = None

    def is_for(self, node: str) -> bool:
        """Return whether the node of that name is meant to have these levels."""
        return self.only is None or node in self.only
