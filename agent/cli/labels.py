"""``nodetopo labels``: what the Node object gets."""

from argparse import Namespace

from agent.cli import render
from agent.cli.output import Answer, emit
from agent.cli.parser import Subparsers, add_command, add_output
from agent.cli.source import add_source, load


def add(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = add_command(subparsers, "labels", "print the labels that this node gets")
    add_output(parser)
    add_source(parser)
    parser.set_defaults(run=run)


def run(args: Namespace) -> int:
    """Print the labels of the snapshot; 0."""
    from agent.labels.catalogue import labels  # noqa: PLC0415 - keeps the other commands fast

    found = labels(load(args))
    table = render.table(found.items())
    short = "".join(f"{key}={value}\n" for key, value in found.items())
    emit(Answer(plain=found, table=table, short=short), args)
    return 0
