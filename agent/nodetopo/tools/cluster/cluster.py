"""What the doctor looks at: Nodes, the levels in use, the gangs, and what NVML says of some."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A cluster as it is seen from outside.

    Attributes:
        nodes: those with GPUs, by name.
        prefix: of this program's own labels.
        topologies: the levels that schedulers use; at least one.
        gangs: groups that have to stay within one place; ``None`` where nobody was asked.
        unread: what could not be learnt about gangs.
        others: names of the Nodes that are not judged, for no label tells of GPUs there.
        published: node name → what DRA drivers publish for it; ``None`` where nobody was asked.
        pools: the pools of which these devices are; ``None`` as above.
        snapshots: node name → the node's own hardware, where it was given.
    """

    nodes: tuple[ClusterNode, ...]
    prefix: str
    topologies: tuple[Topology, ...]
    gangs: tuple[Gang, ...] | None = None
    unread: tuple[Missing, ...] = ()
    others: tuple[str, ...] = ()
    published: Mapping[str, tuple[PublishedDevice, ...]] | None = None
    pools: tuple[PublishedPool, ...] | None = None
    snapshots: Mapping[str, Snapshot] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def level_keys(self) -> tuple[str, ...]:
        """The levels of all topologies, each once."""
        return tuple(dict.fromkeys(key for one in self.topologies for key in one.levels))

    def members(self, topology: Topology) -> tuple[ClusterNode, ...]:
        """Return the nodes that have a value for every level of *topology*."""
        return tuple(
            node for node in self.nodes if all(node.labels.get(key) for key in topology.levels)
        )
