"""``nodetopo labels``: what the Node object gets."""

from argparse import Namespace
from dataclasses import replace

from agent.cli import output
from agent.cli.output import Answer, emit, warn
from agent.cli.parser import Parser, add_output
from agent.cli.source import add_settings, add_source, given, load, settings

# What `publish`, `cleanup` and `labels` share: the flags that say which labels, and where.

_PLACES = ("label_outputs", "nfd_file", "namespace", "kubeconfig")


_RULES = ("label_prefix", "mig_strategy", "time_slicing", "topology_levels_file")


def add_places(parser: Parser) -> None:
    """Add the flags that choose outputs."""
    add_settings(parser, _PLACES, "outputs")


def add_rules(parser: Parser, *more: str) -> None:
    """Add the flags that labels are made by, and those of the settings *more*."""
    add_settings(parser, (*_RULES, *more), "labels")


def add(parser: Parser) -> None:
    """Add the flags."""
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
    from agent.daemon.labels_loop import NodePlace  # noqa: PLC0415
    from agent.labels.catalogue import labels  # noqa: PLC0415
    from agent.labels.completeness import remarks  # noqa: PLC0415

    snapshot, wanted = load(args), settings(args)
    node = str(given(args).get("node_name") or snapshot.node or wanted.node_name)
    # Of the labels that other programs write nothing is known here, so no tier follows from them.
    place = NodePlace(replace(wanted, node_name=node, topology_levels="off"))
    rules = label_rules(wanted, place.tiers() or {})
    found = labels(snapshot, rules)
    for text in remarks(snapshot, rules):
        warn(args, text)
    table = output.table(found.items())
    short = "".join(f"{key}={value}\n" for key, value in found.items())
    emit(Answer(plain=found, table=table, short=short), args)
    return 0
