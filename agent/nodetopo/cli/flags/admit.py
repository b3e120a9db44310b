"""The flags of ``nodetopo admit``."""

from nodetopo.admission.merge import POLICIES, SCOPES
from nodetopo.cli.flags.source import add_source
from nodetopo.cli.parser import Parser, add_output

_EPILOG = (
    "The pods of the manifest arrive one after the other, and each gets the resources that "
    "earlier pods left. A controller gets as many replicas as fit, and is admitted if one fits. "
    "Exit status: 0 all pods are admitted, 1 a pod is rejected, 2 the manifest is unusable or the "
    "API server refuses it, 3 an input for the verdict is missing. The command reads the "
    "kubelet's settings, its state files or PodResources socket, and the running pods. It changes "
    "nothing."
)


def add(parser: Parser) -> None:
    """Add the flags."""
    parser.epilog = _EPILOG
    parser.add_argument(
        "--manifest", metavar="FILE", required=True, help="the manifest, - for stdin"
    )
    group = parser.add_argument_group("what if", "default: the kubelet's own settings")
    group.add_argument(
        "--policy",
        choices=POLICIES,
        metavar="WORD",
        help=f"topologyManagerPolicy: {', '.join(POLICIES)}",
    )
    group.add_argument(
        "--scope",
        choices=SCOPES,
        metavar="WORD",
        help=f"topologyManagerScope: {' or '.join(SCOPES)}",
    )
    add_output(parser)
    add_source(parser)
    parser.set_defaults(module="admit")
