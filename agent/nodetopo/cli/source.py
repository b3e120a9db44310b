"""Where a reader's snapshot comes from: a file, a bundled machine, or the live node."""

import os
from argparse import Namespace
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from nodetopo.cli.files import STDIO, read_snapshot_text, read_text, reading
from nodetopo.cli.output import note, warn, warn_each_kind
from nodetopo.errors import InputError, NvmlUnavailable
from nodetopo.formats.signatures import Reader
from nodetopo.machines import bundled
from nodetopo.model.codec import decode
from nodetopo.model.kubernetes import release
from nodetopo.model.qos import asks_as_a_pod
from nodetopo.model.snapshot import Snapshot

if TYPE_CHECKING:  # a file or a bundled machine needs no settings, and these load half the agent
    from nodetopo.kernel.settings.declare import Settings
    from nodetopo.probes.pods.manifest import Manifest

VARIABLES = "NODETOPO_"
"""Begins every variable that is a setting: ``nodetopo.kernel.settings.declare.PREFIX``, without
loading it."""

EXAMPLE = "dgx-h100"
"""The bundled machine that people without GPUs are pointed to, as in the documentation."""

NVML_NOT_FOUND = 12
"""``NVML_ERROR_LIBRARY_NOT_FOUND`` (nvml.h): this machine has no NVIDIA driver, or hides it."""

_HARDWARE = (
    ("pcie", "bridges", "PCI bridges"),
    ("numa", "numa_nodes", "NUMA nodes"),
    ("rdma", "hcas", "HCAs"),
)
"""Probes, the field of a snapshot that each leaves out when it fails as a whole, and its name."""


def is_configured(args: Namespace, name: str) -> bool:
    """Return whether the setting *name* can have a value, by its flag or a variable."""
    return hasattr(args, name) or any(variable.startswith(VARIABLES) for variable in os.environ)


def settings(args: Namespace) -> "Settings":
    """Return the daemon's settings, as flags and its variables give them.

    Raises:
        InputError: one of them is invalid.
    """
    from nodetopo.cli.settings import resolved  # noqa: PLC0415 - as above

    return resolved(args).settings


class Unread(NamedTuple):
    """A missing input of a command: *line* reports it on standard error, after its *kind*.

    *cure* is the cure for *cause*; ``None`` if unknown.
    """

    kind: str
    line: str
    cause: str
    cure: str | None = None

    def note(self) -> None:
        """Print the line."""
        note(self.kind, self.line)


def load(
    args: Namespace,
    *,
    needs_gpus: bool = True,
    in_full: bool = False,
    pods: bool = False,
    needs_hardware: bool = True,
    is_reported: bool = False,
) -> Snapshot:
    """Return the snapshot by the flags; unknown content of a file causes a warning.

    For a live node, *in_full* and *pods* read more (:func:`nodetopo.cli.live.read`).

    If the live node has no NVML: with *needs_gpus* that ends the command; without, the error is
    printed, the rest of the node returned, and ``args.incomplete`` set. Without *needs_hardware*,
    other unreadable parts of the machine cause no warning. With *is_reported* nothing is printed:
    the command reports missing inputs, and ``args.unread`` has its other remarks.

    Raises:
        InputError: the file or the name cannot be used.
        UnreadableError: the live node cannot be read.
    """
    snapshot, unread = _loaded(args, needs_gpus=needs_gpus, in_full=in_full, pods=pods)
    args.unread = (*unread, *(_unread_hardware(snapshot) if needs_hardware else ()))
    for one in args.unread:
        if one.kind == "warning":
            args.warnings.append(one.line)
        if not is_reported:
            one.note()
    return snapshot


def _loaded(
    args: Namespace, *, needs_gpus: bool, in_full: bool, pods: bool
) -> tuple[Snapshot, tuple[Unread, ...]]:
    if args.snapshot is not None:
        return from_snapshot(args, args.snapshot)
    if args.machine is not None:
        return bundled.machine(args.machine), ()
    if any(text is not None for text in (args.topo_m, args.nccl_xml)):
        return _from_text(args), ()
    # The daemon's own variables count too, so that `kubectl exec` sees what the daemon sees.
    wanted = settings(args)
    if wanted.snapshot is not None:
        return from_snapshot(args, str(wanted.snapshot))
    if wanted.machine is not None:
        return bundled.machine(wanted.machine), ()
    from nodetopo.cli import live  # noqa: PLC0415 - loads the probes, which only a live node needs

    reading = live.read(wanted, in_full=in_full or pods, pods=pods)
    unread = [Unread("warning", f"{what}: {cause}", cause) for what, cause in reading.unread]
    if (failure := reading.nvml_failure) is not None:
        if getattr(args, "dry_run", True):  # no other machine's labels can be published
            failure = with_example(failure)
        if needs_gpus:
            raise failure
        args.incomplete = True
        unread.insert(0, Unread("error", str(failure), failure.cause, failure.cure))
    return reading.snapshot, tuple(unread)


