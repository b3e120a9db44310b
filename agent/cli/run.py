"""``nodetopo run``: the daemon."""

import argparse
import os
import sys
from argparse import SUPPRESS, Namespace
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from agent.checks.catalogue import AUDIT, HEALTH
from agent.checks.engine import Report, evaluate
from agent.cli import output, reports
from agent.cli.files import STDIO, read_text
from agent.cli.output import Style, clean, say, warn
from agent.cli.parser import Parser, Repeated
from agent.cli.source import given
from agent.cli.topo.matrix import text as matrix_text
from agent.config import CONFIG_VARIABLE, Resolved, options
from agent.config.named import Chosen
from agent.config.nvidia.names import CONFIG_FLAG, NAMES, NVIDIA_CONFIG_VARIABLE, Kind, Name
from agent.config.settings import default, key, variable
from agent.config.values import Option
from agent.daemon import loops
from agent.daemon.reload import Sources
from agent.daemon.startup_report import Ready, ReadyResource
from agent.deviceplugin.resources import Resource
from agent.model.snapshot import Snapshot
from agent.topology.matrix import matrix

# What ``nodetopo run`` shows once the kubelet has the devices: the main job, on one page.


def show(ready: Ready) -> None:
    """Print the page to standard output."""
    style = output.style(no_color=False)
    say("\n".join(_sections(ready, style)))


def _sections(ready: Ready, style: Style) -> Iterator[str]:
    yield style.paint(_machine(ready), "1") + "\n"
    yield matrix_text(matrix(ready.snapshot), ready.snapshot, style)
    yield _section("labels", output.table(ready.labels.items(), indent=2), style)
    yield _section("registration", _registration(ready), style)
    yield _section("a pod asks for GPUs", "".join(_allocations(ready)), style)
    health, audit = evaluate(ready.snapshot, HEALTH), evaluate(ready.snapshot, AUDIT)
    yield _section("health", _checks(health, style), style)
    yield _section("audit", _checks(audit, style), style)
    yield _section("metrics", f"  {ready.metrics_url or 'not served'}\n", style)


def _section(title: str, body: str, style: Style) -> str:
    return f"{style.paint(title, '1')}\n{body}"


def _machine(ready: Ready) -> str:
    gpus, hcas = len(ready.snapshot.gpus), len(ready.snapshot.hcas or ())
    kind = clean(ready.snapshot.gpus[0].product or "GPU") if gpus else "GPU"
    machine = f"{gpus}x {kind}, {hcas} HCAs"
    if ready.scene.simulated is None:
        return f"node {clean(ready.snapshot.node or '?')}: {machine}"
    return (
        f"SIMULATED machine {clean(ready.scene.simulated)}: {machine}. "
        "None of this hardware is here."
    )


def _registration(ready: Ready) -> str:
    who = "an embedded stand-in for the kubelet" if ready.scene.stand_in else "the kubelet"
    lines = []
    for one in ready.resources:
        lines.append(f"{one.resource.name}: {one.plugin.devices} devices registered with {who}")
        lines.append(f"socket {ready.scene.socket_dir / (one.plugin.endpoint or '?')}")
    lines += [f"not offered: {clean(refusal.reason)}" for refusal in ready.refusals]
    return "".join(f"  {line}\n" for line in lines)


def _allocations(ready: Ready) -> Iterator[str]:
    """Yield, for each resource, the answer the kubelet got, with the reasons for it."""
    for one in ready.resources:
        if len(ready.resources) > 1:
            yield f"  {one.resource.name}\n"
        yield "".join(f"  {line}\n" for line in _allocation(one, ready))


def _allocation(one: ReadyResource, ready: Ready) -> Iterator[str]:
    found = one.placement
    if found is None:
        yield "no GPU is usable" if one.resource.is_whole else "no device is usable"
        return
    usable = sum(device.is_healthy for device in one.resource.devices)
    answer = one.preferred if one.preferred is not None else found.chosen
    asked = "GetPreferredAllocation answered" if one.preferred is not None else "would answer"
    yield f"{len(found.chosen)} of {usable}: {asked} {_named(answer, one.resource, ready.snapshot)}"
    yield f"policy {found.rules.policy}, bandwidth model {found.rules.model}"
    yield from map(clean, found.reasons)


