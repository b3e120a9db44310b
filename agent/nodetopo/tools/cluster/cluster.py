"""The doctor's input: Nodes, levels, gangs, and some nodes' NVML facts."""

import re
from collections.abc import Mapping
from types import MappingProxyType

from msgspec import Struct, field

from nodetopo.checks.rule import Missing
from nodetopo.errors import InputError
from nodetopo.model.dra import PublishedDevice, PublishedPool
from nodetopo.model.snapshot import Snapshot
from nodetopo.tools.cluster.node import ClusterNode

# The levels that a scheduler was told about.


class Topology(Struct, frozen=True, kw_only=True):
    """One list of levels."""

    name: str  # as people find it again: KAI Topology nvl72
    levels: tuple[str, ...]  # label keys, broadest first
    # Other names of levels → label key (KAI from v0.17 on).
    aliases: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    only: frozenset[str] | None = None  # nodes that are meant to have these levels; None for all

    def is_for(self, node: str) -> bool:
        """Return whether the node of that name should have these levels."""
        return self.only is None or node in self.only


# Groups of pods that must be placed together.

_GROUP = re.compile(r"(?P<size>[1-9][0-9]{0,5})(x(?P<gpus>[1-9][0-9]{0,2}))?@(?P<key>\S+)")


class Gang(Struct, frozen=True, kw_only=True):
    """A group that a scheduler places within one place of a level, or not at all."""

    name: str  # for people: Kueue Workload ml/train
    size: int  # pods that must run at once
    key: str  # the level, as a label key
    gpus: int | None = None  # whole GPUs requested by each pod
    has_whole_nodes: bool = False  # each pod has an exclusive node, regardless of its requests
    is_of_kai: bool = False  # placed by KAI, which has a special rule about MIG
    # The KAI Topology with `key` as a level or an alias; None for others.
    topology: str | None = None
    is_label: bool = True  # `key` is certainly a label key, not a name internal to the scheduler


def group(text: str) -> Gang:
    """Return the group that a person writes as ``SIZE@KEY`` (nodes) or ``SIZExGPUS@KEY`` (pods)."""
    match = _GROUP.fullmatch(text)
    if match is None:
        cure = "write 18@KEY for 18 nodes, or 64x1@KEY for 64 pods of one GPU each"
        raise InputError(f"not a group: {text!r}", cure)
    gpus = None if match["gpus"] is None else int(match["gpus"])
    return Gang(
        name=f"--group {text}",
        size=int(match["size"]),
        key=match["key"],
        gpus=gpus,
        has_whole_nodes=gpus is None,
    )


class Cluster(Struct, frozen=True, kw_only=True):
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
