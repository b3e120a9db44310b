"""NVIDIA's values as text, from a flag or a variable."""

import re
from typing import Any

from agent.config import values
from agent.config.nvidia.names import Kind, Name
from agent.model.go_bool import go_bool

_DURATION = re.compile(r"infinite|0|[-+]?(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+")
"""Go's ``time.ParseDuration``, and NVIDIA's word for ever (api/config/v1/duration.go)."""

_NUMBER = re.compile(r"[0-9]{1,9}", re.ASCII)


def read(name: Name, text: str) -> Any:
    """Return the value of *name* that *text* holds.

    Raises:
        ValueError: it is none; the text says what it is instead.
    """
    match name.kind:
        case Kind.SWITCH:
            switch = go_bool(text)
            if switch is None:
                raise ValueError("neither true nor false")
            return switch
        case Kind.WORD:
            return values.one_of(name.words)(text)
        case Kind.WORDS:
            return words(name, tuple(word.strip() for word in text.split(",")))
        case Kind.NUMBERS:
            return channels(tuple(word.strip() for word in text.split(",")) if text else ())
        case Kind.DURATION:
            return duration(text)
        case _:
            return values.text(text) if text else ""


def words(name: Name, found: tuple[str, ...]) -> tuple[str, ...]:
    """Return the different words of *found*, in order; NVIDIA's takes repeated ones.

    Raises:
        ValueError: one is not of *name*, or there is none.
    """
    if "device-specs" in found:
        raise ValueError("not NVIDIA's word: it is pass-device-specs there")
    if not found:
        raise ValueError(f"without one of {', '.join(name.words)}")
    return tuple(dict.fromkeys(map(values.one_of(name.words), found)))


def channels(found: tuple[str, ...]) -> tuple[int, ...]:
    """Return the IMEX channels *found*; NVIDIA's knows none but 0 (api/config/v1/imex.go).

    Raises:
        ValueError: it is neither empty nor 0 alone.
    """
    if found and (len(found) > 1 or not _NUMBER.fullmatch(found[0]) or int(found[0])):
        raise ValueError("neither empty nor channel 0 alone")
    return tuple(map(int, found))


def duration(found: str) -> str:
    """Return *found* if it is one of Go's durations.

    Raises:
        ValueError: it is none.
    """
    if _DURATION.fullmatch(found) is None:
        raise ValueError("not a duration such as 60s, nor `infinite`")
    return found
