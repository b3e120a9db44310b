"""TOML from untrusted sources, with limits on its size and on the time that parsing takes."""

from typing import Any

MAX_CHARACTERS = 256 << 10
"""Largest text; containerd's own default configuration, all plugins written out, is 20 KiB."""

_SHOWN = 200
"""Characters of the parser's message, which repeats long keys."""

MAX_DOTS = 256
"""In one line. The parser takes time that grows with the square of the parts of a dotted key: 104 s
for one of 60,000 on Python 3.11. With both limits no text of those tried takes 2 s."""


def load(text: str) -> dict[str, Any]:
    """Return the document in *text*.

    Raises:
        ValueError: not TOML, or beyond a limit. The message says what, and where.
    """
    if len(text) > MAX_CHARACTERS:
        raise ValueError(f"larger than {MAX_CHARACTERS >> 10} Ki characters")
    for number, line in enumerate(text.splitlines(), start=1):
        if line.count(".") > MAX_DOTS:
            raise ValueError(f"more than {MAX_DOTS} dots in line {number}")
    import tomllib  # noqa: PLC0415 - 10 ms before GPUs are served, and few nodes have such a file

    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("nested too deep") from None
    except ValueError as error:  # TOMLDecodeError, and numbers of thousands of digits
        raise ValueError(f"not TOML: {str(error)[:_SHOWN]}") from None
