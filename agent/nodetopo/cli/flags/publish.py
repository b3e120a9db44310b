"""The flags of ``nodetopo publish``."""

from nodetopo.cli.flags.labels import add_places, add_rules
from nodetopo.cli.flags.source import add_source
from nodetopo.cli.parser import Parser, add_output

_EPILOG = (
    "For a node without the daemon, as a job. One scan removes nothing: a label that it does not "
    "give stays, marked with ?, until the daemon has seen that twice."
)


def add(parser: Parser) -> None:
    """Add the flags."""
    parser.epilog = _EPILOG
    parser.add_argument("--dry-run", action="store_true", help="show the changes, write nothing")
    add_output(parser)
    add_places(parser)
    add_rules(parser, "publish_clique", "topology_levels")
    add_source(parser)
    parser.set_defaults(module="publish")
