"""Where a command about the whole cluster has its Nodes from: the API server, or a file."""

import os
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

from agent.cli.cluster_file import found, not_usable, objects
from agent.cli.parser import Parser
from agent.cli.progress import progress
from agent.cluster.node import ClusterNode
from agent.cluster.node_metadata import cluster_node
from agent.cluster.selector import Selector, selector
from agent.config import Resolved
from agent.errors import DecodeError, InputError
from agent.kubeapi.client import Api

_HOME_CONFIG = Path("~/.kube/config")
"""Where ``kubectl`` looks at last."""


def add_cluster_source(parser: Parser) -> None:
    """Add the flags that choose the Nodes."""
    group = parser.add_argument_group("cluster", "default: the cluster that kubectl would ask")
    source = group.add_mutually_exclusive_group()
    source.add_argument(
        "--nodes",
        metavar="FILE",
        help="`kubectl get nodes -o json` (or yaml), - for stdin; nothing else is asked",
    )
    source.add_argument("--kubeconfig", metavar="FILE", help="how to reach the API server")
    group.add_argument(
        "--selector",
        metavar="K=V,…",
        default="",
        help="only the Nodes with these labels: K=V, K!=V, K, !K",
    )


def load_nodes(args: Namespace) -> tuple[ClusterNode, ...]:
    """Return the Nodes that the flags ask for, by name.

    Raises:
        InputError: the file or the selector cannot be used, or no Node is left.
        ApiUnavailable: the API server cannot be asked.
    """
    wanted = selector(args.selector)
    nodes = _from_api(args, wanted) if args.nodes is None else _from_file(args.nodes, wanted)
    if not nodes:
        where = args.nodes or "the cluster"
        cure = "check --selector" if args.selector else "check where the Nodes come from"
        raise InputError(f"no Node in {where}", cure)
    return tuple(sorted(nodes, key=lambda node: node.name))


def api(args: Namespace) -> Callable[[], Api] | None:
    """Return what connects to the API server; ``None`` where a file takes its place.

    As ``kubectl`` does, but for a pod's own account before the file in the home directory:
    ``--kubeconfig``, ``NODETOPO_KUBECONFIG``, ``KUBECONFIG``, the pod's, ``~/.kube/config``.
    """
    if args.nodes is not None:
        return None
    from agent.kubeapi.apply import connection  # noqa: PLC0415 - structlog, 0.2 s

    return connection(_kubeconfig(args.kubeconfig))


def _kubeconfig(flag: str | None) -> Path | None:
    """Return the kubeconfig to use; ``None`` for the account of the pod."""
    environment = os.environ
    settings = Resolved.of(flags={}, environment=environment).settings
    if flag is not None:
        return Path(flag)
    if settings.kubeconfig is not None:
        return settings.kubeconfig
    if environment.get("KUBECONFIG"):
        return Path(environment["KUBECONFIG"])
    home = _HOME_CONFIG.expanduser()
    return home if not environment.get("KUBERNETES_SERVICE_HOST") and home.exists() else None


def _from_api(args: Namespace, wanted: Selector) -> tuple[ClusterNode, ...]:
    from agent.publish.labels.cluster_nodes import cluster_nodes  # noqa: PLC0415 - structlog, 0.2 s

    connect = api(args)
    assert connect is not None, "called without --nodes"
    with progress("listing the Nodes"):
        return tuple(cluster_nodes(connect, str(wanted)))


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
