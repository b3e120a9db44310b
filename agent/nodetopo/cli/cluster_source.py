"""Where a command about the whole cluster has its Nodes from: the API server, or a file."""

from argparse import Namespace
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import yaml

from nodetopo.cli.files import read_text
from nodetopo.cli.output import progress
from nodetopo.cli.source import settings
from nodetopo.errors import DecodeError, InputError, NothingFound
from nodetopo.formats.yaml import YAML_ERRORS
from nodetopo.model import strict_json
from nodetopo.tools.cluster.kinds import Selector, selector
from nodetopo.tools.cluster.node import ClusterNode, cluster_node

if TYPE_CHECKING:  # a file needs no API server
    from nodetopo.cli.cluster_api import ClusterApi

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


def objects(name: str) -> Iterator[tuple[str, Any]]:
    """Yield each Kubernetes object in the file *name* (``-``: standard input) with its path in it.

    Takes what ``kubectl`` prints: one object, a List of them, several YAML documents.

    Raises:
        InputError: unreadable, too large, too deep, or neither JSON nor YAML.
    """
    documents = _documents(name, read_text(name, most=MAX_JSON_BYTES))
    for number, document in enumerate(documents):
        at = "" if len(documents) == 1 else f"document {number + 1}"
        if not isinstance(document, dict):
            raise not_usable(name, DecodeError(at, f"expected an object, found {found(document)}"))
        if "items" not in document:
            yield at, document
            continue
        items = document["items"]
        at = f"{at}.items" if at else "items"
        if items is None:
            continue
        if not isinstance(items, list):
            raise not_usable(name, DecodeError(at, f"expected a list, found {found(items)}"))
        yield from ((f"{at}[{position}]", item) for position, item in enumerate(items))


def not_usable(name: str, error: DecodeError) -> InputError:
    """Return the error for the file *name* with the invalid content described by *error*."""
    return InputError(f"{name}: {error.cause}", error.cure or _CURE)


def found(value: object) -> str:
    """Return in a word what *value* is, for a message."""
    names = {dict: "an object", list: "a list", type(None): "nothing"}
    return names.get(type(value), repr(value)[:60])


def _documents(name: str, text: str) -> list[Any]:
    if text.lstrip().startswith("{"):
        if sum(map(text.count, ",[{")) > MAX_VALUES:
            raise InputError(f"{name}: more than {MAX_VALUES:,} values", _CURE)
        try:
            return [strict_json.loads(text, may_repeat=True)]
        except RecursionError:
            raise InputError(f"{name}: nested too deeply", _CURE) from None
        except ValueError as error:
            raise InputError(f"{name}: not JSON: {error}", _CURE) from None
    if len(text) > MAX_YAML_BYTES:
        raise InputError(f"{name}: {len(text) >> 20} MiB are too much as YAML", _CURE)
    documents = _yaml(name, text)
    if not documents:
        raise InputError(f"{name} is empty", _CURE)
    return documents


def _yaml(name: str, text: str) -> list[Any]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        depth = 0
        for event in yaml.parse(text, Loader=loader):
            # kubectl writes no aliases; with them a small file could expand to a huge one.
            if isinstance(event, yaml.AliasEvent):
                raise InputError(f"{name}: not from kubectl: the alias *{event.anchor}", _CURE)
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if depth > MAX_DEPTH:
                raise InputError(f"{name}: nested deeper than {MAX_DEPTH} levels", _CURE)
        documents = yaml.load_all(text, Loader=loader)
        return [document for document in documents if document is not None]
    except (yaml.YAMLError, *YAML_ERRORS) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{name}: not YAML: {reason}", _CURE) from None


def load_nodes(args: Namespace) -> tuple[ClusterNode, ...]:
    """Return the Nodes selected by the flags, by name.

    Raises:
        NothingFound: there is no Node at all.
        InputError: the file or the selector cannot be used, or the selector leaves no Node.
        ApiUnavailable: the API server cannot be asked.
    """
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


def api(args: Namespace) -> "ClusterApi | None":
    """Return the API server; ``None`` where a file takes its place."""
    return server(args) if args.nodes is None else None


def server(args: Namespace) -> "ClusterApi":
    """Return the API server."""
    from nodetopo.cli.cluster_api import ClusterApi  # noqa: PLC0415 - structlog, 0.2 s

    return ClusterApi(settings(args).kubeconfig)


def _from_file(name: str, wanted: Selector) -> tuple[ClusterNode, ...]:
    seen: dict[str, str] = {}
    nodes = []
    with progress(f"reading {name}"):
        for at, item in objects(name):
            node = _node(name, at, item)
            if node.name in seen:
                problem = f"a second Node {node.name!r}, the first is {seen[node.name]}"
                raise not_usable(name, DecodeError(at, problem))
            seen[node.name] = at
            nodes.append(node)
    return wanted.select(nodes)


def _node(name: str, at: str, item: object) -> ClusterNode:
    if not isinstance(item, dict):
        raise not_usable(name, DecodeError(at, f"expected a Node, found {found(item)}"))
    kind = item.get("kind", "Node")
    if kind != "Node":
        raise not_usable(name, DecodeError(at, f"expected a Node, found the kind {kind!r}"))
    try:
        return cluster_node(item.get("metadata"))
    except DecodeError as error:
        inner = error.under("metadata")
        raise not_usable(name, inner.under(at) if at else inner) from None
