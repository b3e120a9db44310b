"""``nodetopo run``: the daemon; and its settings as flags and as tables."""

import os
import sys
import threading
from argparse import SUPPRESS, BooleanOptionalAction, Namespace
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from agent.cli import output
from agent.cli.files import STDIO, read_text
from agent.cli.output import Style, clean, say, warn
from agent.cli.parser import Parser, Repeated
from agent.cli.source import given
from agent.config.nvidia.names import CONFIG_FLAG, NAMES, NVIDIA_CONFIG_VARIABLE, Name, ValueKind
from agent.config.resolve import CONFIG_VARIABLE, Resolved
from agent.config.settings import default, key, options, variable
from agent.config.values import Option, shown
from agent.model.snapshot import Snapshot

if TYPE_CHECKING:  # the daemon loads grpc and structlog, which help and --print-config do without
    from agent.checks.rule import Rule
    from agent.daemon.reload import Reloader
    from agent.daemon.startup_report import Ready, ReadyPool, ReadyResource
    from agent.deviceplugin.resources import Resource
    from agent.kernel.component import Kernel

A_SWITCH: Mapping[str, Any] = MappingProxyType(
    {"metavar": "BOOL", "nargs": "?", "const": "true", "default": SUPPRESS}
)
"""How argparse reads a switch of NVIDIA's: alone it is true, and ``=false`` may follow."""

SWITCHES = frozenset(
    f"--{flag}" for name in NAMES if name.kind is ValueKind.SWITCH for flag in name.flags
)
"""NVIDIA's switches; one of ours with the same name is read in the same way."""

_NVIDIA_DEST = "nvidia "
"""Begins the name of a parsed flag of NVIDIA's; no flag of ours holds a space."""


def add(parser: Parser) -> None:
    """Add the flags: ours by subject, then those of NVIDIA's device plugin."""
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
    parser.set_defaults(run=run)


def _add_nvidia_flags(parser: Parser) -> None:
    """Add those of NVIDIA's flags that are not flags of ours too, and all of them with one dash.

    NVIDIA's plugin takes one dash for two, as every program that uses Go's package ``flag``.
    """
    group = parser.add_argument_group(
        "NVIDIA's device plugin", "its flags and variables; see docs/operate/configuration.md"
    )
    own = {key(name): name for name in options()}
    for name in NAMES:
        how: Mapping[str, Any] = A_SWITCH
        if name.kind is not ValueKind.SWITCH:
            is_list = name.kind in (ValueKind.WORDS, ValueKind.NUMBERS)
            action = Repeated if is_list else "store"
            how = {"metavar": "TEXT", "action": action, "default": SUPPRESS}
        flags = [f"--{flag}" for flag in name.flags if flag not in own]
        dest = _NVIDIA_DEST + name.name
        if flags:
            group.add_argument(*flags, dest=dest, help=effect(name), **how)
        for flag in name.flags:
            parser.add_argument(f"-{flag}", dest=own.get(flag, dest), help=SUPPRESS, **how)
    parser.add_argument(f"-{CONFIG_FLAG}", dest="config", default=SUPPRESS, help=SUPPRESS)


def explanation(name: str, option: Option) -> str:
    """Return what the setting *name* is, the words that it may be, and its default."""
    words = f": {', '.join(option.choices)}" if option.choices else ""
    usual = default(name)
    if usual in (None, (), False) or "default" in option.help:  # the text says so itself
        return option.help + words
    unit = " s" if isinstance(usual, float) else ""
    return f"{option.help}{words} (default: {shown(usual)}{unit})"


def effect(name: Name) -> str:
    """Return in a few words what a setting of NVIDIA's does here."""
    if name.ours:
        return f"sets {' and '.join(map(key, name.ours))}"
    if name.kind is ValueKind.MPS:
        return "refused: MPS is not supported"
    usual = " or ".join(_nvidia_shown(value) for value in name.agrees or ())
    if not name.instead:
        return f"{usual} only; another is refused"
    return f"read as {usual}: {name.instead}" if usual else f"no effect: {name.instead}"


def run(args: Namespace) -> int:
    """Print the settings, or hand over to the daemon until it ends."""
    if args.print_config:
        return _start(args)
    from agent.footprint import stay_small  # noqa: PLC0415 - help needs no daemon

    stay_small()
    from agent.daemon import logs  # noqa: PLC0415 - loads structlog

    with logs.own_stderr():
        return _start(args)


