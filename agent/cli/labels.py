"""``nodetopo labels``: what the Node object gets."""

from argparse import Namespace
from dataclasses import replace

from agent.cli import render
from agent.cli.label_places import add_rules
from agent.cli.output import Answer, emit, warn
from agent.cli.parser import Subparsers, add_command, add_output
from agent.cli.source import add_source, given, load, settings


def add(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = add_command(subparsers, "labels", "print the labels that this node gets")
    add_output(parser)
    add_source(parser)
    add_rules(parser)
    parser.set_defaults(run=run)


def run(args: Namespace) -> int:
    """Print the labels of the snapshot; 0.

    Raises:
        InputError: a setting or a file does not do.
    """
    # Keeps the other commands fast.
    from agent.config.label_rules import label_rules  # noqa: PLC0415
    from agent.daemon.node_place import NodePlace  # noqa: PLC0415
    from agent.labels.catalogue import labels  # noqa: PLC0415
    from agent.labels.remarks import remarks  # noqa: PLC0415

    snapshot, wanted = load(args), settings(args)
    node = str(given(args).get("node_name") or snapshot.node or wanted.node_name)
    # Of the labels that other programs write nothing is known here, so no tier follows from them.
    place = NodePlace(replace(wanted, node_name=node, topology_levels="off"))
    rules = label_rules(wanted, place.tiers() or {})
    found = labels(snapshot, rules)
    for text in remarks(snapshot, rules):
        warn(args, text)
    table = render.table(found.items())
    short = "".join(f"{key}={value}\n" for key, value in found.items())
    emit(Answer(plain=found, table=table, short=short), args)
    return 0
