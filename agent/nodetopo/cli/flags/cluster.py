"""The flags that choose the Nodes of a cluster."""

from typing import TYPE_CHECKING

from nodetopo.cli.flags.source import KUBECONFIG_HELP
from nodetopo.cli.parser import Parser

if TYPE_CHECKING:
    from argparse import _ActionsContainer


def add_cluster_source(parser: Parser) -> None:
    """Add the flags that choose the Nodes."""
    group = parser.add_argument_group("cluster", "default: kubectl's cluster")
    source = group.add_mutually_exclusive_group()
    source.add_argument(
        "--nodes",
        metavar="FILE",
        help="`kubectl get nodes -o json` (or yaml), - for stdin, instead of a cluster",
    )
    source.add_argument("--kubeconfig", metavar="FILE", help=KUBECONFIG_HELP)
    add_cluster(source)
    group.add_argument(
        "--selector",
        metavar="K=V,…",
        default="",
        help="only the Nodes with these labels: K=V, K!=V, K, !K",
    )


def add_cluster(source: "_ActionsContainer") -> None:
    """Add the flag of bundled clusters to *source*."""
    source.add_argument(
        "--cluster",
        metavar="NAME",
        help="a bundled, simulated cluster, see `nodetopo simulate clusters`",
    )