def with_example(failure: NvmlUnavailable) -> NvmlUnavailable:
    """Return *failure*; where there is no NVML at all its cure also names a bundled machine.

    A driver that is there and fails is to be repaired: no other machine answers for it.
    """
    if failure.code != NVML_NOT_FOUND:
        return failure
    other = f"try `--machine {EXAMPLE}`"
    cure = f"{failure.cure}, or {other}" if failure.cure else other
    return NvmlUnavailable(failure.cause, cure, code=failure.code)


def _unread_hardware(snapshot: Snapshot) -> Iterator[Unread]:
    """Yield the parts of the machine, other than GPUs, that a probe could not read at all."""
    for probe, name, what in _HARDWARE:
        reasons = [
            f"{issue.subject}: {issue.reason}" for issue in snapshot.issues if issue.probe == probe
        ]
        if reasons and getattr(snapshot, name) is None:
            yield Unread("warning", f"not known: {what} ({reasons[0]})", reasons[0])


def files_of(args: Namespace) -> tuple[str | None, ...]:
    """Return the files that the flags of :func:`add_source` name."""
    return args.snapshot, args.topo_m, args.nccl_xml


def is_live(args: Namespace) -> bool:
    """Return whether :func:`load` reads this node.

    Raises:
        InputError: a setting is invalid.
    """
    if any((args.snapshot, args.machine, args.topo_m, args.nccl_xml)):
        return False
    wanted = settings(args)
    return wanted.snapshot is None and wanted.machine is None


def from_snapshot(args: Namespace, name: str) -> tuple[Snapshot, tuple[Unread, ...]]:
    """Return the snapshot in the file *name*, and its missing inputs.

    Raises:
        InputError: the file cannot be read, or is no snapshot.
    """
    text = read_snapshot_text(name)
    with reading(name, text, Reader.SNAPSHOT):
        decoded = decode(text)
    warn_each_kind(args, (f"{name}: {warning}" for warning in decoded.warnings))
    snapshot, what = decoded.snapshot, f"{name}: holds no GPUs, NVML did not answer"
    reasons = [issue.reason for issue in snapshot.issues if issue.probe == "nvml"]
    unread = () if snapshot.gpus else reasons
    return snapshot, tuple(Unread("warning", f"{what}: {reason}", reason) for reason in unread)


def _from_text(args: Namespace) -> Snapshot:
    """Return the snapshot of another tool's output; missing facts cause a warning."""
    # Each reader is loaded only if its flag is given.
    if args.topo_m is not None:
        from nodetopo.tools.importers.topo_m import parse_topo_m  # noqa: PLC0415 - as above

        reader, name, parse = Reader.TOPO_M, args.topo_m, parse_topo_m
    else:
        from nodetopo.tools.importers.nccl_xml import parse_nccl_xml  # noqa: PLC0415 - as above

        reader, name, parse = Reader.NCCL_XML, args.nccl_xml, parse_nccl_xml
    text = read_text(name)
    with reading(name, text, reader):
        snapshot = parse(text)
    warn_each_kind(args, (f"{name}: {issue.subject}: {issue.reason}" for issue in snapshot.issues))
    return snapshot


def manifest_of(args: Namespace) -> str:
    """Return the text of the file that ``--manifest`` names."""
    if args.manifest == STDIO and STDIO in files_of(args):
        raise InputError("standard input is named twice", "save one of them in a file")
    return read_text(args.manifest)


def read_manifest_of(text: str, args: Namespace, snapshot: Snapshot) -> "Manifest":
    """Return the pods of the manifest *text*, a controller's template as one pod.

    Defaults follow an API server of the kubelet's release; a warning names the assumed release if
    it is unknown and matters, others name what the manifest loses by keys that stand twice.
    """
    from nodetopo.probes.pods.manifest import read_manifest  # noqa: PLC0415 - loads PyYAML

    name, known = args.manifest, release(snapshot.kubelet_version)
    with reading(name, text, Reader.MANIFEST):
        manifest = read_manifest(text, known)
    warn_each_kind(args, (f"{name}: {warning}" for warning in manifest.warnings))
    if known is None and any(map(asks_as_a_pod, manifest.pods)):
        what = "the kubelet's version is not known"
        warn(args, f"{name}: {what}: resources of a whole pod are completed as up to 1.36")
    return manifest
