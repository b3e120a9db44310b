"""JSON as its standard has it (RFC 8259), where Python's reader takes more or guesses.

A key that stands twice in an object, on which readers differ (section 4), NaN and Infinity
(section 6), and numbers that no double holds are refused. Sizes are the caller's matter.
"""

import json
from collections import Counter
from math import isfinite
from typing import Any, NoReturn

_SHOWN = 60
"""Characters of the text in a message."""


def loads(text: str, *, may_repeat: bool = False) -> Any:
    """Return the value of *text*.

    Args:
        may_repeat: whether a key may stand twice in an object; the last one counts.

    Raises:
        ValueError: it is no such JSON; a ``json.JSONDecodeError`` where its form is wrong.
        RecursionError: it is nested about a thousand deep.
    """
    try:
        return json.loads(
            text,
            parse_constant=_refuse_constant,
            parse_float=_finite,
            object_pairs_hook=None if may_repeat else _without_repetition,
        )
    except json.JSONDecodeError:
        raise
    except ValueError as error:
        # Python's words for a whole number of more than 4,300 digits are about its own settings.
        problem = str(error)
        is_of_python = "integer string conversion" in problem
        raise ValueError("a number of thousands of digits" if is_of_python else problem) from None


def _refuse_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is no JSON number")


def _finite(text: str) -> float:
    value = float(text)
    if not isfinite(value):
        raise ValueError(f"a number that is too large: {text[:_SHOWN]}")
    return value


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        name = next(name for name, count in counts.items() if count > 1)
        raise ValueError(f"the key {name[:_SHOWN]!r} stands {counts[name]} times in one object")
    return found
