"""Take everything of ours away again, and say what it was; for an uninstall."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from agent.cluster.kinds import Kind
from agent.cluster.node import ClusterNode, cluster_node
from agent.errors import AgentError, ApiUnavailable, DecodeError
from agent.kubeapi.apply import FIELD_MANAGER, Connect, labelled
from agent.kubeapi.lists import (
    NotAllowed,
    NotServed,
    is_served,
    pages_of_metadata,
    pages_of_objects,
)
from agent.publish.labels.output import NOTHING, LabelOutput

# The Nodes of the cluster, for a person's command only.
#
# Their metadata is some 7 KB each, 30 MB for 5,000, a third of what whole objects take. The daemon
# never asks, and has no right to list.

NODES = "/api/v1/nodes"


def cluster_nodes(connect: Connect, selector: str = "") -> Iterator[ClusterNode]:
    """Yield every Node, or those that *selector* (a ``labelSelector``) asks for.

    Metadata only, 500 Nodes an answer, in the order of the API server.

    Raises:
        ApiUnavailable: they cannot be listed, or what came are no Nodes.
    """
    query = {"labelSelector": selector} if selector else {}
    for metadata in pages_of_metadata(connect, NODES, query):
        try:
            yield cluster_node(metadata)
        except DecodeError as error:
            name = metadata.get("name")
            raise ApiUnavailable(f"GET {connect().host}{NODES}: {name}: {error}") from None


# Which Nodes of the cluster have labels of ours; for a person's command only.


def nodes_with_labels(connect: Connect) -> Iterator[str]:
    """Yield the name of every Node that has a label of ours, a page of Nodes at a time.

    Expensive for the API server of a large cluster, so for a person's command only: 5,000 Nodes
    are an answer of some 30 MB, and the daemon has no right to list.

    Raises:
        ApiUnavailable: they cannot be listed.
    """
    for metadata in pages_of_metadata(connect, NODES, {}):
        if labelled(metadata, FIELD_MANAGER).owned:
            yield str(metadata.get("name"))


# The objects by which schedulers are told of levels and gangs, for a person's command only.


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleaned:
    """What was found in one place.

    Attributes:
        output, place: which one.
        labels: ours that were there, and are gone unless *problem* says otherwise.
        is_there: whether there was anything of ours, if only an empty file.
        problem: why it could not be read or taken away; ``None`` where that went well.
    """

    output: str
    place: str
    labels: Mapping[str, str]
    is_there: bool
    problem: str | None = None


def clean(outputs: Iterable[LabelOutput], *, is_dry: bool) -> Iterator[Cleaned]:
    """Take what is ours from each of *outputs*, or with *is_dry* only look; one may fail alone."""
    for output in outputs:
        try:
            found = output.changes(NOTHING, complete=True) if is_dry else output.remove()
        except AgentError as error:
            yield Cleaned(
                output=output.name,
                place=output.place,
                labels={},
                is_there=False,
                problem=str(error),
            )
        else:
            yield Cleaned(
                output=output.name,
                place=output.place,
                labels=found.removed,
                is_there=found.is_there,
            )
