"""Removes everything of ours for an uninstall, and lists Nodes and objects of the cluster.

Listing is only for interactive commands: 5,000 Nodes are an answer of some 30 MB even as metadata,
a third of the whole objects. The daemon never lists, and has no permission to.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec import Struct

from nodetopo.components.labels.outputs.output import NOTHING, LabelOutput
from nodetopo.errors import AgentError, ApiUnavailable, DecodeError
from nodetopo.kubeapi.apply import FIELD_MANAGER, Connect, labelled
from nodetopo.kubeapi.lists import NotAllowed, NotServed, is_served, list_metadata, list_objects
from nodetopo.tools.cluster.kinds import ObjectKind
from nodetopo.tools.cluster.node import ClusterNode, cluster_node

NODES = "/api/v1/nodes"


class Cleaned(Struct, frozen=True, kw_only=True):
    """The labels removed from one output."""

    # output, place: identify the output
    output: str
    place: str
    labels: Mapping[str, str]  # ours, removed unless there is a `problem`
    is_there: bool  # the output had anything of ours, if only an empty file
    problem: str | None = None  # why it could not be read or removed; None after a success


def clean(outputs: Iterable[LabelOutput], *, is_dry: bool) -> Iterator[Cleaned]:
    """Remove everything of ours from each of *outputs*, or with *is_dry* only look.

    A failed output does not stop the others.
    """
    for output in outputs:
        try:
            changes = output.changes(NOTHING, complete=True) if is_dry else output.remove()
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
                labels=changes.removed,
                is_there=changes.is_there,
            )


def nodes_with_labels(connect: Connect) -> Iterator[str]:
    """Yield the name of every Node with one of our labels, a page of Nodes at a time."""
    for metadata in list_metadata(connect, NODES, {}):
        if labelled(metadata, FIELD_MANAGER).owned:
            yield str(metadata.get("name"))


def cluster_nodes(connect: Connect, selector: str = "") -> Iterator[ClusterNode]:
    """Yield every Node, or those selected by *selector* (a ``labelSelector``).

    Metadata only, some 7 KB each, 500 Nodes an answer, in the order of the API server.
    """
    query = {"labelSelector": selector} if selector else {}
    for metadata in list_metadata(connect, NODES, query):
        try:
            yield cluster_node(metadata)
        except DecodeError as error:
            name = metadata.get("name")
            raise ApiUnavailable(f"GET {connect().host}{NODES}: {name}: {error}") from None


class ClusterObjects(Struct, frozen=True, kw_only=True):
    """The objects of some kinds, such as schedulers' levels and gangs."""

    found: tuple[tuple[ObjectKind, Mapping[str, Any]], ...]
    # Why a kind could not be listed; a missing kind is not a problem.
    problems: Mapping[ObjectKind, str]


def cluster_objects(connect: Connect, kinds: Iterable[ObjectKind]) -> ClusterObjects:
    """Return the objects of *kinds* in all namespaces; a kind that fails does not stop the others.

    Each kind is read page by page, in the newest version that is served.
    """
    found: list[tuple[ObjectKind, Mapping[str, Any]]] = []
    problems = {}
    for kind in kinds:
        try:
            for path in kind.paths():
                try:
                    found += [(kind, body) for body in list_objects(connect, path)]
                except NotServed:
                    continue
                except NotAllowed:
                    if is_served(connect, kind.group):
                        raise
                break
        except ApiUnavailable as error:
            problems[kind] = str(error)
    return ClusterObjects(found=tuple(found), problems=problems)
