"""``nodetopo run``: the daemon."""

import argparse
import os
import sys
from argparse import SUPPRESS, Namespace

from agent.cli import render
from agent.cli.files import read_text
from agent.cli.output import say
from agent.cli.parser import Subparsers, add_command
from agent.cli.source import given
from agent.config import CONFIG_VARIABLE, ConfigFile, Resolved, options
from agent.config.settings import key, variable


def add(subparsers: Subparsers) -> None:
    """Add the command, with one flag for every setting."""
    parser = add_command(
        subparsers,
        "run",
        "run the daemon of this node",
        epilog="every flag is also a key of the file and a variable: "
        f"--{key('sysfs_root')} is {key('sysfs_root')}: … and {variable('sysfs_root')}=…",
    )
    parser.add_argument("--config", metavar="FILE", help=f"settings as YAML; or {CONFIG_VARIABLE}")
    parser.add_argument(
        "--print-config",
        action="store_true",
        help="print every setting with its origin, and end",
    )
    for name, option in options().items():
        flag = f"--{key(name)}"
        if option.metavar == "BOOL":
            parser.add_argument(
                flag,
                dest=name,
                action=argparse.BooleanOptionalAction,
                default=SUPPRESS,
                help=option.help,
            )
        else:
            parser.add_argument(
                flag,
                dest=name,
                metavar=option.metavar,
                choices=option.choices or None,
                default=SUPPRESS,
                help=option.help,
            )
    parser.set_defaults(run=run)


def run(args: Namespace) -> int:
    """Resolve the settings, then hand over to the daemon until it ends."""
    name = args.config or os.environ.get(CONFIG_VARIABLE)
    file = ConfigFile(name=name, text=read_text(name)) if name else None
    resolved = Resolved.of(flags=given(args), environment=os.environ, file=file)
    if args.print_config:
        say(_listing(resolved))
        return 0
    # Both load grpc, which --print-config does not need.
    from agent import daemon  # noqa: PLC0415
    from agent.cli import run_report  # noqa: PLC0415

    is_watched = resolved.settings.once or sys.stdout.isatty()
    return daemon.run(resolved.settings, run_report.show if is_watched else None)


def _listing(resolved: Resolved) -> str:
    rows = [("SETTING", "VALUE", "ORIGIN")]
    for name, origin in resolved.origins.items():
        rows.append((key(name), _shown(getattr(resolved.settings, name)), origin))
    return render.table(rows)


def _shown(value: object) -> str:
    match value:
        case None:
            return "none"
        case bool():
            return str(value).lower()
        case tuple():
            return ",".join(map(str, value))
        case float():
            return f"{value:g}"
        case _:
            return str(value)
