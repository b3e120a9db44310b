"""The flags of ``nodetopo explain-claim``."""

from nodetopo.cli.flags.cluster import add_cluster
from nodetopo.cli.flags.source import KUBECONFIG_HELP
from nodetopo.cli.parser import Parser, add_output

_EPILOG = (
    "The existing claims determine the free GPUs: devices of deleted claims count as free. Exit "
    "status: 0 no better set of GPUs was free, 1 a better set was free, or nothing is allocated, "
    "2 bad usage or bad input, 3 unknown."
)


def add(parser: Parser) -> None:
    """Add the flags."""
    parser.epilog = _EPILOG
    parser.add_argument(
        "name",
        nargs="?",
        metavar="NAMESPACE/NAME",
        help="[NAMESPACE/]NAME of the ResourceClaim (default namespace: default)",
    )
    group = parser.add_argument_group("cluster", "default: kubectl's cluster")
    add = group.add_argument
    source = group.add_mutually_exclusive_group()
    source.add_argument("--kubeconfig", metavar="FILE", help=KUBECONFIG_HELP)
    add_cluster(source)
    add("--claim", metavar="FILE", help="`kubectl get resourceclaim NAME -o json` (or yaml)")
    add(
        "--slices",
        metavar="FILE",
        help="`kubectl get resourceslices -o json`, instead of a cluster",
    )
    add(
        "--claims",
        metavar="FILE",
        help="`kubectl get resourceclaims -A -o json`, for the devices of other claims",
    )
    machine = parser.add_argument_group(
        "machine", "default: this node if the claim is on it, otherwise the machine in its slices"
    ).add_mutually_exclusive_group()
    machine.add_argument(
        "--snapshot",
        metavar="FILE",
        help="a captured snapshot of the claim's node, or archive of `support`",
    )
    machine.add_argument(
        "--machine",
        metavar="NAME",
        help="a bundled machine that equals the claim's node, see `nodetopo simulate machines`",
    )
    add_output(parser)
    parser.set_defaults(module="explain_claim", topo_m=None, nccl_xml=None)
