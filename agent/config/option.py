"""What is written beside a field that makes it a setting."""

from collections.abc import Callable

from agent.config import values
from agent.config.values import Option


def option(
    read: Callable[[object], object],
    explanation: str,
    metavar: str,
    *,
    choices: tuple[str, ...] = (),
    is_live: bool = False,
) -> dict[str, Option]:
    """Return the metadata of a field; *is_live*: a change of it needs no new start."""
    found = Option(read=read, help=explanation, metavar=metavar, choices=choices, is_live=is_live)
    return {"option": found}


def choice(explanation: str, *choices: str, is_live: bool = False) -> dict[str, Option]:
    """Return the metadata of a field that holds one of *choices*."""
    return option(values.one_of(choices), explanation, "WORD", choices=choices, is_live=is_live)


def switch(explanation: str, *, is_live: bool = False) -> dict[str, Option]:
    """Return the metadata of a field that is true or false."""
    return option(values.switch, explanation, "BOOL", is_live=is_live)
