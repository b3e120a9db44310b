"""One answer, several formats."""

import json
import re
import sys
from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from agent.cli.render import clean
from agent.errors import UnreadableError

_STEERING = re.compile("[\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069]")
"""What JSON allows unescaped inside a string and a terminal may still obey."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a reader command found: for programs, for people, and for people in a hurry.

    Attributes:
        plain: made of JSON's own types.
        table, short: text that ends with a line break, or nothing.
        svg: draws the answer; only for commands that offer the format.
    """

    plain: Any
    table: str
    short: str
    svg: Callable[[], str] | None = None


def emit(answer: Answer, args: Namespace) -> None:
    """Print *answer* in the format that ``-o`` names."""
    match args.output:
        case "json":
            say(json_text(answer.plain))
        case "yaml":
            say(_yaml_text(answer.plain))
        case "short":
            say(answer.short)
        case "svg" if answer.svg is not None:
            say(answer.svg())
        case _:
            say(answer.table)


def say(text: str) -> None:
    """Write *text* to standard output, now.

    Raises:
        UnreadableError: it did not arrive, e.g. because the disk is full.
        BrokenPipeError: nobody reads any more.
    """
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        cause = f"cannot write the output: {error.strerror}"
        raise UnreadableError(cause, "free the space, then repeat") from None


def json_text(plain: Any) -> str:
    """Return *plain* as an indented JSON document, safe to show on a terminal."""
    return escaped(json.dumps(plain, indent=2, ensure_ascii=False)) + "\n"


def escaped(document: str) -> str:
    """Return the JSON *document* with what steers a terminal escaped; it means the same."""
    return _STEERING.sub(lambda found: f"\\u{ord(found[0]):04x}", document)


def _yaml_text(plain: Any) -> str:
    import yaml  # noqa: PLC0415 - 2 MiB and 20 ms that only this format needs

    is_safe = _STEERING.search(json.dumps(plain, ensure_ascii=False)) is None
    text: str = yaml.safe_dump(plain, sort_keys=False, allow_unicode=is_safe, width=100)
    return text


def note(kind: str, text: str) -> None:
    """Print the one line ``kind: text`` to standard error."""
    sys.stderr.write(f"{kind}: {' '.join(clean(text).split())}\n")
    sys.stderr.flush()


def warn(args: Namespace, text: str) -> None:
    """Print a warning and remember that there was one, for ``--strict``."""
    args.warnings.append(text)
    note("warning", text)
