"""The completion scripts, made from the parser."""

import argparse
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from nodetopo.cli.completion import STORED
from nodetopo.cli.main import parser
from nodetopo.cli.words import FILES, Level, choices_of, levels, words_of

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


def made() -> Mapping[Path, str]:
    """Return the scripts; two shells share one."""
    whole = parser()
    return {path: body(whole, shell) for shell, path in STORED.items()}


def owned() -> Iterable[Path]:
    """Return the stored scripts."""
    return STORED.values()


def body(parser: argparse.ArgumentParser, shell: str) -> str:
    """Return the script that completes *parser* in *shell*, one of :data:`SHELLS`."""
    write = _fish if shell == "fish" else _bash
    return write(tuple(levels(parser)))


def _valued(level: Level) -> Iterator[tuple[Sequence[str], list[str] | None]]:
    """Yield the options of *level* that take a value: their names and choices, ``None`` a path."""
    for action in level.parser._actions:  # noqa: SLF001 - as above
        if action.option_strings and action.nargs != 0:
            yield (
                action.option_strings,
                None if action.metavar in FILES else choices_of(action),
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
        words = shlex.quote(" ".join(words_of(level)))
        commands.append(f'        "{level.path}") words={words} ;;')
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
        words = " ".join(words_of(level)) or "''"
        commands.append(f"        case '{level.path}'\n          printf '%s\\n' {words}")
    return _FISH.format(
        paths=" ".join(f"'{level.path}'" for level in found if level.path),
        values="\n".join(values),
        commands="\n".join(commands),
    )
