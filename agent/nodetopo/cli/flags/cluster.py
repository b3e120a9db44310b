"""The flags that choose the Nodes of a cluster."""

from nodetopo.cli.flags.source import KUBECONFIG_HELP
from nodetopo.cli.parser import Parser, add_flags

CLUSTER = "--cluster NAME  a bundled, simulated cluster, see `nodetopo simulate clusters`"
"""The flag of bundled clusters."""


def add_cluster_source(parser: Parser) -> None:
    """Add the flags that choose the Nodes."""
    group = parser.add_argument_group("cluster", "default: kubectl's cluster")
    add_flags(
        group.add_mutually_exclusive_group(),
        f"""
    --nodes FILE  `kubectl get nodes -o json` (or yaml), - for stdin, instead of a cluster
    --kubeconfig FILE  {KUBECONFIG_HELP}
    {CLUSTER}
    """,
    )
    add_flags(group, "--selector K=V,…=  only the Nodes with these labels: K=V, K!=V, K, !K")
