"""The doctor's input: Nodes, levels, gangs, and some nodes' NVML facts."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from nodetopo.checks.rule import Missing
from nodetopo.model.dra import PublishedDevice, PublishedPool
from nodetopo.model.snapshot import Snapshot
from nodetopo.tools.cluster.gang import Gang
from nodetopo.tools.cluster.node import ClusterNode

# The levels that a scheduler was told about.


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """One list of levels."""

    name: str  # as people find it again: KAI Topology nvl72
    levels: tuple[str, ...]  # label keys, broadest first
    # Other names of levels → label key (KAI from v0.17 on).
    aliases: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    only: frozenset[str] | None = None  # nodes that are meant to have these levels; None for all

    def is_for(self, node: str) -> bool:
        """Return whether the node of that name should have these levels."""
        return self.only is None or node in self.only


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A cluster as seen through its API."""

    nodes: tuple[ClusterNode, ...]  # with GPUs, by name
    prefix: str  # of our labels
    topologies: tuple[Topology, ...]  # that schedulers use; at least one
    gangs: tuple[Gang, ...] | None = None  # that must stay within one place; None if not asked for
    unread: tuple[Missing, ...] = ()  # unreadable facts about gangs
    others: tuple[str, ...] = ()  # Nodes that are not judged, without labels about GPUs
    # Node → devices of DRA drivers; None if not asked for.
    published: Mapping[str, tuple[PublishedDevice, ...]] | None = None
    pools: tuple[PublishedPool, ...] | None = None  # of these devices; None if not asked for
    # Node → its hardware, if given.
    snapshots: Mapping[str, Snapshot] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def level_keys(self) -> tuple[str, ...]:
        """The levels of all topologies, each once."""
        return tuple(dict.fromkeys(key for topology in self.topologies for key in topology.levels))

    def members(self, topology: Topology) -> tuple[ClusterNode, ...]:
        """Return the nodes that have a value for every level of *topology*."""
        return tuple(
            node for node in self.nodes if all(node.labels.get(key) for key in topology.levels)
        )
