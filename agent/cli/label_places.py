"""What `publish`, `cleanup` and `labels` share: the flags that say which labels, and where."""

import os
from argparse import Namespace

from agent.cli.parser import Parser
from agent.cli.source import add_settings, given
from agent.config import Resolved, Settings

_PLACES = ("label_outputs", "nfd_file", "namespace", "kubeconfig")
_RULES = ("label_prefix", "mig_strategy", "time_slicing", "topology_levels_file")


def add_places(parser: Parser) -> None:
    """Add the flags that choose outputs."""
    add_settings(parser, _PLACES, "outputs")


def add_rules(parser: Parser, *more: str) -> None:
    """Add the flags that labels are made by, and those of the settings *more*."""
    add_settings(parser, (*_RULES, *more), "labels")


def resolved(args: Namespace) -> Resolved:
    """Return the daemon's settings, as flags and its variables give them.

    Raises:
        InputError: one of them does not do.
    """
    flags = {name: value for name, value in given(args).items() if value is not None}
    return Resolved.of(flags=flags, environment=os.environ)


def settings(args: Namespace) -> Settings:
    """Return the daemon's settings, as flags and its variables give them.

    Raises:
        InputError: one of them does not do.
    """
    return resolved(args).settings
