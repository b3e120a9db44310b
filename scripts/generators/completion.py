"""The completion scripts, made from the parser."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from agent.cli.completion import STORED
from agent.cli.main import parser
from agent.cli.words import body


def made() -> Mapping[Path, str]:
    """Return the scripts; two shells share one."""
    whole = parser()
    return {path: body(whole, shell) for shell, path in STORED.items()}


def owned() -> Iterable[Path]:
    """Return the stored scripts."""
    return STORED.values()
