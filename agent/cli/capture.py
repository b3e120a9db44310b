"""``nodetopo capture``: the node as a file that every other command reads, or as raw texts."""

import socket
from argparse import Namespace
from collections.abc import Iterable

from agent.cli.files import STDIO, check_new_directory, write_directory, write_text
from agent.cli.output import escaped, note
from agent.cli.parser import Parser, add_style
from agent.cli.source import add_source, files_of, load, settings
from agent.errors import InputError
from agent.model.codec import encode
from agent.model.snapshot import Snapshot

_EPILOG = (
    "With --raw, DIR gets three files that play this node anywhere: nvml.txt holds every answer "
    "of the NVML library with its return code, sysfs.txt those files of /sys, /proc and the "
    "kubelet that were read, snapshot.json what was found (without pods). With --scrub, serial "
    "numbers, UUIDs, GUIDs, GIDs, MAC addresses, names of the node and of pods are replaced by "
    "invented ones, the same everywhere, and so are images, container ids, node selectors, swap "
    "areas, writers of labels, and values of variables that are not public; kernel parameters and "
    "kubelet settings that are not read are left out. Product names, versions and PCI addresses "
    "stay."
)


def add(parser: Parser) -> None:
    """Add the flags."""
    parser.epilog = _EPILOG
    parser.add_argument(
        "-o", "--output", required=True, metavar="FILE", help="- for stdout; with --raw a new DIR"
    )
    parser.add_argument(
        "--raw", action="store_true", help="write a directory that plays the live node"
    )
    parser.add_argument(
        "--scrub", action="store_true", help="replace what identifies node, devices and pods"
    )
    add_style(parser)
    add_source(parser)
    parser.set_defaults(run=run)


def run(args: Namespace) -> int:
    """Write the snapshot; 0, or 3 when NVML did not answer and the GPUs are missing from it."""
    if args.raw:
        return _run_raw(args)
    snapshot = load(args, needs_gpus=False, pods=True)
    if args.scrub:
        from agent.probes.capture.scrub import Substitutes, scrubbed  # noqa: PLC0415 - only this needs it

        snapshot, done = scrubbed(snapshot, Substitutes(), hosts())
        _note_all(done)
    write_text(args.output, escaped(encode(snapshot)))
    if args.output != STDIO:
        note("wrote", f"{args.output}: {summary(snapshot)}")
    return 3 if args.incomplete else 0


def _run_raw(args: Namespace) -> int:
    wanted = settings(args)
    if any((*files_of(args), args.machine, wanted.snapshot, wanted.machine)):
        raise InputError("--raw reads the live node", "give no other source with it")
    check_new_directory(args.output)
    from agent.cli import live  # noqa: PLC0415 - loads the probes
    from agent.probes.capture.raw import archive_text  # noqa: PLC0415 - same
    from agent.probes.capture.scrub_files import scrub_raw  # noqa: PLC0415 - same

    raw = live.read_raw(wanted)
    if args.scrub:
        raw = scrub_raw(raw, hosts())
    _note_all(raw.left_out)
    texts = {
        "nvml.txt": raw.nvml,
        "sysfs.txt": archive_text(raw),
        "snapshot.json": escaped(encode(raw.snapshot)),
    }
    write_directory(args.output, texts)
    note("wrote", f"{args.output}: {', '.join(texts)}; {summary(raw.snapshot)}")
    if raw.failure is not None:
        note("error", str(raw.failure))
    return 0 if raw.failure is None else 3


def hosts() -> tuple[str, ...]:
    """Return what this host is called, by itself and in its domain."""
    name = socket.gethostname()
    return name, name.partition(".")[0]


def _note_all(done: Iterable[str]) -> None:
    for text in done:
        note("note", text)


def summary(snapshot: Snapshot) -> str:
    """Return how much of what a snapshot holds."""
    counts = [
        (len(snapshot.gpus), "GPU"),
        (len(snapshot.hcas or ()), "HCA"),
        (len(snapshot.pods or ()), "pod"),
        (len(snapshot.issues), "issue"),
    ]
    return ", ".join(f"{count} {noun}{'' if count == 1 else 's'}" for count, noun in counts)
