"""The flags of ``nodetopo completion``."""

from nodetopo.cli.parser import Parser

SHELLS = ("bash", "zsh", "fish")


def add(parser: Parser) -> None:
    """Add the flags."""
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help=" or ".join(SHELLS))
    parser.set_defaults(module="completion")
