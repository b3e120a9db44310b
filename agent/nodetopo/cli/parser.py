"""The argument parser: one-line errors, and the flags that commands share."""

import argparse
import os
import textwrap
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, ClassVar, NoReturn, TypeAlias

from nodetopo.errors import InputError, closest
from nodetopo.model.digits import number, whole_number

FORMATS = ("table", "short", "json", "yaml")

_COLUMNS = 80
"""Width of output that is not a terminal."""

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


class Parser(argparse.ArgumentParser):
    """Raises bad usage as an :class:`InputError` instead of printing usage and exiting.

    Attributes:
        has_settings: whether settings of the daemon are flags too, for commands that accept some.
    """

    has_settings: ClassVar[bool] = True

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"allow_abbrev": False, "formatter_class": _HelpFormatter, **options})
        self.register("type", int, whole_number)
        self.register("type", float, number)

    def parse_known_args(self, *args: Any, **options: Any) -> tuple[Any, list[str]]:
        """Parse *args*; no argument is left for others.

        Raises:
            InputError: an argument is unknown to this command.
        """
        parsed, unknown = super().parse_known_args(*args, **options)
        if unknown:
            name = unknown[0].partition("=")[0]
            flags = [flag for flag in self._option_string_actions if flag.startswith("--")]
            raise InputError(f"unknown argument: {name!r}", self._suggestion(name, flags))
        return parsed, unknown

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
        close = closest(word, known)
        return f"did you mean {close!r}?" if close else f"see `{self.prog} --help`"


class BriefParser(Parser):
    """A parser without settings, which is quick to build; it leaves help to the full one."""

    has_settings = False

    def print_help(self, _file: object = None) -> NoReturn:
        """Refuse.

        Raises:
            InputError: always.
        """
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
    parser.add_argument(
        "-o",
        "--output",
        choices=formats,
        default="table",
        metavar="FORMAT",
        help=f"{', '.join(formats)} (default: table)",
    )
    add_style(parser)


def add_style(parser: argparse.ArgumentParser) -> None:
    """Add the flags of every command that prints for a person."""
    parser.add_argument("--strict", action="store_true", help="exit 1 on warnings too")
    parser.add_argument("--no-color", action="store_true", help="no colour (also NO_COLOR=1)")
