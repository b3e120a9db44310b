"""Where a command about the whole cluster has its Nodes from: API server, file, bundled cluster."""

from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import yaml

from nodetopo.cli.files import read_text, reading
from nodetopo.cli.output import note, progress
from nodetopo.cli.source import settings
from nodetopo.errors import DecodeError, InputError, NothingFound
from nodetopo.formats.signatures import LOOKED_AT, Reader
from nodetopo.formats.yaml import YAML_ERRORS
from nodetopo.model import strict_json
from nodetopo.tools.cluster.kinds import Selector, selector
from nodetopo.tools.cluster.node import ClusterNode, cluster_node

if TYPE_CHECKING:  # a file needs no API server
    from nodetopo.cli.cluster_api import ClusterApi
    from nodetopo.tools.cluster.simulated import SimulatedCluster

T = TypeVar("T")

# What ``kubectl get … -o json|yaml`` wrote, read back with caps on size and depth.

MAX_JSON_BYTES = 256 << 20
"""5,000 Nodes with all that kubelets write into them are some 150 MB of indented JSON."""


MAX_YAML_BYTES = 16 << 20
"""libyaml reads some 2 MB a second; ten times that time is worth a word."""


MAX_VALUES = 8_000_000
"""Most commas and opening brackets of JSON, counted before anything is built: some 800 MiB of
memory. Those Nodes have 3 million."""


MAX_DEPTH = 32
"""Levels of a document; a Node's managedFields go 12 deep in a List."""


_CURE = "save it with `kubectl get … -o json`"


def each_object(
    name: str, reader: Reader, what: str, read: Callable[[str, dict[str, Any]], T]
) -> list[T]:
    """Return the results of *read* for each Kubernetes object in the file *name* (``-``: stdin).

    Takes what ``kubectl`` prints: one object, a List of them, several YAML documents.

    Args:
        what: an object that *reader* expects, such as ``a Node``, for its errors.
        read: gets the object's path in the file, and the object; raises DecodeError with a path
            from the file on.
    """
    text = read_text(name, most=MAX_JSON_BYTES)
    with progress(f"reading {name}"), reading(name, text[:LOOKED_AT], reader, _CURE):
        documents = _documents(text)
        del text  # before the objects are built
        return [read(at, item) for at, item in _objects(documents, what)]


def _objects(documents: Sequence[Any], what: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for number, document in enumerate(documents):
        at = "" if len(documents) == 1 else f"document {number + 1}"
        if not isinstance(document, dict):
            raise DecodeError(at, f"expected an object, found {found(document)}")
        if "items" not in document:
            yield at, document
            continue
        items = document["items"]
        at = f"{at}.items" if at else "items"
        if not isinstance(items, list | None):
            raise DecodeError(at, f"expected a list, found {found(items)}")
        for position, item in enumerate(items or ()):
            if not isinstance(item, dict):
                raise DecodeError(f"{at}[{position}]", f"expected {what}, found {found(item)}")
            yield f"{at}[{position}]", item


def found(value: object) -> str:
    """Return in a word what *value* is, for a message."""
    names = {dict: "an object", list: "a list", type(None): "nothing"}
    return names.get(type(value), repr(value)[:60])


def _documents(text: str) -> list[Any]:
    if text.lstrip().startswith("{"):
        if sum(map(text.count, ",[{")) > MAX_VALUES:
            raise InputError(f"more than {MAX_VALUES:,} values", _CURE)
        try:
            return [strict_json.loads(text, may_repeat=True)]
        except RecursionError:
            raise InputError("nested too deeply", _CURE) from None
        except ValueError as error:
            raise InputError(f"not JSON: {error}", _CURE) from None
    if len(text) > MAX_YAML_BYTES:
        raise InputError(f"{len(text) >> 20} MiB are too much as YAML", _CURE)
    documents = _yaml(text)
    if not documents:
        raise InputError("it is empty", _CURE)
    return documents


def _yaml(text: str) -> list[Any]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        depth = 0
        for event in yaml.parse(text, Loader=loader):
            # kubectl writes no aliases; with them a small file could expand to a huge one.
            if isinstance(event, yaml.AliasEvent):
                raise InputError(f"not from kubectl: the alias *{event.anchor}", _CURE)
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if depth > MAX_DEPTH:
                raise InputError(f"nested deeper than {MAX_DEPTH} levels", _CURE)
        documents = yaml.load_all(text, Loader=loader)
        return [document for document in documents if document is not None]
    except (yaml.YAMLError, *YAML_ERRORS) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"not YAML: {reason}", _CURE) from None


def load_nodes(args: Namespace) -> tuple[ClusterNode, ...]:
    """Return the Nodes selected by the flags, by name."""
    wanted = selector(args.selector)
    if args.nodes is None:
        nodes = server(args).nodes(str(wanted))
    else:
        nodes = _from_file(args.nodes, wanted)
    if not nodes:
        where = args.nodes or "the cluster"
        if args.selector:
            raise InputError(f"no Node in {where}", "check --selector")
        raise NothingFound(f"no Node in {where}", "check where the Nodes come from")
    return tuple(sorted(nodes, key=lambda node: node.name))


def api(args: Namespace) -> "ClusterApi | SimulatedCluster | None":
    """Return the API server; ``None`` where a file takes its place."""
    return server(args) if args.nodes is None else None


def server(args: Namespace) -> "ClusterApi | SimulatedCluster":
    """Return the API server, or the bundled cluster that stands in for one.

    Raises:
        InputError: no cluster of that name is bundled.
    """
    if args.cluster is not None:
        return _simulated(args)
    from nodetopo.cli.cluster_api import ClusterApi  # noqa: PLC0415 - structlog, 0.2 s

    return ClusterApi(settings(args).kubeconfig)


def _simulated(args: Namespace) -> "SimulatedCluster":
    """Return the bundled cluster; the first call says on standard error that it is simulated."""
    from nodetopo.components.labels.catalogue import labels  # noqa: PLC0415 - few commands need it
    from nodetopo.components.labels.label_rules import label_rules  # noqa: PLC0415
    from nodetopo.tools.cluster.simulated import SimulatedCluster, layout  # noqa: PLC0415

    if (made := getattr(args, "simulated", None)) is not None:
        found: SimulatedCluster = made
        return found
    name, chosen = layout(args.cluster)
    wanted = settings(args)
    found = SimulatedCluster(
        name=name,
        layout=chosen,
        label=lambda snapshot, tiers: labels(snapshot, label_rules(wanted, tiers)),
        prefix=wanted.label_prefix,
    )
    args.simulated = found  # computed once for all that a command asks
    note("simulated", f"cluster {name}: {chosen.about}. None of it exists.")
    return found


def _from_file(name: str, wanted: Selector) -> tuple[ClusterNode, ...]:
    seen: dict[str, str] = {}

    def read(at: str, item: dict[str, Any]) -> ClusterNode:
        kind = item.get("kind", "Node")
        if kind != "Node":
            raise DecodeError(at, f"expected a Node, found the kind {kind!r}")
        try:
            node = cluster_node(item.get("metadata"))
        except DecodeError as error:
            inner = error.under("metadata")
            raise inner.under(at) if at else inner from None
        if node.name in seen:
            raise DecodeError(at, f"a second Node {node.name!r}, the first is {seen[node.name]}")
        seen[node.name] = at
        return node

    return wanted.select(each_object(name, Reader.NODES, "a Node", read))
