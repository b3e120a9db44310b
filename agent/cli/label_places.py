"""What `publish`, `cleanup` and `labels` share: the flags that say which labels, and where."""

from agent.cli.parser import Parser
from agent.cli.source import add_settings

_PLACES = ("label_outputs", "nfd_file", "namespace", "kubeconfig")
_RULES = ("label_prefix", "mig_strategy", "time_slicing", "topology_levels_file")


def add_places(parser: Parser) -> None:
    """Add the flags that choose outputs."""
    add_settings(parser, _PLACES, "outputs")


def add_rules(parser: Parser, *more: str) -> None:
    """Add the flags that labels are made by, and those of the settings *more*."""
    add_settings(parser, (*_RULES, *more), "labels")
