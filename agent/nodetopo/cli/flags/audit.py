"""The flags of ``nodetopo audit``."""

from nodetopo.cli.flags.health import add_choice
from nodetopo.cli.flags.source import add_settings, add_source
from nodetopo.cli.parser import Parser, add_output


def add(parser: Parser) -> None:
    """Add the flags."""
    add_choice(parser)
    add_settings(parser, ("checks_file",), "checks")
    pods = parser.add_mutually_exclusive_group()
    pods.add_argument("--pod", metavar="NS/NAME", help="check this pod only")
    pods.add_argument("--manifest", metavar="FILE", help="check the pods of a manifest")
    add_output(parser)
    add_source(parser)
    parser.set_defaults(module="audit")
