"""The settings of NVIDIA's device plugin on the command line of ``run``, and as a table."""

from argparse import SUPPRESS, Namespace
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from agent.cli import render
from agent.cli.parser import Parser, Repeated
from agent.config import Resolved, key, options
from agent.config.nvidia.names import CONFIG_FLAG, NAMES, Kind, Name

_DEST = "nvidia "
"""Begins the name of a parsed flag of NVIDIA's; no flag of ours holds a space."""

A_SWITCH: Mapping[str, Any] = MappingProxyType(
    {"metavar": "BOOL", "nargs": "?", "const": "true", "default": SUPPRESS}
)
"""How argparse is to read a switch of NVIDIA's: alone it is true, and ``=false`` may follow."""

SWITCHES = frozenset(
    f"--{flag}" for name in NAMES if name.kind is Kind.SWITCH for flag in name.flags
)
"""NVIDIA's switches; one of ours that is called so is read in the same way."""

_LISTS = (Kind.WORDS, Kind.NUMBERS)


def add_nvidia_flags(parser: Parser) -> None:
    """Add those of NVIDIA's flags that are not flags of ours too, and all of them with one dash.

    NVIDIA's plugin takes one dash for two, as every program that uses Go's package ``flag``.
    """
    group = parser.add_argument_group(
        "NVIDIA's device plugin", "its flags and variables; docs/configuration.md has them all"
    )
    own = {key(name): name for name in options()}
    for name in NAMES:
        flags = [f"--{flag}" for flag in name.flags if flag not in own]
        dest = _DEST + name.name
        if flags:
            group.add_argument(*flags, dest=dest, help=effect(name), **_how(name))
        for flag in name.flags:
            parser.add_argument(f"-{flag}", dest=own.get(flag, dest), help=SUPPRESS, **_how(name))
    parser.add_argument(f"-{CONFIG_FLAG}", dest="config", default=SUPPRESS, help=SUPPRESS)


def _how(name: Name) -> Mapping[str, Any]:
    """Return how argparse is to read the flags of *name*."""
    if name.kind is Kind.SWITCH:
        return A_SWITCH
    action = Repeated if name.kind in _LISTS else "store"
    return {"metavar": "TEXT", "action": action, "default": SUPPRESS}


def given_nvidia(args: Namespace) -> dict[str, str]:
    """Return the flags of NVIDIA's that were given, by NVIDIA's name."""
    found = vars(args).items()
    return {dest.removeprefix(_DEST): text for dest, text in found if dest.startswith(_DEST)}


def effect(name: Name) -> str:
    """Return what a setting of NVIDIA's comes to here, in a few words."""
    if name.ours:
        return f"sets {' and '.join(map(key, name.ours))}"
    if name.kind is Kind.MPS:
        return "refused: MPS is not supported"
    usual = " or ".join(map(_shown, name.agrees or ()))
    if not name.instead:
        return f"{usual} only; another is refused"
    return f"read as {usual}: {name.instead}" if usual else f"no effect: {name.instead}"


def nvidia_names(field: str) -> str:
    """Return the names of NVIDIA's that set the field of ours, or a dash."""
    return ", ".join(name.name for name in NAMES if field in name.ours) or "-"


def listing(resolved: Resolved) -> str:
    """Return a table of all settings of NVIDIA's: value, origin and effect."""
    return render.table([("NVIDIA'S NAME", "VALUE", "ORIGIN", "HERE"), *_rows(resolved)])


def _rows(resolved: Resolved) -> Iterator[tuple[str, str, str, str]]:
    for name in NAMES:
        value, origin = _value(resolved, name)
        yield name.name, value, origin, effect(name)


def _value(resolved: Resolved, name: Name) -> tuple[str, str]:
    """Return the value of *name* and its origin; some flags are ours and NVIDIA's at once."""
    if (given := resolved.nvidia.get(name.name)) is not None:
        return _shown(given.value), given.origin
    for field, origin in resolved.origins.items():
        if key(field) in name.flags and origin == f"flag --{key(field)}":
            return _shown(getattr(resolved.settings, field)), origin
    return "-", "not set"


def _shown(value: object) -> str:
    match value:
        case bool():
            return str(value).lower()
        case tuple():
            return ",".join(map(str, value)) or "[]"
        case _:
            return str(value) or "(empty)"
