"""Policies of the kubelet and their options: words, and texts under names."""

from collections.abc import Container, Mapping

from agent.admission.errors import Missing
from agent.model.go_bool import go_bool


def word(stated: str | None, field: str, known: Container[str]) -> str:
    """Return what is *stated* as *field* of the kubelet's settings.

    Raises:
        Missing: nothing is known to be, or the kubelet does not start with it.
    """
    if stated is None:
        raise Missing(field)
    if stated not in known:
        raise Missing(f"a kubelet that starts: {field} {stated!r} is none it knows")
    return stated


def flag(options: Mapping[str, str] | None, name: str) -> bool:
    """Return whether an option is on; it is off where it is not stated.

    Raises:
        Missing: the kubelet does not start with its value.
    """
    text = (options or {}).get(name, "false")
    found = go_bool(text)
    if found is None:
        raise Missing(f"a kubelet that starts: option {name} is {text!r}")
    return found


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
