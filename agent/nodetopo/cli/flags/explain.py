"""The flags of ``nodetopo explain``."""

from nodetopo.cli.parser import Parser, add_output


def add(parser: Parser) -> None:
    """Add the flags."""
    parser.add_argument(
        "code", metavar="CODE", nargs="?", help="a code such as NVL-001 (default: list all codes)"
    )
    add_output(parser)
    parser.set_defaults(module="explain")