def _start(args: Namespace) -> int:
    """Resolve the settings; print them, or run the daemon with them until it ends."""
    from agent.daemon import logs  # noqa: PLC0415 - loads structlog
    from agent.daemon.reload import Reloader, Sources  # noqa: PLC0415 - same

    pipes: dict[str, str] = {}

    def read(name: str) -> str:
        """Return the text of a file as it is now, and of a pipe as it was read first."""
        if name in pipes:
            return pipes[name]
        text = read_text(name)
        if name == STDIO or Path(name).is_fifo():
            pipes[name] = text
        return text

    parsed = vars(args).items()
    variables = (os.environ.get(name) for name in (CONFIG_VARIABLE, NVIDIA_CONFIG_VARIABLE))
    sources = Sources(
        read=read,
        flags=given(args),
        nvidia_flags={
            dest.removeprefix(_NVIDIA_DEST): text
            for dest, text in parsed
            if dest.startswith(_NVIDIA_DEST)
        },
        environment=dict(os.environ),
        file=args.config or next(filter(None, variables), None),
    )
    base = sources.resolved()
    if not args.print_config:
        logs.configure(base.settings.log_format, base.settings.log_level, in_background=True)
    elif base.settings.config_dir is not None:  # what the API server says may be logged
        logs.configure(base.settings.log_format, "error")
    reloader = Reloader(sources, base)
    reloader.start()
    if args.print_config:
        reloader.close()
        _print_config(args, reloader)
        return 0
    import structlog  # noqa: PLC0415 - only the daemon logs

    from agent.kernel import app  # noqa: PLC0415 - loads grpc

    settings = reloader.current.settings
    logs.configure(settings.log_format, settings.log_level, in_background=True)
    for text in reloader.current.warnings:
        structlog.get_logger().warning("setting", about=text)
    is_watched = settings.once or sys.stdout.isatty()
    return app.run(settings, _show_once_ready if is_watched else None, reloader)


def _print_config(args: Namespace, reloader: "Reloader") -> None:
    """Print the settings that a daemon would have now: ours, then NVIDIA's."""
    resolved, config = reloader.current, reloader.config
    for text in resolved.warnings:
        warn(args, text)
    if config is not None:
        for problem in filter(None, (config.problem, reloader.label_problem)):
            warn(args, f"named config: {problem}")
        say(f"named config: {config.name or 'none'}, by {config.why}\n")
    rows = [("SETTING", "VALUE", "ORIGIN", "NVIDIA'S NAME")]
    for field, origin in resolved.origins.items():
        value = shown(getattr(resolved.settings, field))
        names = ", ".join(name.name for name in NAMES if field in name.ours) or "-"
        rows.append((key(field), value, origin, names))
    theirs = [("NVIDIA'S NAME", "VALUE", "ORIGIN", "HERE")]
    theirs += [(name.name, *_nvidia_value(resolved, name), effect(name)) for name in NAMES]
    say(f"{output.table(rows)}\n{output.table(theirs)}")
    settings = resolved.settings
    if "auto" in settings.device_list_strategy:
        from agent.deviceplugin.hand_over import choose, read_setup  # noqa: PLC0415 - rarely needed

        chosen = choose(
            read_setup(settings.host_root, settings.procfs_root),
            kind=settings.cdi_kind,
            devices=(),
            writes_spec=settings.cdi_spec == "write",
        )
        say(f"\nhand-over here: {chosen.strategy}, as {clean(chosen.problem or chosen.reason)}")


def _nvidia_value(resolved: Resolved, name: Name) -> tuple[str, str]:
    """Return the value of *name* and its origin; some flags are ours and NVIDIA's at once."""
    if (given := resolved.nvidia.get(name.name)) is not None:
        return _nvidia_shown(given.value), given.origin
    for field, origin in resolved.origins.items():
        if key(field) in name.flags and origin == f"flag --{key(field)}":
            return _nvidia_shown(getattr(resolved.settings, field)), origin
    return "-", "not set"


def _nvidia_shown(value: object) -> str:
    match value:
        case bool():
            return str(value).lower()
        case tuple():
            return ",".join(map(str, value)) or "[]"
    return str(value) or "(empty)"


def _show_once_ready(kernel: "Kernel", stopping: threading.Event) -> bool:
    """Print what runs once the kubelet has the devices; return whether that came about."""
    from agent.daemon.startup_report import wait_ready  # noqa: PLC0415 - only for a person

    ready = wait_ready(kernel, stopping)
    if ready is not None:
        show(ready)
    return ready is not None


