"""Values by which a scheduler would take two places for one, or one place for two."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from agent.cluster.levels_rules import HOSTNAME
from agent.cluster.node import ClusterNode


@dataclass(frozen=True, slots=True, kw_only=True)
class DotClash:
    """Places that are one to a scheduler that joins values with dots.

    Attributes:
        key: of the level where they meet.
        name: what their values make, joined.
        paths: their values, broadest level first; two or more.
    """

    key: str
    name: str
    paths: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedValue:
    """A value that lies inside two or more places of the level above.

    Attributes:
        key, value: of the narrower level.
        parent_key, parents: of the broader one.
    """

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
    """Return the values that lie in two places at once, broad levels first.

    Either two places bear one name, as racks of two blocks do, or the levels are no hierarchy.
    KAI and Kueue tell them apart by the level above, others take them for one place. *keys* are
    the levels, broadest first; each of *nodes* has them all.
    """
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
