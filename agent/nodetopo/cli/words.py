"""The words that complete a command line, from the parser."""

import argparse
from collections.abc import Iterator, Sequence

from msgspec import Struct

from nodetopo.machines import bundled

FILES = ("FILE", "DIR", "PATH")
"""Metavars of options whose value is a path."""


class Level(Struct, frozen=True, kw_only=True):
    """A parser and the words that lead to it, each with a space before: `` topo matrix``."""

    path: str
    parser: argparse.ArgumentParser


def levels(parser: argparse.ArgumentParser, path: str = "") -> Iterator[Level]:
    """Yield *parser*, then all below it, parents before children."""
    yield Level(path=path, parser=parser)
    for name, child in _children(parser).items():
        yield from levels(child, f"{path} {name}")


def offered(parser: argparse.ArgumentParser, words: Sequence[str]) -> list[str] | None:
    """Return the words that can follow *words*; ``None`` for the name of a file."""
    level = _level(parser, words)
    for action in level.parser._actions:  # noqa: SLF001 - argparse has no public way
        if words and words[-1] in action.option_strings and action.nargs != 0:
            return None if action.metavar in FILES else choices_of(action)
    return words_of(level)


def options_of(parser: argparse.ArgumentParser, words: Sequence[str]) -> frozenset[str]:
    """Return the options of the command in *words*, with their dashes."""
    actions = _level(parser, words).parser._actions  # noqa: SLF001 - as above
    return frozenset(name for action in actions for name in action.option_strings)


def _level(parser: argparse.ArgumentParser, words: Sequence[str]) -> Level:
    """Return the parser that *words* lead to."""
    level = Level(path="", parser=parser)
    for word in words:
        child = _children(level.parser).get(word)
        if child is not None:
            level = Level(path=f"{level.path} {word}", parser=child)
    return level


def words_of(level: Level) -> list[str]:
    """Return the commands, options and fixed arguments of *level*."""
    words = list(_children(level.parser))
    for action in level.parser._actions:  # noqa: SLF001 - as above
        if action.help != argparse.SUPPRESS:
            words += action.option_strings
        if not action.option_strings and action.nargs in (None, "*"):  # commands are listed above
            words += choices_of(action)
    return words


def choices_of(action: argparse.Action) -> list[str]:
    """Return the words that the value of *action* can be."""
    if "--machine" in action.option_strings:
        return list(bundled.names())
    if "--cluster" in action.option_strings:
        from nodetopo.tools.cluster.simulated import LAYOUTS  # noqa: PLC0415 - loads the exports

        return list(LAYOUTS)
    if action.dest == "word":
        from nodetopo.tools.explain.catalogue import names  # noqa: PLC0415 - loads every table

        return list(names())
    return list(map(str, action.choices or ()))


def _children(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    children: dict[str, argparse.ArgumentParser] = {}
    for action in parser._actions:  # noqa: SLF001 - argparse has no public way to list them
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - same
            children |= action.choices
    return children
