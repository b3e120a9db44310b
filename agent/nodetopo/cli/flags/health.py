"""The flags of ``nodetopo health``."""

from nodetopo.cli.flags.source import add_settings, add_source
from nodetopo.cli.parser import Parser, add_flags, add_output


def add(parser: Parser) -> None:
    """Add the flags."""
    add_choice(parser)
    add_flags(
        parser,
        """
    --clear GPU*  end the running daemon's verdict on a GPU, by index, name, UUID or PCI address;
        comma-separated or repeated; `all` for every GPU
    """,
    )
    parser.add_argument(
        "--dry-run", dest="only_looks", action="store_true", help="with --clear: change nothing"
    )
    add_flags(parser, "--yes  with --clear: confirm `all`, and GPUs that are due for replacement")
    add_settings(parser, ("checks_file",), "checks")
    add_settings(parser, ("health_file", "device_plugin_dir"), "the running daemon, for --clear")
    add_output(parser)
    add_source(parser)
    parser.set_defaults(module="health")


def add_choice(parser: Parser, areas: str = "nvlink, kubelet, …") -> None:
    """Add ``--all`` and ``--only``; the help of the latter names the command's *areas*."""
    add_flags(
        parser,
        f"""
    --all  also list the checks that pass or do not apply
    --only SUBJECT*  an area ({areas}) or a code; comma-separated or repeated
    """,
    )
