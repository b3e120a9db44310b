"""The flags of ``nodetopo publish``."""

from nodetopo.cli.flags.labels import add_places, add_rules
from nodetopo.cli.flags.source import add_source
from nodetopo.cli.parser import Parser, add_flags, add_output

_EPILOG = (
    "For a node without the daemon, for example as a Job. One scan removes no labels: a label "
    "without a value in this scan stays, marked with ?, until the daemon confirms it in two "
    "scans."
)


def add(parser: Parser) -> None:
    """Add the flags."""
    parser.epilog = _EPILOG
    add_flags(parser, "--dry-run  show the changes, write nothing")
    add_output(parser)
    add_places(parser)
    add_rules(parser, "publish_clique", "topology_levels")
    add_source(parser)
    parser.set_defaults(module="publish")
