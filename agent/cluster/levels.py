"""Which labels are the levels of a cluster's topology, broadest first.

Every scheduler drops a node that lacks a level (KAI v0.17 plugins/topology/common.go, Kueue
v0.19.2 pkg/util/tas/node.go, kube-scheduler 1.36 plugins/topologyaware), so only labels that all
nodes with GPUs carry are chosen. Nothing here guesses a hierarchy: where a broader level would
cut an NVLink domain in two, it is left out.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from agent.cluster.export.record import Remark, warning
from agent.cluster.gpu_node import gpu_nodes
from agent.cluster.levels_rules import HOSTNAME
from agent.cluster.node import ClusterNode
from agent.errors import InputError
from agent.labels.levels_platform import MAX_TIERS, PLATFORMS, REGION, ZONE, Platform

CLIQUE = "nvidia.com/gpu.clique"
"""Of GFD, the DRA driver or this program: the NVLink partition, on machines that have one."""

_NAMED = 5
"""Nodes that a remark names before it counts the rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The levels of a topology.

    Attributes:
        keys: broadest first; at least one.
        nodes: those that carry them all, by name; at least one.
        gpus: those with GPUs, or all where no label tells of any.
        remarks: what was left out, and why.
    """

    keys: tuple[str, ...]
    nodes: tuple[ClusterNode, ...]
    gpus: tuple[ClusterNode, ...]
    remarks: tuple[Remark, ...] = ()

    @property
    def broad(self) -> tuple[str, ...]:
        """The levels above the single node."""
        return tuple(key for key in self.keys if key != HOSTNAME)

    def joins(self, key: str) -> bool:
        """Return whether a place of the level *key* has two nodes or more."""
        return len({node.labels[key] for node in self.nodes}) < len(self.nodes)


def choose(nodes: Sequence[ClusterNode], prefix: str, wanted: Sequence[str] = ()) -> Choice:
    """Return the levels of *nodes*: *wanted* as they are, or else what their labels offer.

    *prefix* is that of this program's own labels.

    Raises:
        InputError: there is no node, or none that carries all levels.
    """
    if not nodes:
        raise InputError("no nodes", "check the selector")
    told = gpu_nodes(nodes, prefix)
    counted = tuple(sorted(told or nodes, key=lambda node: node.name))
    remarks = () if told else (warning("no label tells which nodes have GPUs: all nodes count"),)
    if wanted:
        return _given(counted, tuple(wanted), remarks)
    keys, left_out = _chosen(counted, prefix)
    if not keys:
        cure = "name label keys with --levels, or narrow the nodes with --selector"
        raise InputError("no label that all nodes carry makes a level", cure)
    return Choice(keys=keys, nodes=counted, gpus=counted, remarks=(*remarks, *left_out))


def nvlink_keys(prefix: str) -> tuple[str, ...]:
    """Return the levels that NVLink makes, broadest first; the last two mean the same."""
    return f"{prefix}nvlink-domain", f"{prefix}nvlink-partition", CLIQUE


def candidates(nodes: Sequence[ClusterNode], prefix: str) -> tuple[str, ...]:
    """Return every level that the labels of *nodes* may offer, broadest first.

    Whether or not all of them carry it, or any: :func:`choose` drops those that not all do.
    """
    return (REGION, ZONE, *_tiers(nodes, prefix), *_nvlink(nodes, prefix), HOSTNAME)


def lacking(nodes: Iterable[ClusterNode], key: str) -> tuple[str, ...]:
    """Return the names of *nodes* without a value for *key*; an empty one is none."""
    return tuple(node.name for node in nodes if not node.labels.get(key))


def named(names: Sequence[str], joint: str = ", ") -> str:
    """Return *names* for a sentence: the first few, and how many more there are."""
    shown, rest = joint.join(names[:_NAMED]), len(names) - _NAMED
    return f"{shown} and {rest} more" if rest > 0 else shown


def _given(
    nodes: tuple[ClusterNode, ...], keys: tuple[str, ...], remarks: Iterable[Remark]
) -> Choice:
    found = list(remarks)
    for key in keys:
        without = lacking(nodes, key)
        if without:
            text = f"{key}: {_share(without, nodes)} and will get no pods of this topology"
            found.append(warning(f"{text}: {named(without)}"))
    serving = tuple(node for node in nodes if all(node.labels.get(key) for key in keys))
    if not serving:
        raise InputError("no node carries all of these levels", "check the keys of --levels")
    return Choice(keys=keys, nodes=serving, gpus=nodes, remarks=tuple(found))


def _chosen(
    nodes: tuple[ClusterNode, ...], prefix: str
) -> tuple[tuple[str, ...], tuple[Remark, ...]]:
    remarks: list[Remark] = []
    nvlink = _complete(nodes, _nvlink(nodes, prefix), remarks)
    broad = _complete(nodes, (REGION, ZONE, *_tiers(nodes, prefix)), remarks)
    uncut = tuple(key for key in broad if not nvlink or _encloses(nodes, key, nvlink[0], remarks))
    return (*uncut, *nvlink, *_complete(nodes, (HOSTNAME,), remarks)), tuple(remarks)


def _tiers(nodes: Sequence[ClusterNode], prefix: str) -> tuple[str, ...]:
    """Return the tiers of one family, broadest first: our own before a platform's.

    The family that all nodes belong to, or else the first that any does, so that the remarks
    name the nodes that are missing in it.
    """
    own = tuple(f"{prefix}tier-{tier}" for tier in range(MAX_TIERS))
    families = (Platform(name="own", keys=own, origin="this program"), *PLATFORMS)
    counts = [len(nodes) - len(lacking(nodes, family.keys[0])) for family in families]
    best = next((at for at, count in enumerate(counts) if count == len(nodes)), None)
    if best is None:
        best = next((at for at, count in enumerate(counts) if count), None)
    return () if best is None else families[best].keys[::-1]


def _nvlink(nodes: Sequence[ClusterNode], prefix: str) -> tuple[str, ...]:
    domain, partition, clique = nvlink_keys(prefix)
    missing = len(lacking(nodes, partition))
    is_own = not missing or (missing < len(nodes) and bool(lacking(nodes, clique)))
    return (domain, partition if is_own else clique)


def _complete(
    nodes: Sequence[ClusterNode], keys: Iterable[str], remarks: list[Remark]
) -> tuple[str, ...]:
    """Return those of *keys* that all nodes carry, and remark on those that only some do."""
    kept = []
    for key in keys:
        without = lacking(nodes, key)
        if not without:
            kept.append(key)
        elif len(without) < len(nodes):
            remarks.append(warning(f"{key} left out: {_share(without, nodes)}: {named(without)}"))
    return tuple(kept)


def _encloses(
    nodes: Sequence[ClusterNode], key: str, domain_key: str, remarks: list[Remark]
) -> bool:
    around: dict[str, set[str]] = {}
    for node in nodes:
        around.setdefault(node.labels[domain_key], set()).add(node.labels[key])
    for domain, values in sorted(around.items()):
        if len(values) > 1:
            where = f"{domain_key}={domain} lies in {len(values)} of its places"
            text = f"{where} ({named(sorted(values))}) and would be cut"
            remarks.append(warning(f"{key} left out: {text}"))
            return False
    return True


def _share(without: Sequence[str], nodes: Sequence[ClusterNode]) -> str:
    verb = "lacks" if len(without) == 1 else "lack"
    return f"{len(without)} of {len(nodes)} nodes with GPUs {verb} it"
