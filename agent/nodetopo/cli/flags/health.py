"""The flags of ``nodetopo health``."""

from nodetopo.cli.flags.source import add_settings, add_source
from nodetopo.cli.parser import Parser, add_output


def add(parser: Parser) -> None:
    """Add the flags."""
    add_choice(parser)
    parser.add_argument(
        "--clear",
        metavar="GPU",
        action="append",
        default=[],
        help="end the running daemon's verdict on a GPU, by index, name, UUID or PCI address; "
        "comma-separated or repeated; `all` for every GPU",
    )
    parser.add_argument(
        "--dry-run", dest="only_looks", action="store_true", help="with --clear: change nothing"
    )
    parser.add_argument(
        "--yes",
        action="store_true",
        help="with --clear: confirm `all`, and GPUs that are due for replacement",
    )
    add_settings(parser, ("checks_file",), "checks")
    add_settings(parser, ("health_file", "device_plugin_dir"), "the running daemon, for --clear")
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