def _named(chosen: Iterable[str], resource: Resource, snapshot: Snapshot) -> str:
    """Return the GPUs of *chosen*; with a number for each where devices are parts of GPUs."""
    names = {gpu.id: gpu.name for gpu in snapshot.gpus}
    counts = Counter(sorted(names[resource.gpus[name]] for name in chosen))
    if resource.is_whole:
        return " ".join(counts)
    return ", ".join(f"{count} of {name}" for name, count in counts.items())


def _checks(found: Report, style: Style) -> str:
    answer = reports.answer(found, style)
    summary = answer.table.rstrip("\n").rpartition("\n")[2]
    problems = "".join(f"  {line}\n" for line in answer.short.splitlines())
    return f"{problems}  {summary}\n"


# The settings of NVIDIA's device plugin on the command line of ``run``, and as a table.

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
        "NVIDIA's device plugin", "its flags and variables; see docs/operate/configuration.md"
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
    usual = " or ".join(map(_nvidia_settings_shown, name.agrees or ()))
    if not name.instead:
        return f"{usual} only; another is refused"
    return f"read as {usual}: {name.instead}" if usual else f"no effect: {name.instead}"


def nvidia_names(field: str) -> str:
    """Return the names of NVIDIA's that set the field of ours, or a dash."""
    return ", ".join(name.name for name in NAMES if field in name.ours) or "-"


def listing(resolved: Resolved) -> str:
    """Return a table of all settings of NVIDIA's: value, origin and effect."""
    return output.table([("NVIDIA'S NAME", "VALUE", "ORIGIN", "HERE"), *_rows(resolved)])


def _rows(resolved: Resolved) -> Iterator[tuple[str, str, str, str]]:
    for name in NAMES:
        value, origin = _value(resolved, name)
        yield name.name, value, origin, effect(name)


def _value(resolved: Resolved, name: Name) -> tuple[str, str]:
    """Return the value of *name* and its origin; some flags are ours and NVIDIA's at once."""
    if (given := resolved.nvidia.get(name.name)) is not None:
        return _nvidia_settings_shown(given.value), given.origin
    for field, origin in resolved.origins.items():
        if key(field) in name.flags and origin == f"flag --{key(field)}":
            return _nvidia_settings_shown(getattr(resolved.settings, field)), origin
    return "-", "not set"


def _nvidia_settings_shown(value: object) -> str:
    match value:
        case bool():
            return str(value).lower()
        case tuple():
            return ",".join(map(str, value)) or "[]"
        case _:
            return str(value) or "(empty)"


def add(parser: Parser) -> None:
    """Add the flags."""
    parser.epilog = (
        "every flag is also a key of the file and a variable: "
        f"--{key('recovery_s')} 5m, `{key('recovery_s')}: 5m`, {variable('recovery_s')}=5m"
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
        if flag in SWITCHES:
            parser.add_argument(flag, dest=name, help=explained, **A_SWITCH)
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
    add_nvidia_flags(parser)
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
        loops.end_at_signal()
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
    reloader.start()
    settings = reloader.current.settings
    if args.print_config:
        reloader.close()
        _print_config(args, reloader.current, reloader.config, reloader.label_problem)
        return 0
    from agent.daemon import app  # noqa: PLC0415

    logs.configure(settings.log_format, settings.log_level)
    _log_warnings(reloader.current)
    is_watched = settings.once or sys.stdout.isatty()
    return app.run(settings, show if is_watched else None, reloader)


def _sources(args: Namespace) -> Sources:
    variables = (os.environ.get(name) for name in (CONFIG_VARIABLE, NVIDIA_CONFIG_VARIABLE))
    return Sources(
        read=_reader(),
        flags=given(args),
        nvidia_flags=given_nvidia(args),
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
    say(f"{_listing(resolved)}\n{listing(resolved)}")


def _log_warnings(resolved: Resolved) -> None:
    import structlog  # noqa: PLC0415 - only the daemon logs

    for text in resolved.warnings:
        structlog.get_logger().warning("setting", about=text)


def _listing(resolved: Resolved) -> str:
    rows = [("SETTING", "VALUE", "ORIGIN", "NVIDIA'S NAME")]
    for name, origin in resolved.origins.items():
        shown = _shown(getattr(resolved.settings, name))
        rows.append((key(name), shown, origin, nvidia_names(name)))
    return output.table(rows)


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
