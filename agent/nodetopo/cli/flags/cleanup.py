"""The flags of ``nodetopo cleanup``."""

from nodetopo.cli.flags.labels import add_places
from nodetopo.cli.flags.source import add_node
from nodetopo.cli.parser import Parser, add_flags, add_output

_EPILOG = (
    "For an uninstall. Delete the DaemonSet first, otherwise it restores everything. The command "
    "removes only the labels that nodetopo applied to the Node, by their field manager. It "
    "removes NFD's feature file and the NodeFeature object as a whole."
)


def add(parser: Parser) -> None:
    """Add the flags."""
    parser.epilog = _EPILOG
    add_flags(
        parser,
        """
    --dry-run  show the removals, remove nothing
    --all-nodes  remove the labels of every Node, and nothing else
    """,
    )
    add_output(parser)
    add_places(parser)
    add_node(parser)
    parser.set_defaults(module="cleanup")
