"""``nodetopo capture``: the node as a file that every other command reads, or as raw texts."""

import socket
from argparse import Namespace
from collections.abc import Iterable

from nodetopo.cli import live
from nodetopo.cli.files import STDIO
from nodetopo.cli.output import escaped, note, progress
from nodetopo.cli.source import files_of, load, settings
from nodetopo.cli.writing import check_new_directory, write_directory, write_text
from nodetopo.errors import InputError
from nodetopo.model.codec import encode
from nodetopo.model.snapshot import Snapshot
from nodetopo.tools.capture.raw import archive_text
from nodetopo.tools.capture.scrub import Substitutes, scrubbed
from nodetopo.tools.capture.scrub_files import scrub_raw


def run(args: Namespace) -> int:
    """Write the snapshot; 0, or 3 when NVML did not answer and the GPUs are missing from it."""
    if args.raw:
        return _run_raw(args)
    snapshot = load(args, needs_gpus=False, pods=True)
    if args.scrub:
        with progress("replacing identifiers"):
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

    raw = live.read_raw(wanted)
    if args.scrub:
        with progress("replacing identifiers"):
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
    """Return this host's names, short and fully qualified."""
    name = socket.gethostname()
    return name, name.partition(".")[0]


def _note_all(done: Iterable[str]) -> None:
    for text in done:
        note("note", text)


def summary(snapshot: Snapshot) -> str:
    """Return the counts of a snapshot's parts."""
    counts = [
        (len(snapshot.gpus), "GPU"),
        (len(snapshot.hcas or ()), "HCA"),
        (len(snapshot.pods or ()), "pod"),
        (len(snapshot.issues), "issue"),
    ]
    return ", ".join(f"{count} {noun}{'' if count == 1 else 's'}" for count, noun in counts)
