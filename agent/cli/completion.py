"""``nodetopo completion``: a shell script made from the parser itself."""

import argparse
import shlex
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass

from agent.cli.output import say
from agent.cli.parser import Parser
from agent.machines import bundled

SHELLS = ("bash", "zsh")

_SCRIPT = """\
# nodetopo completion for {shell}; load it with: source <(nodetopo completion {shell})
{prelude}_nodetopo() {{
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
_PRELUDE = {"bash": "", "zsh": "autoload -U +X bashcompinit && bashcompinit\n"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """A parser and the words that lead to it, each with a space before: `` topo matrix``."""

    path: str
    parser: argparse.ArgumentParser


def add(parser: Parser) -> None:
    """Add the flags."""
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help=" or ".join(SHELLS))
    parser.set_defaults(run=run)


def run(args: Namespace) -> int:
    """Print the script; 0."""
    from agent.cli.main import parser  # noqa: PLC0415 - the module that lists this one

    say(script(parser(), args.shell))
    return 0


def script(parser: Parser, shell: str) -> str:
    """Return the script that completes *parser* in *shell*."""
    every = list(levels(parser))
    return _SCRIPT.format(
        shell=shell,
        prelude=_PRELUDE[shell],
        paths="|".join(f'"{level.path}"' for level in every if level.path),
        values="\n".join(line for level in every for line in _value_cases(level)),
        commands="\n".join(
            f'        "{level.path}") words={shlex.quote(" ".join(_words(level)))} ;;'
            for level in every
        ),
    )


def levels(parser: argparse.ArgumentParser, path: str = "") -> Iterator[Level]:
    """Yield *parser*, then all below it, each before its own children."""
    yield Level(path=path, parser=parser)
    for name, child in _children(parser).items():
        yield from levels(child, f"{path} {name}")


def _children(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    found: dict[str, argparse.ArgumentParser] = {}
    for action in parser._actions:  # noqa: SLF001 - argparse has no public way to list them
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - same
            found |= action.choices
    return found


def _words(level: Level) -> Iterator[str]:
    yield from _children(level.parser)
    for action in level.parser._actions:  # noqa: SLF001 - same
        if action.help != argparse.SUPPRESS:
            yield from action.option_strings
        if not action.option_strings and action.nargs is None:
            yield from map(str, action.choices or ())


def _value_cases(level: Level) -> Iterator[str]:
    """Yield one line for each option that takes a value: its choices, or a file name."""
    for action in level.parser._actions:  # noqa: SLF001 - same
        if not action.option_strings or action.nargs == 0:
            continue
        patterns = "|".join(f'"{level.path}:{flag}"' for flag in action.option_strings)
        if action.metavar in ("FILE", "DIR", "PATH"):
            yield f'    {patterns}) COMPREPLY=($(compgen -f -- "$current")); return ;;'
        else:
            yield f"    {patterns}) words={shlex.quote(' '.join(_choices(action)))} ;;"


def _choices(action: argparse.Action) -> tuple[str, ...]:
    if "--machine" in action.option_strings:
        return bundled.names()
    return tuple(map(str, action.choices or ()))
