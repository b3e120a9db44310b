r"""Numbers in text: the digits 0 to 9, as kernels, drivers and Kubernetes write them.

Python's own ``int()``, ``float()``, ``str.isdecimal()`` and the pattern ``\d`` also take the digits
of other scripts, and the first two take underscores (``1_0``) and blanks. A text that holds those
is damaged or forged, so readers do not guess at it.
"""

import re

_WHOLE = re.compile(r"[+-]?[0-9]{1,20}")
"""The kernel's largest number, of 64 bits, has 20 digits."""

_NUMBER = re.compile(
    r"[+-]?(?:[0-9]{1,20}(?:\.[0-9]{0,20})?|\.[0-9]{1,20})(?:[eE][+-]?[0-9]{1,3})?"
)


def is_digits(text: str) -> bool:
    """Return whether *text* is nothing but digits, and not empty."""
    return text.isascii() and text.isdecimal()


def whole_number(text: str) -> int:
    """Return the whole number of at most 20 digits that *text* holds, with or without a sign.

    Raises:
        ValueError: it holds something else.
    """
    if _WHOLE.fullmatch(text) is None:
        raise ValueError(f"not a whole number: {text[:40]!r}")
    return int(text)


def number(text: str) -> float:
    """Return the decimal number that *text* holds, as ``1``, ``-0.5`` or ``2e3``.

    Raises:
        ValueError: it holds something else, such as ``inf`` or ``nan``.
    """
    if _NUMBER.fullmatch(text) is None:
        raise ValueError(f"not a number: {text[:40]!r}")
    return float(text)
