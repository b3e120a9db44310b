"""The flags of ``nodetopo labels``."""

from nodetopo.cli.flags.source import add_settings, add_source
from nodetopo.cli.parser import Parser, add_output


def add(parser: Parser) -> None:
    """Add the flags."""
    add_output(parser)
    add_source(parser)
    add_rules(parser)
    parser.set_defaults(module="labels")


def add_places(parser: Parser) -> None:
    """Add the flags of `publish` and `cleanup` that choose outputs."""
    add_settings(parser, ("label_outputs", "nfd_file", "namespace"), "outputs")


def add_rules(parser: Parser, *more: str) -> None:
    """Add the flags that decide the labels, and the settings *more*."""
    rules = ("label_prefix", "mig_strategy", "time_slicing", "topology_levels_file")
    add_settings(parser, (*rules, *more), "labels")
