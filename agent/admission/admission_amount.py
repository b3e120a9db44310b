"""Amounts of resources as people write them in a manifest."""

from agent.admission.requests import is_memory
from agent.model.qos import HUGE_PAGES
from agent.model.quantity import MILLICORES, quantity

_MIB, _GIB = 1 << 20, 1 << 30
_SUFFIXES = ("", "Ki", "Mi", "Gi")
_STEP = 1024


def amount_text(name: str, amount: int) -> str:
    """Return an *amount* of the resource *name* without its unit, exact to the last byte."""
    if name == "cpu":
        return f"{amount}m" if amount % MILLICORES else str(amount // MILLICORES)
    if not is_memory(name):
        return str(amount)
    power = 0
    while amount and power < len(_SUFFIXES) - 1 and amount % _STEP == 0:
        amount, power = amount // _STEP, power + 1
    return f"{amount}{_SUFFIXES[power]}"


def unit_of(name: str, amount: int) -> str:
    """Return what follows the text of an *amount*, as in ``4 CPUs`` and ``8Gi of memory``."""
    if name == "cpu":
        return " CPU" if amount % MILLICORES or amount == MILLICORES else " CPUs"
    return f" of {name}" if is_memory(name) else f" {name}"


def grain_of(name: str, amount: int) -> int:
    """Return the steps in which people ask for about *amount*: whole GiB, MiB, pages, else 1."""
    if not is_memory(name):
        return 1
    usual = _GIB if amount >= _GIB else _MIB
    if name == "memory":
        return usual
    try:
        return max(quantity(name.removeprefix(HUGE_PAGES)), _MIB)
    except ValueError:
        return usual
