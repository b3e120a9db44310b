"""``nodetopo run``: the daemon."""

import argparse
import os
import sys
from argparse import SUPPRESS, Namespace
from collections.abc import Callable
from pathlib import Path

from agent.cli import nvidia_settings, render
from agent.cli.files import STDIO, read_text
from agent.cli.output import say, warn
from agent.cli.parser import Repeated, Subparsers, add_command
from agent.cli.source import given
from agent.config import CONFIG_VARIABLE, Resolved, options
from agent.config.named import Chosen
from agent.config.nvidia.names import CONFIG_FLAG, NVIDIA_CONFIG_VARIABLE
from agent.config.settings import default, key, variable
from agent.config.values import Option
from agent.daemon import signals
from agent.daemon.sources import Sources


def add(subparsers: Subparsers) -> None:
    """Add the command, with one flag for every setting."""
    parser = add_command(
        subparsers,
        "run",
        "run the daemon of this node",
        epilog="every flag is also a key of the file and a variable: "
        f"--{key('recovery_s')} 5m, `{key('recovery_s')}: 5m`, {variable('recovery_s')}=5m",
    )
    parser.add_argument(
        "--config",
        f"--{CONFIG_FLAG}",
        metavar="FILE",
        help=f"settings as YAML, ours or NVIDIA's; or {CONFIG_VARIABLE}, {NVIDIA_CONFIG_VARIABLE}",
    )
    parser.add_argument(
        "--print-config",
        action="store_true",
        help="print every setting with its origin, and end",
    )
    for name, option in options().items():
        flag, explained = f"--{key(name)}", explanation(name, option)
        if flag in nvidia_settings.SWITCHES:
            parser.add_argument(flag, dest=name, help=explained, **nvidia_settings.A_SWITCH)
        elif option.metavar == "BOOL":
            parser.add_argument(
                flag,
                dest=name,
                action=argparse.BooleanOptionalAction,
                default=SUPPRESS,
                help=explained,
            )
        else:
            parser.add_argument(
                flag,
                dest=name,
                metavar=option.metavar,
                choices=option.choices or None,
                action=Repeated if option.metavar == "LIST" else "store",
                default=SUPPRESS,
                help=explained,
            )
    nvidia_settings.add_nvidia_flags(parser)
    parser.set_defaults(run=run)


def explanation(name: str, option: Option) -> str:
    """Return what the setting *name* is, the words that it may be, and its default."""
    words = f": {', '.join(option.choices)}" if option.choices else ""
    usual = default(name)
    if usual in (None, (), False) or "default" in option.help:  # the text says so itself
        return option.help + words
    unit = " s" if isinstance(usual, float) else ""
    return f"{option.help}{words} (default: {_shown(usual)}{unit})"


def run(args: Namespace) -> int:
    """Resolve the settings, then hand over to the daemon until it ends."""
    if not args.print_config:
        signals.end_at_signal()
    sources = _sources(args)
    base = sources.resolved()
    # These load structlog, and the last two grpc, which --print-config does not need.
    from agent.daemon import logs  # noqa: PLC0415
    from agent.daemon.reload import Reloader  # noqa: PLC0415

    if not args.print_config:
        logs.configure(base.settings.log_format, base.settings.log_level)
    elif base.settings.config_dir is not None:  # what the API server says may be logged
        logs.configure(base.settings.log_format, "error")
    reloader = Reloader(sources, base)
    settings = reloader.current.settings
    if args.print_config:
        reloader.close()
        _print_config(args, reloader.current, reloader.config, reloader.label_problem)
        return 0
    from agent.cli import run_report  # noqa: PLC0415
    from agent.daemon import app  # noqa: PLC0415

    logs.configure(settings.log_format, settings.log_level)
    _log_warnings(reloader.current)
    is_watched = settings.once or sys.stdout.isatty()
    return app.run(settings, run_report.show if is_watched else None, reloader)


def _sources(args: Namespace) -> Sources:
    variables = (os.environ.get(name) for name in (CONFIG_VARIABLE, NVIDIA_CONFIG_VARIABLE))
    return Sources(
        read=_reader(),
        flags=given(args),
        nvidia_flags=nvidia_settings.given_nvidia(args),
        environment=dict(os.environ),
        file=args.config or next(filter(None, variables), None),
    )


def _reader() -> Callable[[str], str]:
    """Return what reads a file each time it is asked for, and a pipe once."""
    kept: dict[str, str] = {}

    def read(name: str) -> str:
        if name in kept:
            return kept[name]
        text = read_text(name)
        if name == STDIO or Path(name).is_fifo():
            kept[name] = text
        return text

    return read


def _print_config(
    args: Namespace, resolved: Resolved, config: Chosen | None, label_problem: str | None
) -> None:
    """Print the settings that a daemon would have now."""
    for text in resolved.warnings:
        warn(args, text)
    if config is not None:
        for problem in filter(None, (config.problem, label_problem)):
            warn(args, f"named config: {problem}")
        say(f"named config: {config.name or 'none'}, by {config.why}\n")
    say(f"{_listing(resolved)}\n{nvidia_settings.listing(resolved)}")


def _log_warnings(resolved: Resolved) -> None:
    import structlog  # noqa: PLC0415 - only the daemon logs

    for text in resolved.warnings:
        structlog.get_logger().warning("setting", about=text)


def _listing(resolved: Resolved) -> str:
    rows = [("SETTING", "VALUE", "ORIGIN", "NVIDIA'S NAME")]
    for name, origin in resolved.origins.items():
        shown = _shown(getattr(resolved.settings, name))
        rows.append((key(name), shown, origin, nvidia_settings.nvidia_names(name)))
    return render.table(rows)


def _shown(value: object) -> str:
    match value:
        case None:
            return "none"
        case bool():
            return str(value).lower()
        case tuple():
            return ",".join(map(str, value)) or "none"
        case float():
            return f"{value:g}"
        case _:
            return str(value)
