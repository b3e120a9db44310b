"""The flags of ``nodetopo explain-claim``."""

from nodetopo.cli.flags.cluster import CLUSTER
from nodetopo.cli.flags.source import KUBECONFIG_HELP
from nodetopo.cli.parser import Parser, add_flags, add_output

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
    add_flags(
        group.add_mutually_exclusive_group(),
        f"""
    --kubeconfig FILE  {KUBECONFIG_HELP}
    {CLUSTER}
    """,
    )
    add_flags(
        group,
        """
    --claim FILE  `kubectl get resourceclaim NAME -o json` (or yaml)
    --slices FILE  `kubectl get resourceslices -o json`, instead of a cluster
    --claims FILE  `kubectl get resourceclaims -A -o json`, for the devices of other claims
    """,
    )
    machine = parser.add_argument_group(
        "machine", "default: this node if the claim is on it, otherwise the machine in its slices"
    )
    add_flags(
        machine.add_mutually_exclusive_group(),
        """
    --snapshot FILE  a captured snapshot of the claim's node, or archive of `support`
    --machine NAME  a bundled machine that equals the claim's node, see `nodetopo simulate machines`
    """,
    )
    add_output(parser)
    parser.set_defaults(module="explain_claim", topo_m=None, nccl_xml=None)
