"""``nodetopo capture``: the node as a file that every other command reads."""

from argparse import Namespace

from agent.cli.files import STDIO, write_text
from agent.cli.output import note
from agent.cli.parser import Subparsers, add_command, add_style
from agent.cli.source import add_source, load
from agent.model.codec import encode
from agent.model.snapshot import Snapshot


def add(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = add_command(subparsers, "capture", "write the node's snapshot to a file")
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="- for stdout")
    add_style(parser)
    add_source(parser, pods=True)
    parser.set_defaults(run=run)


def run(args: Namespace) -> int:
    """Write the snapshot; 0, or 3 when NVML did not answer and the GPUs are missing from it."""
    snapshot = load(args, needs_gpus=False, pods=True)
    write_text(args.output, encode(snapshot))
    if args.output != STDIO:
        note("wrote", f"{args.output}: {_summary(snapshot)}")
    return 3 if args.incomplete else 0


def _summary(snapshot: Snapshot) -> str:
    counts = [
        (len(snapshot.gpus), "GPU"),
        (len(snapshot.hcas or ()), "HCA"),
        (len(snapshot.pods or ()), "pod"),
        (len(snapshot.issues), "issue"),
    ]
    return ", ".join(f"{count} {noun}{'' if count == 1 else 's'}" for count, noun in counts)
