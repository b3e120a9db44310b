"""The labels that are the levels of a cluster's topology, broadest first.

Every scheduler drops a node that lacks a level (KAI v0.17 plugins/topology/common.go, Kueue
v0.19.2 pkg/util/tas/node.go, kube-scheduler 1.36 plugins/topologyaware), so only labels that all
nodes with GPUs carry are chosen. Nothing here guesses a hierarchy: where a broader level would
cut an NVLink domain in two, it is left out.
"""

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise

from msgspec import Struct
from msgspec.structs import replace

from nodetopo.components.labels.levels import MAX_TIERS, PLATFORMS, REGION, ZONE, Platform
from nodetopo.errors import InputError, NothingFound
from nodetopo.formats.names import DNS_NAME, PART
from nodetopo.tools.cluster.cluster import Topology
from nodetopo.tools.cluster.export.record import Remark, warning
from nodetopo.tools.cluster.node import ClusterNode, gpu_nodes
from nodetopo.topology.domains import Interconnect, has_multi_node_nvlink

HOSTNAME = "kubernetes.io/hostname"
"""The narrowest level of all; KAI and Kueue take it nowhere else."""


MAX_LEVELS = 16
"""Of KAI's and Kueue's Topology (KAI v0.17 topology_types.go, Kueue v0.19.2 the same)."""


_KEY = re.compile(f"(?P<prefix>{DNS_NAME}/)?{PART}")


_MAX_PREFIX = 253
"""Characters of a label key's prefix (k8s.io/apimachinery validation, IsQualifiedName)."""


def check_levels(keys: Sequence[str], max_key: int) -> None:
    """Check that *keys*, broadest first, can be the levels of a topology.

    *max_key* is the most characters of a key.

    Raises:
        InputError: a scheduler would refuse them.
    """
    if len(keys) > MAX_LEVELS:
        raise InputError(f"{len(keys)} levels", f"schedulers take {MAX_LEVELS} at most: drop some")
    for key in keys:
        match = _KEY.fullmatch(key)
        if match is None or len(key) > max_key:
            cure = f"keys are PREFIX/NAME, here up to {max_key} characters"
            raise InputError(f"not a usable label key: {key!r}", cure)
        if len((match["prefix"] or "").rstrip("/")) > _MAX_PREFIX:
            raise InputError(f"prefix too long in {key!r}", f"up to {_MAX_PREFIX} characters")
        if keys.count(key) > 1:
            raise InputError(f"level {key!r} is named twice", "name each once")
    if HOSTNAME in keys[:-1]:
        raise InputError(f"{HOSTNAME} is not the last level", "levels go from broad to narrow")


# Values that make a scheduler take two places for one, or one place for two.


class DotClash(Struct, frozen=True, kw_only=True):
    """Places that coincide for a scheduler that joins values with dots."""

    key: str  # of the level where they meet
    name: str  # their joined values
    paths: tuple[tuple[str, ...], ...]  # their values, broadest level first; two or more


class SharedValue(Struct, frozen=True, kw_only=True):
    """A value that occurs inside two or more places of the level above."""

    key: str
    value: str
    parent_key: str
    parents: tuple[str, ...]


def dot_clashes(nodes: Iterable[ClusterNode], keys: Sequence[str]) -> tuple[DotClash, ...]:
    """Return the places that KAI takes for one, at the broadest level that has any.

    KAI names a place by the values of its level and all broader ones, joined with dots (v0.17
    pkg/scheduler/plugins/topology/topology_structs.go, calcDomainId), so ``r.1`` below ``a`` is
    ``1`` below ``a.r``. *keys* are the levels, broadest first; each of *nodes* has them all.
    """
    paths = {tuple(node.labels[key] for key in keys) for node in nodes}
    for depth, key in enumerate(keys, start=1):
        by_name: dict[str, set[tuple[str, ...]]] = {}
        for path in paths:
            by_name.setdefault(".".join(path[:depth]), set()).add(path[:depth])
        found = tuple(
            DotClash(key=key, name=name, paths=tuple(sorted(alike)))
            for name, alike in sorted(by_name.items())
            if len(alike) > 1
        )
        if found:
            return found
    return ()


def shared_values(nodes: Iterable[ClusterNode], keys: Sequence[str]) -> tuple[SharedValue, ...]:
    """Return the values that occur in two places at once, broad levels first."""
    everyone = tuple(nodes)
    found: list[SharedValue] = []
    for parent_key, key in pairwise(keys):
        parents: dict[str, set[str]] = {}
        for node in everyone:
            parents.setdefault(node.labels[key], set()).add(node.labels[parent_key])
        found += [
            SharedValue(key=key, value=value, parent_key=parent_key, parents=tuple(sorted(above)))
            for value, above in sorted(parents.items())
            if len(above) > 1
        ]
    return tuple(found)


