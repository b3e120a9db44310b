"""The flags of ``nodetopo health``."""

from nodetopo.cli.flags.source import add_settings, add_source
from nodetopo.cli.parser import Parser, add_output


def add(parser: Parser) -> None:
    """Add the flags."""
    add_choice(parser)
    add_settings(parser, ("checks_file",), "checks")
    add_output(parser)
    add_source(parser)
    parser.set_defaults(module="health")


def add_choice(parser: Parser, areas: str = "nvlink, kubelet, …") -> None:
    """Add ``--all`` and ``--only``; the help of the latter names the command's *areas*."""
    parser.add_argument(
        "--all", action="store_true", help="also list the checks that pass or do not apply"
    )
    parser.add_argument(
        "--only",
        metavar="SUBJECT",
        action="append",
        default=[],
        help=f"an area ({areas}) or a code; comma-separated or repeated",
    )
