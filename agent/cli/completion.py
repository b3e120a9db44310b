"""``nodetopo completion``: a shell script made from the parser itself.

The body of the script is stored beside this module, because the parser of all commands imports
most of the agent. ``tests/cli/test_completion.py`` holds the two together; ``pytest
tests/cli/test_completion.py --update-golden`` writes the script.
"""

import argparse
import shlex
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from agent.cli.output import say
from agent.cli.parser import Parser

SHELLS = ("bash", "zsh")

STORED = Path(__file__).with_suffix(".sh")
"""What :func:`body` returned for the parser of this version."""

_PRELUDE = {"bash": "", "zsh": "autoload -U +X bashcompinit && bashcompinit\n"}

_BODY = """\
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


def add(parser: Parser) -> None:
    """Add the flags."""
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help=" or ".join(SHELLS))
    parser.set_defaults(run=run)


def run(args: Namespace) -> int:
    """Print the script; 0."""
    load = f"source <(nodetopo completion {args.shell})"
    head = f"# nodetopo completion for {args.shell}; load it with: {load}\n"
    say(head + _PRELUDE[args.shell] + STORED.read_text("utf-8"))
    return 0


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


def body(parser: argparse.ArgumentParser) -> str:
    """Return the script that completes *parser* in any shell of :data:`SHELLS`."""
    from agent.machines import bundled  # noqa: PLC0415 - loads the records of the model

    commands, values = [], []
    for level in levels(parser):
        words = list(_children(level.parser))
        for action in level.parser._actions:  # noqa: SLF001 - argparse has no public way
            if action.help != argparse.SUPPRESS:
                words += action.option_strings
            if not action.option_strings and action.nargs is None:
                words += map(str, action.choices or ())
            if action.option_strings and action.nargs != 0:
                # One line for each option that takes a value: its choices, or a file name.
                patterns = "|".join(f'"{level.path}:{flag}"' for flag in action.option_strings)
                if action.metavar in ("FILE", "DIR", "PATH"):
                    choose = 'COMPREPLY=($(compgen -f -- "$current")); return'
                else:
                    is_machine = "--machine" in action.option_strings
                    choices = bundled.names() if is_machine else map(str, action.choices or ())
                    choose = f"words={shlex.quote(' '.join(choices))}"
                values.append(f"    {patterns}) {choose} ;;")
        commands.append(f'        "{level.path}") words={shlex.quote(" ".join(words))} ;;')
    return _BODY.format(
        paths="|".join(f'"{level.path}"' for level in levels(parser) if level.path),
        values="\n".join(values),
        commands="\n".join(commands),
    )


def _children(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    children: dict[str, argparse.ArgumentParser] = {}
    for action in parser._actions:  # noqa: SLF001 - argparse has no public way to list them
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - same
            children |= action.choices
    return children