def same_hosts(
    nodes: Iterable[ClusterNode], keys: Sequence[str]
) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return each value of the host's label that several Nodes bear, with their names.

    Machines of one image sometimes do. They are one place where the host is a level, to every
    scheduler; none where it is not among *keys*.
    """
    names: dict[str, list[str]] = {}
    for node in nodes if HOSTNAME in keys else ():
        names.setdefault(node.labels[HOSTNAME], []).append(node.name)
    return tuple((host, tuple(sorted(of))) for host, of in sorted(names.items()) if len(of) > 1)


CLIQUE = "nvidia.com/gpu.clique"
"""Of GFD, the DRA driver or this program: the NVLink partition, on machines that have one."""


_PRODUCT = "nvidia.com/gpu.product"


_NAMED = 5
"""Nodes that a remark names before it counts the rest."""


class Choice(Struct, frozen=True, kw_only=True):
    """The levels of a topology."""

    keys: tuple[str, ...]  # broadest first; at least one
    nodes: tuple[ClusterNode, ...]  # with all of them, by name; at least one
    gpus: tuple[ClusterNode, ...]  # nodes with GPUs, or all without labels about GPUs
    remarks: tuple[Remark, ...] = ()  # omissions, with reasons

    @property
    def broad(self) -> tuple[str, ...]:
        """The levels above the single node."""
        return tuple(key for key in self.keys if key != HOSTNAME)

    def joins(self, key: str) -> bool:
        """Return whether a place of the level *key* has two nodes or more."""
        return len({node.labels[key] for node in self.nodes}) < len(self.nodes)


def choose(nodes: Sequence[ClusterNode], prefix: str, wanted: Sequence[str] = ()) -> Choice:
    """Return the levels of *nodes*: *wanted* unchanged, or else levels from their labels.

    *prefix* is our labels' prefix.

    Raises:
        InputError: *nodes* is empty, or no node has all levels.
    """
    if not nodes:
        raise InputError("no nodes", "check the selector")
    with_gpus = gpu_nodes(nodes, prefix)
    counted = tuple(sorted(with_gpus or nodes, key=lambda node: node.name))
    remarks: list[Remark] = []
    if not with_gpus:
        remarks.append(warning("no label tells which nodes have GPUs: all nodes count"))
    serving = counted
    if wanted:
        keys = tuple(wanted)
        for key in keys:
            if without := lacking(counted, key):
                text = f"{key}: {_share(without, counted)} and will get no pods of this topology"
                remarks.append(warning(f"{text}: {named(without)}"))
        serving = tuple(node for node in counted if all(node.labels.get(key) for key in keys))
        if not serving:
            raise InputError("no node carries all of these levels", "check the keys of --levels")
    else:
        if false := [node.name for node in counted if has_false_clique(node, prefix)]:
            text = f"{CLIQUE} ignored where no NVLink leads to other nodes: {named(false)}"
            remarks.append(warning(text))
            counted = serving = without_false_cliques(counted, prefix)
        nvlink = _complete(counted, _nvlink(counted, prefix), remarks)
        broad = _complete(counted, (REGION, ZONE, *_tiers(counted, prefix)), remarks)
        if nvlink:
            broad = tuple(key for key in broad if _encloses(counted, key, nvlink[0], remarks))
        keys = (*broad, *nvlink, *_complete(counted, (HOSTNAME,), remarks))
        if not keys:
            cure = "name label keys with --levels, or narrow the nodes with --selector"
            raise NothingFound("no label that all nodes carry makes a level", cure)
    return Choice(keys=keys, nodes=serving, gpus=counted, remarks=tuple(remarks))


def nvlink_keys(prefix: str) -> tuple[str, ...]:
    """Return the levels that NVLink makes, broadest first; the last two mean the same."""
    return f"{prefix}nvlink-domain", f"{prefix}nvlink-partition", CLIQUE


def has_false_clique(node: ClusterNode, prefix: str) -> bool:
    """Return whether *node* has :data:`CLIQUE` although its NVLinks lead to no other node.

    GFD writes it if the driver names a cluster, see :func:`nodetopo.topology.domains.cluster_uuid`.
    Our label decides if present, else the product. *prefix* is our labels' prefix.
    """
    if not node.labels.get(CLIQUE):
        return False
    interconnect = node.labels.get(f"{prefix}interconnect")
    if interconnect is not None:
        return interconnect != Interconnect.MNNVL
    return has_multi_node_nvlink(node.labels.get(_PRODUCT)) is False


def without_false_cliques(nodes: Iterable[ClusterNode], prefix: str) -> tuple[ClusterNode, ...]:
    """Return *nodes* without :data:`CLIQUE` if it is false (:func:`has_false_clique`)."""
    return tuple(
        replace(node, labels={key: node.labels[key] for key in node.labels if key != CLIQUE})
        if has_false_clique(node, prefix)
        else node
        for node in nodes
    )


def candidates(nodes: Sequence[ClusterNode], prefix: str) -> tuple[str, ...]:
    """Return every level that the labels of *nodes* can have, broadest first.

    Not every node needs to have it: :func:`choose` drops incomplete levels.
    """
    return (REGION, ZONE, *_tiers(nodes, prefix), *_nvlink(nodes, prefix), HOSTNAME)


def lacking(nodes: Iterable[ClusterNode], key: str) -> tuple[str, ...]:
    """Return the names of *nodes* without a value for *key*; an empty one is none."""
    return tuple(node.name for node in nodes if not node.labels.get(key))


def named(names: Sequence[str], joint: str = ", ") -> str:
    """Return *names* for a sentence: the first few, and how many more there are."""
    shown, rest = joint.join(names[:_NAMED]), len(names) - _NAMED
    return f"{shown} and {rest} more" if rest > 0 else shown


def _tiers(nodes: Sequence[ClusterNode], prefix: str) -> tuple[str, ...]:
    """Return the tiers of one family, broadest first: our tiers before a platform's.

    It is the family of all nodes, or else the first family of any, so that the remarks name the
    missing nodes.
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
    """Return the *keys* that all nodes have; add remarks on those that only some have."""
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


