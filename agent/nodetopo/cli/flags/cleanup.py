"""The flags of ``nodetopo cleanup``."""

from nodetopo.cli.flags.labels import add_places
from nodetopo.cli.flags.source import add_node
from nodetopo.cli.parser import Parser, add_output

_EPILOG = (
    "For an uninstall: take the DaemonSet away first, or it puts everything back. From the Node "
    "go the labels that this program applied, found by their field manager, and no others; NFD's "
    "feature file and the NodeFeature object go as a whole."
)


def add(parser: Parser) -> None:
    """Add the flags."""
    parser.epilog = _EPILOG
    parser.add_argument("--dry-run", action="store_true", help="show what would go, remove nothing")
    parser.add_argument(
        "--all-nodes", action="store_true", help="the labels of every Node, and nothing else"
    )
    add_output(parser)
    add_places(parser)
    add_node(parser)
    parser.set_defaults(module="cleanup")
