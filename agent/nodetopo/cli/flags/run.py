"""The flags of ``nodetopo run``."""

from argparse import SUPPRESS, BooleanOptionalAction
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from nodetopo.cli.parser import Parser, Repeated, add_flags
from nodetopo.kernel.settings.declare import key, options, variable
from nodetopo.kernel.settings.explained import effect, explanation
from nodetopo.kernel.settings.nvidia.names import (
    CONFIG_FLAG,
    NAMES,
    NVIDIA_CONFIG_VARIABLE,
    ValueKind,
)
from nodetopo.kernel.settings.resolve import CONFIG_VARIABLE

A_SWITCH: Mapping[str, Any] = MappingProxyType(
    {"metavar": "BOOL", "nargs": "?", "const": "true", "default": SUPPRESS}
)
"""How argparse reads one of NVIDIA's switches: alone it is true, ``=false`` can follow."""

SWITCHES = frozenset(
    f"--{flag}" for name in NAMES if name.kind is ValueKind.SWITCH for flag in name.flags
)
"""NVIDIA's switches; a flag of nodetopo with the same name is read the same way."""

NVIDIA_DEST = "nvidia "
"""Prefix of NVIDIA's parsed flags; no flag of nodetopo contains a space."""


def add(parser: Parser) -> None:
    """Add nodetopo's flags by subject, then NVIDIA's."""
    parser.epilog = (
        "every flag is also a key of the file and a variable: "
        f"--{key('recovery_s')} 5m, `{key('recovery_s')}: 5m`, {variable('recovery_s')}=5m"
    )
    parser.add_argument(
        "--config",
        f"--{CONFIG_FLAG}",
        metavar="FILE",
        help=f"settings file, ours or NVIDIA's; also {CONFIG_VARIABLE}, {NVIDIA_CONFIG_VARIABLE}",
    )
    add_flags(parser, "--print-config  print every setting with its origin, and exit")
    groups: dict[str, Any] = {}
    for name, option in options().items():
        if option.group not in groups:
            groups[option.group] = parser.add_argument_group(option.group)
        flag = f"--{key(name)}"
        how: dict[str, Any] = {"dest": name, "help": explanation(name, option)}
        if flag in SWITCHES:
            how |= A_SWITCH
        elif option.metavar == "BOOL":
            how |= {"action": BooleanOptionalAction, "default": SUPPRESS}
        else:
            how |= {
                "metavar": option.metavar,
                "choices": option.choices or None,
                "action": Repeated if option.metavar == "LIST" else "store",
                "default": SUPPRESS,
            }
        groups[option.group].add_argument(flag, **how)
    _add_nvidia_flags(parser)
    parser.set_defaults(module="run")


def _add_nvidia_flags(parser: Parser) -> None:
    """Add NVIDIA's flags that nodetopo lacks, and all of NVIDIA's with one dash.

    NVIDIA's plugin accepts one dash, like every program that uses Go's package ``flag``.
    """
    group = parser.add_argument_group(
        "NVIDIA's device plugin", "its flags and variables; see docs/operate/configuration.md"
    )
    parser.collapse(group, "its flags and variables, read as its plugin reads them")
    own = {key(name): name for name in options()}
    for name in NAMES:
        how: Mapping[str, Any] = A_SWITCH
        if name.kind is not ValueKind.SWITCH:
            is_list = name.kind in (ValueKind.WORDS, ValueKind.NUMBERS)
            action = Repeated if is_list else "store"
            how = {"metavar": "TEXT", "action": action, "default": SUPPRESS}
        flags = [f"--{flag}" for flag in name.flags if flag not in own]
        dest = NVIDIA_DEST + name.name
        if flags:
            group.add_argument(*flags, dest=dest, help=effect(name), **how)
        for flag in name.flags:
            parser.add_argument(f"-{flag}", dest=own.get(flag, dest), help=SUPPRESS, **how)
    parser.add_argument(f"-{CONFIG_FLAG}", dest="config", default=SUPPRESS, help=SUPPRESS)