_NONE = {Interconnect.PCIE.value, Interconnect.NONE.value}


def without_nvlink(nodes: Iterable[ClusterNode], prefix: str) -> frozenset[str]:
    """Return the names of *nodes* whose label reports no NVLink between GPUs.

    These have PCIe GPUs, a single GPU, or only GPUs in MIG mode, which disables their links. A node
    without NVLink whose peers with the same GPUs have it, except for MIG, has lost it, and is not
    returned. *prefix* is our labels' prefix.
    """
    known = tuple(nodes)
    joined = {node.labels.get(_PRODUCT) for node in known if _has_nvlink(node, prefix)} - {None}
    return frozenset(
        node.name
        for node in known
        if node.labels.get(f"{prefix}interconnect") in _NONE
        and not _has_nvlink(node, prefix)
        and (
            node.labels.get(f"{prefix}mig-enabled") == "true"
            or node.labels.get(_PRODUCT) not in joined
        )
    )


def _has_nvlink(node: ClusterNode, prefix: str) -> bool:
    return any(key in node.labels for key in nvlink_keys(prefix))


FROM_LABELS = "labels of the nodes"
"""Name of the topology that follows from labels alone."""


WITH_NVLINK, WITHOUT_NVLINK = f"{FROM_LABELS} with NVLink", f"{FROM_LABELS} without NVLink"
"""Names of the two topologies where only some machines have NVLink."""


def levels_in_use(
    nodes: Sequence[ClusterNode],
    prefix: str,
    named: Sequence[str] = (),
    found: Sequence[Topology] = (),
) -> tuple[Topology, ...]:
    """Return the topologies to examine: of *named* keys, else those *found*, else of the labels.

    From labels: every level that an export can choose and any node has, except broader ones that
    would split an NVLink domain, and false cliques, which an export also omits. Machines without
    NVLink by design are a separate pool: they cannot have its levels.
    """
    if named:
        return (Topology(name="--levels", levels=tuple(named)),)
    if found:
        return tuple(found)
    nodes = without_false_cliques(nodes, prefix)
    apart = without_nvlink(nodes, prefix)
    without = [node for node in nodes if node.name in apart]
    rest = [node for node in nodes if node.name not in apart]
    if not without or not rest:
        return (Topology(name=FROM_LABELS, levels=_offered(nodes, prefix)),)
    joined = frozenset(node.name for node in rest)
    return (
        Topology(name=WITH_NVLINK, levels=_offered(rest, prefix), only=joined),
        Topology(name=WITHOUT_NVLINK, levels=_offered(without, prefix), only=apart),
    )


def is_from_labels(topology: Topology) -> bool:
    """Return whether *topology* follows from labels alone."""
    return topology.name in {FROM_LABELS, WITH_NVLINK, WITHOUT_NVLINK}


def _offered(nodes: Sequence[ClusterNode], prefix: str) -> tuple[str, ...]:
    offered = [
        key for key in candidates(nodes, prefix) if any(key in node.labels for node in nodes)
    ]
    domain = nvlink_keys(prefix)[0]
    broad = offered[: offered.index(domain)] if domain in offered else []
    cutting = set()
    for key in broad:
        both = [node for node in nodes if node.labels.get(key) and node.labels.get(domain)]
        if shared_values(both, (key, domain)):
            cutting.add(key)
    return tuple(key for key in offered if key not in cutting)
