"""The words that complete a command line, by the parser: for the stored scripts and kubectl."""

import argparse
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from agent.machines import bundled

_FILES = ("FILE", "DIR", "PATH")
"""Metavars of options whose value is a path."""

_BASH = """\
_nodetopo() {{
  local current="${{COMP_WORDS[COMP_CWORD]}}" previous="${{COMP_WORDS[COMP_CWORD-1]}}"
  local words="" path="" at=1
  while [ "$at" -lt "$COMP_CWORD" ]; do
    case "$path ${{COMP_WORDS[at]}}" in
      {paths}) path="$path ${{COMP_WORDS[at]}}" ;;
    esac
    at=$((at + 1))
  done
  case "$path:$previous" in
{values}
    *)
      case "$path" in
{commands}
      esac ;;
  esac
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -F _nodetopo nodetopo
"""

_FISH = """\
function __nodetopo_complete
  set -l tokens (commandline -opc)
  set -l current (commandline -ct)
  set -l path ''
  for token in $tokens
    switch "$path $token"
      case {paths}
        set path "$path $token"
    end
  end
  switch "$path:$tokens[-1]"
{values}
    case '*'
      switch "$path"
{commands}
      end
  end
end
complete -c nodetopo -f -a '(__nodetopo_complete)'
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """A parser and the words that lead to it, each with a space before: `` topo matrix``."""

    path: str
    parser: argparse.ArgumentParser


def levels(parser: argparse.ArgumentParser, path: str = "") -> Iterator[Level]:
    """Yield *parser*, then all below it, each before its own children."""
    yield Level(path=path, parser=parser)
    for name, child in _children(parser).items():
        yield from levels(child, f"{path} {name}")


def body(parser: argparse.ArgumentParser, shell: str) -> str:
    """Return the script that completes *parser* in *shell*, one of :data:`SHELLS`."""
    write = _fish if shell == "fish" else _bash
    return write(tuple(levels(parser)))


def offered(parser: argparse.ArgumentParser, words: Sequence[str]) -> list[str] | None:
    """Return what may follow *words* of a command line; ``None`` for the name of a file."""
    level = _level(parser, words)
    for action in level.parser._actions:  # noqa: SLF001 - argparse has no public way
        if words and words[-1] in action.option_strings and action.nargs != 0:
            return None if action.metavar in _FILES else _choices(action)
    return _words(level)


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


def _words(level: Level) -> list[str]:
    """Return the commands, options and fixed arguments of *level*."""
    words = list(_children(level.parser))
    for action in level.parser._actions:  # noqa: SLF001 - as above
        if action.help != argparse.SUPPRESS:
            words += action.option_strings
        if not action.option_strings and action.nargs is None:
            words += map(str, action.choices or ())
    return words


def _choices(action: argparse.Action) -> list[str]:

    if "--machine" in action.option_strings:
        return list(bundled.names())
    return list(map(str, action.choices or ()))


def _valued(level: Level) -> Iterator[tuple[Sequence[str], list[str] | None]]:
    """Yield the options of *level* that take a value: their names and choices, ``None`` a path."""
    for action in level.parser._actions:  # noqa: SLF001 - as above
        if action.option_strings and action.nargs != 0:
            yield (
                action.option_strings,
                None if action.metavar in _FILES else _choices(action),
            )


def _bash(found: Sequence[Level]) -> str:
    commands, values = [], []
    for level in found:
        for flags, choices in _valued(level):
            # One line for each option that takes a value: its choices, or a file name.
            patterns = "|".join(f'"{level.path}:{flag}"' for flag in flags)
            choose = 'COMPREPLY=($(compgen -f -- "$current")); return'
            if choices is not None:
                choose = f"words={shlex.quote(' '.join(choices))}"
            values.append(f"    {patterns}) {choose} ;;")
        commands.append(f'        "{level.path}") words={shlex.quote(" ".join(_words(level)))} ;;')
    return _BASH.format(
        paths="|".join(f'"{level.path}"' for level in found if level.path),
        values="\n".join(values),
        commands="\n".join(commands),
    )


def _fish(found: Sequence[Level]) -> str:
    commands, values = [], []
    for level in found:
        for flags, choices in _valued(level):
            patterns = " ".join(f"'{level.path}:{flag}'" for flag in flags)
            choose = "__fish_complete_path $current"
            if choices is not None:
                choose = f"printf '%s\\n' {' '.join(choices)}" if choices else "true"
            values.append(f"    case {patterns}\n      {choose}")
        words = " ".join(_words(level)) or "''"
        commands.append(f"        case '{level.path}'\n          printf '%s\\n' {words}")
    return _FISH.format(
        paths=" ".join(f"'{level.path}'" for level in found if level.path),
        values="\n".join(values),
        commands="\n".join(commands),
    )


def _children(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    children: dict[str, argparse.ArgumentParser] = {}
    for action in parser._actions:  # noqa: SLF001 - argparse has no public way to list them
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - same
            children |= action.choices
    return children
