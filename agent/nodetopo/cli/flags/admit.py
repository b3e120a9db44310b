"""The flags of ``nodetopo admit``."""

from nodetopo.admission.merge import POLICIES, SCOPES
from nodetopo.cli.flags.source import add_source
from nodetopo.cli.parser import Parser, add_output

_EPILOG = (
    "The pods of the manifest come one after the other; each finds what those before it left. "
    "Of a controller as many replicas come as fit; it is admitted if one does. Exit status: 0 all "
    "are admitted, 1 one is rejected, 2 the manifest cannot be used, or the API server refuses it, "
    "3 something is missing for a verdict. It takes the kubelet's settings, its state files or "
    "PodResources socket, and the running pods; nothing is changed."
)


def add(parser: Parser) -> None:
    """Add the flags."""
    parser.epilog = _EPILOG
    parser.add_argument(
        "--manifest", metavar="FILE", required=True, help="the pods to ask about, - for stdin"
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
