"""The objects by which schedulers are told of levels and gangs, for a person's command only."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from agent.cluster.kinds import Kind
from agent.errors import ApiUnavailable
from agent.kubeapi.apply import Connect
from agent.kubeapi.lists import NotAllowed, NotServed, is_served, pages_of_objects


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterObjects:
    """What the API server has of some kinds.

    Attributes:
        found: each object with its kind.
        problems: why a kind could not be listed; a kind that is not installed is no problem.
    """

    found: tuple[tuple[Kind, Mapping[str, Any]], ...]
    problems: Mapping[Kind, str]


def cluster_objects(connect: Connect, kinds: Iterable[Kind]) -> ClusterObjects:
    """Return the objects of all namespaces of *kinds*, read page by page; a refusal is no end."""
    found: list[tuple[Kind, Mapping[str, Any]]] = []
    problems = {}
    for kind in kinds:
        try:
            found += [(kind, one) for one in _objects(connect, kind)]
        except ApiUnavailable as error:
            problems[kind] = str(error)
    return ClusterObjects(found=tuple(found), problems=problems)


def _objects(connect: Connect, kind: Kind) -> Iterator[Mapping[str, Any]]:
    """Yield the objects of *kind* in the newest version that is served."""
    for path in kind.paths():
        try:
            yield from pages_of_objects(connect, path)
        except NotServed:
            continue
        except NotAllowed:
            if is_served(connect, kind.group):
                raise
        return