def show(ready: "Ready") -> None:
    """Print on one page what runs, once the kubelet has the devices."""
    from agent.checks.catalogue import AUDIT, HEALTH  # noqa: PLC0415 - only on a terminal
    from agent.cli.topo.matrix import text  # noqa: PLC0415 - same
    from agent.topology.matrix import matrix  # noqa: PLC0415 - same

    style, snapshot, target = output.style(no_color=False), ready.snapshot, ready.target
    gpus, hcas = len(snapshot.gpus), len(snapshot.hcas or ())
    kind = clean(snapshot.gpus[0].product or "GPU") if gpus else "GPU"
    machine = f"{gpus}x {kind}, {hcas} HCAs"
    if target.simulated is None:
        title = f"node {clean(snapshot.node or '?')}: {machine}"
    else:
        simulated = clean(target.simulated)
        title = f"SIMULATED machine {simulated}: {machine}. None of this hardware is here."

    kubelet = "an embedded stand-in for the kubelet" if target.fake_kubelet else "the kubelet"
    registration, allocations = [], []
    if target.served_by is not None:
        registration.append(f"{clean(target.served_by)}: nothing is registered with the kubelet")
    for one in ready.resources:
        plugin = one.plugin
        registration += [
            f"{one.resource.name}: {plugin.devices} devices registered with {kubelet}",
            f"socket {target.socket_dir / (plugin.endpoint or '?')}",
        ]
        if len(ready.resources) > 1:
            allocations.append(one.resource.name)
        allocations += _allocation(one, snapshot)
    together: list[str] = []
    for pool in ready.pools:
        count = f"{pool.plugin.devices} devices of {len(pool.resource.hcas)} HCAs"
        registration += [
            f"{pool.resource.name}: {count} ({pool.resource.pool.mode}) registered with {kubelet}",
            f"socket {target.socket_dir / (pool.plugin.endpoint or '?')}",
        ]
        if pool.gpus:
            together += _pod_with_both(pool, snapshot)
    if not ready.resources:
        registration.append(f"no GPUs are offered: {ready.why_none}")
    registration += [f"not offered: {clean(refusal.reason)}" for refusal in ready.refusals]

    sections = (
        ("labels", output.table(ready.labels.items(), indent=2)),
        ("registration", _indented(registration)),
        *([("a pod asks for GPUs", _indented(allocations))] if allocations else []),
        *([("a pod asks for GPUs and HCAs", _indented(together))] if together else []),
        ("health", _checks(snapshot, HEALTH, style)),
        ("audit", _checks(snapshot, AUDIT, style)),
        ("metrics", f"  {ready.metrics_url or 'not served'}\n"),
    )
    pages = [f"{style.paint(title, '1')}\n", text(matrix(snapshot), snapshot, style)]
    pages += [f"{style.paint(heading, '1')}\n{body}" for heading, body in sections]
    say("\n".join(pages))


def _allocation(one: "ReadyResource", snapshot: Snapshot) -> Iterator[str]:
    """Yield the answer that the kubelet got for a resource, with the reasons for it."""
    placement = one.placement
    if placement is None:
        yield "no GPU is usable" if one.resource.is_whole else "no device is usable"
        return
    usable = sum(device.is_healthy for device in one.resource.devices)
    verb, answer = "would answer", placement.chosen
    if one.preferred is not None:
        verb, answer = "GetPreferredAllocation answered", one.preferred
    names = _gpu_names(answer, one.resource, snapshot)
    yield f"{len(placement.chosen)} of {usable}: {verb} {names}"
    yield f"policy {placement.rules.policy}, bandwidth model {placement.rules.model}"
    yield from map(clean, placement.reasons)


def _pod_with_both(pool: "ReadyPool", snapshot: Snapshot) -> Iterator[str]:
    """Yield what a container got that asked for GPUs and for devices of *pool*."""
    from agent.topology.matrix import word  # noqa: PLC0415 - only on a terminal

    gpus = [gpu.name for gpu in snapshot.gpus if gpu.id in pool.gpus]
    yield f"{len(gpus)} GPUs, then {len(gpus)} of {pool.resource.name}: {' '.join(gpus)}"
    whole = ", every one of the pool" if pool.resource.pool.mode == "shared" else ""
    yield f"with {clean(' '.join(pool.hcas))}{whole}"
    hcas = snapshot.hcas or ()
    pairs = [
        f"{snapshot.gpus[pair.gpu].name} and {hcas[pair.hca].name}:"
        f" {'distance unknown' if pair.closeness is None else word(pair.closeness)}"
        for pair in pool.pairs
    ]
    yield clean(", ".join(pairs))


def _gpu_names(chosen: Iterable[str], resource: "Resource", snapshot: Snapshot) -> str:
    """Return the GPUs of *chosen*; with a number for each where devices are parts of GPUs."""
    names = {gpu.id: gpu.name for gpu in snapshot.gpus}
    counts = Counter(sorted(names[resource.gpus[name]] for name in chosen))
    if resource.is_whole:
        return " ".join(counts)
    return ", ".join(f"{count} of {name}" for name, count in counts.items())


def _checks(snapshot: Snapshot, rules: "tuple[Rule, ...]", style: Style) -> str:
    """Return the problems that *rules* find, and how many passed and failed."""
    from agent.checks.engine import evaluate  # noqa: PLC0415 - only on a terminal
    from agent.cli import reports  # noqa: PLC0415 - same

    answer = reports.answer(evaluate(snapshot, rules), style)
    summary = answer.table.rstrip("\n").rpartition("\n")[2]
    return _indented([*answer.short.splitlines(), summary])


def _indented(lines: Iterable[str]) -> str:
    return "".join(f"  {line}\n" for line in lines)
