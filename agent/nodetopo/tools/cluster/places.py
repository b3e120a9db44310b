"""The places that the values of levels make of a cluster: zones, racks, NVLink partitions."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from nodetopo.components.labels.levels import digest
from nodetopo.formats.names import DNS_NAME
from nodetopo.tools.cluster.node import ClusterNode

_DNS = re.compile(DNS_NAME)
_DIGEST_LENGTH = 17
"""``x`` and 16 hex digits."""


class LevelPlace(Struct, frozen=True, kw_only=True):
    """Nodes that share the values of a level and of all broader ones."""

    key: str  # of the level
    path: tuple[str, ...]  # values, broadest level first, this one last
    nodes: tuple[ClusterNode, ...]  # by name


def places(nodes: Iterable[ClusterNode], keys: Sequence[str]) -> tuple[LevelPlace, ...]:
    """Return every place of every level, broad levels first, then by values.

    *keys* are the levels, broadest first; each of *nodes* has them all.
    """
    found: dict[tuple[str, ...], list[ClusterNode]] = {}
    for node in sorted(nodes, key=lambda one: one.name):
        path = tuple(node.labels[key] for key in keys)
        for depth in range(1, len(keys) + 1):
            found.setdefault(path[:depth], []).append(node)
    return tuple(
        LevelPlace(key=keys[len(path) - 1], path=path, nodes=tuple(found[path]))
        for path in sorted(found, key=lambda one: (len(one), one))
    )


def inner(found: Iterable[LevelPlace]) -> Mapping[tuple[str, ...], tuple[LevelPlace, ...]]:
    """Return the places directly inside each path, in the order of *found*; ``()`` is the whole."""
    inside: dict[tuple[str, ...], list[LevelPlace]] = {}
    for place in found:
        inside.setdefault(place.path[:-1], []).append(place)
    return {path: tuple(inner_ones) for path, inner_ones in inside.items()}


def telling(nodes: Sequence[ClusterNode], keys: Sequence[str]) -> tuple[str, ...]:
    """Return the *keys* that divide the nodes further than the broader ones before them."""
    kept: tuple[str, ...] = ()
    count = 1
    for key in keys:
        divided = len({tuple(node.labels[level] for level in (*kept, key)) for node in nodes})
        if divided > count:
            kept, count = (*kept, key), divided
    return kept


def place_names(
    found: Sequence[LevelPlace], stem: str, limit: int
) -> Mapping[tuple[str, ...], str]:
    """Return a DNS name for each path, of up to *limit* characters and no two alike.

    ``<stem>-<level>-<value>`` where that will do, a digest of the path in place of the value
    otherwise; the same for the same places in any order.
    """
    plain = {place.path: f"{_head(place, stem)}-{_lower(place.path[-1])}" for place in found}
    count = Counter(plain.values())
    names: dict[tuple[str, ...], str] = {}
    for place in found:
        name = plain[place.path]
        if count[name] > 1 or len(name) > limit or not is_dns_name(name):
            # With its length, so that no character of a value can pass for the end of one.
            values = "".join(f"{len(value)}:{value}" for value in place.path)
            head = _head(place, stem)[: limit - _DIGEST_LENGTH - 1].rstrip("-.")
            name = f"{head}-{digest(values)}"
        names[place.path] = name
    return names


def is_dns_name(name: str) -> bool:
    """Return whether *name* is a DNS subdomain, as required for most objects' names."""
    return _DNS.fullmatch(name) is not None


def _head(place: LevelPlace, stem: str) -> str:
    level = _lower(place.key.rpartition("/")[2]).replace(".", "-")
    return f"{stem}-{level}" if stem else level


def _lower(name: str) -> str:
    return name.lower().replace("_", "-")
