"""Where a reader's snapshot comes from: a file, a bundled machine, or the live node."""

import os
from argparse import SUPPRESS, BooleanOptionalAction, Namespace

from agent.cli.files import read_text
from agent.cli.output import note, warn
from agent.cli.parser import Parser
from agent.config import Resolved, Settings, options
from agent.config.settings import key
from agent.errors import DecodeError, InputError, NvmlUnavailable
from agent.machines import bundled
from agent.model.codec import decode
from agent.model.snapshot import Snapshot

_ROOTS = ("sysfs_root", "procfs_root", "host_root", "nvml_library", "node_name")
_PODS = (
    "kubeconfig",
    "pod_resources_socket",
    "kubelet_url",
    "kubelet_ca_file",
    "kubelet_insecure_tls",
)
_MATRIX_MARK = "GPU0"
"""Every ``nvidia-smi topo -m`` text holds it, no JSON snapshot and no XML begins with it."""

_FLAGS = (
    ("--snapshot", "a snapshot"),
    ("--nccl-xml", "XML"),
    ("--topo-m", "`nvidia-smi topo -m`"),
)
"""The flags that take a file, and what they expect in it."""


def add_source(parser: Parser, *, pods: bool = False) -> None:
    """Add the flags that choose the source; *pods* adds those that find running pods."""
    group = parser.add_argument_group("source", "default: the live node")
    source = group.add_mutually_exclusive_group()
    source.add_argument("--snapshot", metavar="FILE", help="a captured snapshot, - for stdin")
    source.add_argument(
        "--machine",
        metavar="NAME",
        help="a bundled machine, see `nodetopo simulate machines`",
    )
    source.add_argument(
        "--topo-m",
        metavar="FILE",
        help="the text of `nvidia-smi topo -m`, - for stdin",
    )
    source.add_argument(
        "--nccl-xml",
        metavar="FILE",
        help="an NCCL topology (NCCL_TOPO_DUMP_FILE), - for stdin",
    )
    add_settings(parser, _ROOTS + (_PODS if pods else ()), "live node")


def add_settings(parser: Parser, names: tuple[str, ...], title: str) -> None:
    """Add a flag for each of the settings *names*; those not given stay out of the result."""
    group = parser.add_argument_group(title)
    for name in names:
        option = options()[name]
        flag = f"--{key(name)}"
        if option.metavar == "BOOL":
            group.add_argument(
                flag, dest=name, action=BooleanOptionalAction, default=SUPPRESS, help=option.help
            )
        else:
            group.add_argument(
                flag, dest=name, metavar=option.metavar, default=SUPPRESS, help=option.help
            )


def given(args: Namespace) -> dict[str, object]:
    """Return the settings that were given as flags, by field name."""
    return {name: value for name, value in vars(args).items() if name in options()}


def resolved(args: Namespace) -> Resolved:
    """Return the daemon's settings and their origins, as flags and its variables give them.

    Raises:
        InputError: one of them does not do.
    """
    flags = {name: value for name, value in given(args).items() if value is not None}
    return Resolved.of(flags=flags, environment=os.environ)


def settings(args: Namespace) -> Settings:
    """Return the daemon's settings, as flags and its variables give them.

    Raises:
        InputError: one of them does not do.
    """
    return resolved(args).settings


def load(
    args: Namespace, *, needs_gpus: bool = True, in_full: bool = False, pods: bool = False
) -> Snapshot:
    """Return the snapshot that the flags ask for; what a file holds too much is a warning.

    Of a live node *in_full* and *pods* are read if asked for (:func:`agent.cli.live.read`).

    Where the live node has no NVML: with *needs_gpus* that ends the command; without, the
    error is printed, the rest of the node returned, and ``args.incomplete`` set.

    Raises:
        InputError: the file or the name cannot be used.
        UnreadableError: the live node will not tell.
    """
    if args.snapshot is not None:
        return _from_snapshot(args, args.snapshot)
    if args.machine is not None:
        return bundled.machine(args.machine)
    if args.topo_m is not None:
        return _from_topo_m(args, args.topo_m)
    if args.nccl_xml is not None:
        return _from_nccl_xml(args, args.nccl_xml)
    return _from_settings(args, needs_gpus=needs_gpus, in_full=in_full or pods, pods=pods)


def _from_snapshot(args: Namespace, name: str) -> Snapshot:
    text = read_text(name)
    try:
        decoded = decode(text)
    except DecodeError as error:
        raise _not_read(name, text, error, "--snapshot") from None
    for warning in decoded.warnings:
        warn(args, f"{name}: {warning}")
    for issue in decoded.snapshot.issues:
        if issue.probe == "nvml" and not decoded.snapshot.gpus:
            warn(args, f"{name}: holds no GPUs, NVML did not answer: {issue.reason}")
    return decoded.snapshot


def _from_topo_m(args: Namespace, name: str) -> Snapshot:
    from agent.probes.importers.topo_m import parse_topo_m  # noqa: PLC0415 - only this source needs it

    text = read_text(name)
    try:
        return _with_warnings(args, name, parse_topo_m(text))
    except DecodeError as error:
        raise _not_read(name, text, error, "--topo-m") from None


def _from_nccl_xml(args: Namespace, name: str) -> Snapshot:
    from agent.probes.importers.nccl_xml import parse_nccl_xml  # noqa: PLC0415 - only this source needs it

    text = read_text(name)
    try:
        return _with_warnings(args, name, parse_nccl_xml(text))
    except DecodeError as error:
        raise _not_read(name, text, error, "--nccl-xml") from None


def _with_warnings(args: Namespace, name: str, snapshot: Snapshot) -> Snapshot:
    """Print what the file leaves unknown beyond its format; return *snapshot*."""
    for issue in snapshot.issues:
        warn(args, f"{name}: {issue.subject}: {issue.reason}")
    return snapshot


def _not_read(name: str, text: str, error: DecodeError, flag: str) -> InputError:
    """Return the error for *text* that *flag* cannot read; name the flag that could."""
    for other, what in _FLAGS:
        if other == _flag_for(text) != flag:
            return InputError(f"{name}: {error.cause}", f"this looks like {what}: use {other}")
    return InputError(f"{name}: {error.cause}", error.cure or "check the file")


def _flag_for(text: str) -> str | None:
    """Return the flag whose files begin as *text* does; ``None`` where it looks like none."""
    head = text.lstrip("\ufeff \t\r\n")[:200]
    if head.startswith("{"):
        return "--snapshot"
    if head.startswith("<"):
        return "--nccl-xml"
    return "--topo-m" if _MATRIX_MARK in head else None


def _from_settings(args: Namespace, *, needs_gpus: bool, in_full: bool, pods: bool) -> Snapshot:
    """Follow the daemon's own variables, so that `kubectl exec` sees what the daemon sees."""
    found = settings(args)
    if found.snapshot is not None:
        return _from_snapshot(args, str(found.snapshot))
    if found.machine is not None:
        return bundled.machine(found.machine)
    from agent.cli import live  # noqa: PLC0415 - loads the probes, which only a live node needs

    reading = live.read(found, in_full=in_full, pods=pods)
    if reading.nvml_failure is not None:
        _without_nvml(args, reading.nvml_failure, needs_gpus=needs_gpus)
    for text in reading.warnings:
        warn(args, text)
    return reading.snapshot


def _without_nvml(args: Namespace, failure: NvmlUnavailable, *, needs_gpus: bool) -> None:
    if needs_gpus:
        raise failure
    note("error", str(failure))
    args.incomplete = True
