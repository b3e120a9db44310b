"""Options of the kubelet's policies: texts under names."""

from collections.abc import Mapping

from agent.hints.admission_missing import Missing

_TRUE = ("1", "t", "T", "TRUE", "true", "True")
_FALSE = ("0", "f", "F", "FALSE", "false", "False")
"""What Go's ``strconv.ParseBool`` takes."""


def flag(options: Mapping[str, str] | None, name: str) -> bool:
    """Return whether an option is on; it is off where it is not stated.

    Raises:
        Missing: the kubelet does not start with its value.
    """
    text = (options or {}).get(name, "false")
    if text not in (*_TRUE, *_FALSE):
        raise Missing(f"a kubelet that starts: option {name} is {text!r}")
    return text in _TRUE


def number(options: Mapping[str, str] | None, name: str, usual: int) -> int:
    """Return an option's number, *usual* where it is not stated.

    Raises:
        Missing: the kubelet does not start with its value.
    """
    text = (options or {}).get(name, str(usual))
    if not text.isascii() or not text.isdecimal() or len(text) > len("1000000"):
        raise Missing(f"a kubelet that starts: option {name} is {text!r}")
    if int(text) < usual:
        raise Missing(f"a kubelet that starts: option {name} is {text}, and {usual} is the least")
    return int(text)
