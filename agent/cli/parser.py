"""The argument parser: one-line errors, and the flags that commands share."""

import argparse
from difflib import get_close_matches
from typing import Any, NoReturn, TypeAlias

from agent.errors import InputError

FORMATS = ("table", "short", "json", "yaml")

Subparsers: TypeAlias = "argparse._SubParsersAction[Parser]"  # noqa: SLF001 - has no public name
"""What ``add_subparsers`` returns."""


class Parser(argparse.ArgumentParser):
    """Raises bad usage as an :class:`InputError` instead of printing usage and exiting."""

    def __init__(self, **options: Any) -> None:
        super().__init__(
            **{"allow_abbrev": False, "formatter_class": argparse.HelpFormatter, **options},
        )

    def error(self, message: str) -> NoReturn:
        """Raise what argparse found wrong.

        Raises:
            InputError: always.
        """
        raise InputError(message, f"see `{self.prog} --help`")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Name the nearest choice; argparse's own text lists them all and suggests none."""
        if action.choices is None or value in action.choices:
            return
        choices = tuple(map(str, action.choices))
        close = get_close_matches(str(value), choices, n=1)
        what = "/".join(action.option_strings) or (action.metavar or action.dest)
        raise InputError(
            f"{what}: {str(value)!r} is not one of {', '.join(choices)}",
            f"did you mean {close[0]!r}?" if close else f"see `{self.prog} --help`",
        )


def add_command(subparsers: Subparsers, name: str, summary: str, **options: Any) -> Parser:
    """Add the command *name*; *summary* serves the list of commands and its own help."""
    return subparsers.add_parser(
        name,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.",
        **options,
    )


def add_output(parser: argparse.ArgumentParser, *, formats: tuple[str, ...] = FORMATS) -> None:
    """Add ``-o``, which every reader has; *formats* are those of this one, the table first."""
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
