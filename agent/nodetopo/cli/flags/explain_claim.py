"""The flags of ``nodetopo explain-claim``."""

from nodetopo.cli.flags.source import KUBECONFIG_HELP
from nodetopo.cli.parser import Parser, add_output

_EPILOG = (
    "Which GPUs were free follows from the claims that exist: what claims that are gone held then "
    "counts as free. Exit status: 0 no better set of GPUs was free, 1 one was, or nothing is "
    "allocated, 2 bad usage or bad input, 3 could not tell."
)


def add(parser: Parser) -> None:
    """Add the flags."""
    parser.epilog = _EPILOG
    parser.add_argument(
        "name",
        nargs="?",
        metavar="NAMESPACE/NAME",
        help="of the ResourceClaim; a name alone is in the namespace default",
    )
    group = parser.add_argument_group("cluster", "default: the cluster that kubectl would ask")
    add = group.add_argument
    add("--kubeconfig", metavar="FILE", help=KUBECONFIG_HELP)
    add("--claim", metavar="FILE", help="`kubectl get resourceclaim NAME -o json` (or yaml)")
    add(
        "--slices", metavar="FILE", help="`kubectl get resourceslices -o json`; no cluster is asked"
    )
    add(
        "--claims", metavar="FILE", help="`kubectl get resourceclaims -A -o json`: who had the rest"
    )
    machine = parser.add_argument_group(
        "machine", "default: this node if the claim is on it, else what its slices say"
    ).add_mutually_exclusive_group()
    machine.add_argument(
        "--snapshot",
        metavar="FILE",
        help="a captured snapshot of the claim's node, or archive of `support`",
    )
    machine.add_argument(
        "--machine",
        metavar="NAME",
        help="a bundled machine like the claim's node, see `nodetopo simulate machines`",
    )
    add_output(parser)
    parser.set_defaults(module="explain_claim", topo_m=None, nccl_xml=None, rdma_topo=None)
