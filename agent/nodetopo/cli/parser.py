"""The argument parser: one-line errors, and the flags that commands share."""

import argparse
import os
import re
import textwrap
from argparse import SUPPRESS
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, ClassVar, NoReturn, TypeAlias

from nodetopo.errors import InputError, closest
from nodetopo.model.digits import number, whole_number

FORMATS = ("table", "short", "json", "yaml")

_COLUMNS = 80
"""Width of output that is not a terminal."""

_ALIKE = 0.66
"""Least similarity of a suggestion, dashes left out: `ouput` has 0.91 with `output`."""

Subparsers: TypeAlias = "argparse._SubParsersAction[Parser]"  # noqa: SLF001 - has no public name
"""The type that ``add_subparsers`` returns."""


class _HelpFormatter(argparse.HelpFormatter):
    """Breaks no line inside a word with hyphens, such as a flag or a setting's value."""

    def __init__(self, prog: str, **options: Any) -> None:
        super().__init__(prog, **{"width": columns() - 2, **options})

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False)


def columns() -> int:
    """Return the width of the terminal, as ``shutil.get_terminal_size``, which argparse calls.

    argparse makes a formatter for each argument. shutil takes 9 ms to import, most of it for
    compression.
    """
    with suppress(KeyError, ValueError):
        if (stated := int(os.environ["COLUMNS"])) > 0:
            return stated
    with suppress(OSError):  # no terminal
        return os.get_terminal_size().columns or _COLUMNS
    return _COLUMNS


class _HelpAll(argparse.Action):
    """``--help-all``: the help with every group in full."""

    def __call__(self, parser: argparse.ArgumentParser, *_rest: object) -> NoReturn:
        """Print the help and exit."""
        assert isinstance(parser, Parser)
        parser.is_in_full = True
        parser.print_help()
        parser.exit()


class Parser(argparse.ArgumentParser):
    """Raises bad usage as an :class:`InputError` instead of printing usage and exiting.

    A group of commands without a command prints its help. Help shows a collapsed group as one line,
    and ``--help-all`` in full.
    """

    # Whether settings of the daemon are flags too, for commands that accept some.
    has_settings: ClassVar[bool] = True

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"allow_abbrev": False, "formatter_class": _HelpFormatter, **options})
        self.register("type", int, whole_number)
        self.register("type", float, number)
        self.is_in_full = False  # whether help shows collapsed groups in full
        self._collapsed: dict[argparse._ArgumentGroup, str] = {}

    def collapse(self, group: argparse._ArgumentGroup, summary: str) -> None:
        """Show *summary* and the number of options in place of *group* in the short help."""
        if not self._collapsed:
            text = "show this help message with all options and exit"
            self.add_argument("--help-all", action=_HelpAll, nargs=0, default=SUPPRESS, help=text)
        self._collapsed[group] = summary

    def format_help(self) -> str:
        """Return the help; its usage line has only the arguments that a call needs."""
        formatter = self._get_formatter()
        formatter.add_usage(" ".join(self._usage()).replace("%", "%%"), (), ())
        formatter.add_text(self.description)
        for group in self._action_groups:
            formatter.start_section(group.title)
            if group in self._collapsed and not self.is_in_full:
                count = len(group._group_actions)  # noqa: SLF001 - argparse has no public way
                formatter.add_text(f"{self._collapsed[group]}; {count} options, see --help-all")
            else:
                formatter.add_text(group.description)
                formatter.add_arguments(group._group_actions)  # noqa: SLF001 - as above
            formatter.end_section()
        formatter.add_text(self.epilog)
        return formatter.format_help()

    def _usage(self) -> Iterator[str]:
        """Yield the parts of the usage line."""
        yield self.prog
        for action in self._actions:
            if action.option_strings and action.required:
                yield f"{action.option_strings[-1]} {action.metavar}"
        if self._subparsers is None:
            yield "[OPTION ...]"
        for action in self._get_positional_actions():
            name = str(action.metavar or action.dest)
            match action.nargs:
                case "?":
                    yield f"[{name}]"
                case "*":
                    yield f"[{name} ...]"
                case "+" | argparse.PARSER:
                    yield f"{name} ..."
                case _:
                    yield name

    def parse_known_args(self, args: Any = None, *rest: Any, **options: Any) -> Any:
        """Parse *args*; no argument is left for others."""
        if self._subparsers is not None:
            if not args:
                args = ["--help"]
            self._refuse_options_before_the_command(args)
        parsed, unknown = super().parse_known_args(args, *rest, **options)
        if unknown:
            name = unknown[0].partition("=")[0]
            raise InputError(f"unknown argument: {name!r}", self._suggested_flag(name))
        return parsed, unknown

    def _refuse_options_before_the_command(self, args: Sequence[str]) -> None:
        first = args[0].partition("=")[0]
        if not first.startswith("-") or first in self._option_string_actions:
            return
        commands = next(
            action.choices or ()
            for action in self._actions
            if isinstance(action, argparse._SubParsersAction)  # noqa: SLF001 - as above
        )
        command = next((word for word in args if word in commands), None)
        if command is None:
            raise InputError(f"unknown argument: {first!r}", self._suggested_flag(first))
        what = f"the option {first!r} stands before the command"
        raise InputError(what, f"write it after: `{self.prog} {command} … {first} …`")

    def _suggested_flag(self, name: str) -> str:
        flags = [flag for flag in self._option_string_actions if flag.startswith("--")]
        return self._suggestion(name, flags)

    def error(self, message: str) -> NoReturn:
        """Raise the usage error that argparse found.

        Raises:
            InputError: always.
        """
        raise InputError(message, f"see `{self.prog} --help`")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        # argparse's own text lists all choices and suggests none.
        if action.choices is None or value in action.choices:
            return
        choices = list(map(str, action.choices))
        what = "/".join(action.option_strings) or (action.metavar or action.dest)
        raise InputError(
            f"{what}: {str(value)!r} is not one of {', '.join(choices)}",
            self._suggestion(str(value), choices),
        )

    def _suggestion(self, word: str, known: Sequence[str]) -> str:
        bare = {name.lstrip("-"): name for name in known}
        close = bare.get(closest(word.lstrip("-"), bare, cutoff=_ALIKE) or "")
        return f"did you mean {close!r}?" if close else f"see `{self.prog} --help`"


