"""The flags of ``nodetopo doctor``."""

from nodetopo.cli.flags.cluster import add_cluster_source
from nodetopo.cli.flags.health import add_choice
from nodetopo.cli.flags.source import add_node, add_settings
from nodetopo.cli.parser import Parser, add_flags, add_output

_EPILOG = (
    "Checks the Nodes whose labels show GPUs, or the Nodes that --selector chooses. Levels come "
    "from --levels, otherwise from the cluster's KAI and Kueue Topologies, otherwise from the "
    "labels. Reads each kind of object once, 500 at a time, and writes nothing."
)


def add(parser: Parser) -> None:
    """Add the flags."""
    parser.epilog = _EPILOG
    add_choice(parser, "levels, owners, nvlink, gangs, dra")
    add_flags(
        parser,
        """
    --levels KEY,…=  label keys, broadest first
    --group SIZE@KEY*  a gang: 18@KEY, nodes within one KEY; 64x1@KEY, pods of one GPU; repeatable
    --objects FILE*  gangs and Topologies as `kubectl get … -A -o json` prints them; repeatable
    --node-snapshot FILE*  snapshot of a node of the cluster, to compare with its labels; repeatable
    --live  compare the labels of this node with its NVML
    """,
    )
    add_output(parser)
    add_cluster_source(parser)
    add_settings(parser, ("label_prefix",), "labels")
    add_node(parser, without=("kubeconfig",))  # the cluster's kubeconfig
    parser.set_defaults(module="doctor")
