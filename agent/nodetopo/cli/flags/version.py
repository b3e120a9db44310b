"""The flags of ``nodetopo version``."""

from nodetopo.cli.parser import Parser, add_output


def add(parser: Parser) -> None:
    """Add the flags."""
    add_output(parser)
    parser.set_defaults(module="version")