class BriefParser(Parser):
    """A parser without settings, which is quick to build; it leaves help to the full one."""

    has_settings = False

    def print_help(self, _file: object = None) -> NoReturn:
        """Refuse."""
        raise InputError("help lists the settings too")


class Repeated(argparse.Action):
    """Joins the values of a repeated flag by commas, as urfave/cli does for NVIDIA's lists."""

    def __call__(
        self,
        _parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        _option_string: str | None = None,
    ) -> None:
        """Append *values*."""
        before = getattr(namespace, self.dest, None)
        setattr(namespace, self.dest, f"{before},{values}" if before is not None else values)


_FLAG = re.compile(
    r"(?P<flags>-\S+(?: -\S+)*)(?: (?P<value>\S+?)(?P<marks>[!*#]*)(?:=(?P<default>[^\s=]*))?)?"
    r" {2,}(?P<help>\S.*)"
)


def add_flags(parser: argparse._ActionsContainer, table: str, **choices: Sequence[str]) -> None:
    """Add the flags of *table*, one to a line: ``--flag VALUE``, two spaces, and its help.

    A flag without a value is a switch. ``VALUE!`` is required, ``VALUE*`` can be repeated,
    ``VALUE#`` is a whole number, and ``VALUE=word`` has a default. A deeper indented line continues
    the help. *choices* has the accepted words of a flag, by its name with underscores.
    """
    for line in re.sub(r"\n {8,}", " ", table).strip().splitlines():
        parts = _FLAG.fullmatch(line.strip())
        assert parts is not None, f"not a flag with a help text: {line!r}"
        flags, value, marks, default, text = parts.groups()
        how: dict[str, Any] = {"help": text, "action": "store" if value else "store_true"}
        if value:
            how |= {"metavar": value, "required": "!" in marks, "default": default}
        if value and "*" in marks:
            how |= {"action": "append", "default": []}
        if value and "#" in marks:
            how["type"] = int
        names = flags.split()
        if (words := choices.get(names[-1].lstrip("-").replace("-", "_"))) is not None:
            how["choices"] = words
        parser.add_argument(*names, **how)


def add_command(subparsers: Subparsers, name: str, summary: str, **options: Any) -> Parser:
    """Add the command *name*; *summary* is for the list of commands and the command's help."""
    return subparsers.add_parser(
        name,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.",
        **options,
    )


def add_output(parser: argparse.ArgumentParser, *, formats: tuple[str, ...] = FORMATS) -> None:
    """Add ``-o``, which every reader has, with *formats*, the table first."""
    text = f"-o --output FORMAT=table  {', '.join(formats)} (default: table)"
    add_flags(parser, text, output=formats)
    add_style(parser)


def add_style(parser: argparse.ArgumentParser) -> None:
    """Add the flags of every command that prints for a person."""
    add_flags(
        parser,
        """
    --strict  exit 1 on warnings too
    --no-color  no colour (also NO_COLOR=1)
    """,
    )
