"""``nodetopo labels``: what the Node object gets."""

from argparse import Namespace
from collections.abc import Mapping

from agent.cli import output
from agent.cli.output import Answer, emit, warn
from agent.cli.parser import Parser, add_output
from agent.cli.source import add_settings, add_source, given, load, settings


def add(parser: Parser) -> None:
    """Add the flags."""
    add_output(parser)
    add_source(parser)
    add_rules(parser)
    parser.set_defaults(run=run)


def add_places(parser: Parser) -> None:
    """Add the flags of `publish` and `cleanup` that choose outputs."""
    add_settings(parser, ("label_outputs", "nfd_file", "namespace"), "outputs")


def add_rules(parser: Parser, *more: str) -> None:
    """Add the flags that labels are made by, and those of the settings *more*."""
    rules = ("label_prefix", "mig_strategy", "time_slicing", "topology_levels_file")
    add_settings(parser, (*rules, *more), "labels")


def run(args: Namespace) -> int:
    """Print the labels of the snapshot; 0.

    Raises:
        InputError: a setting or a file is invalid.
    """
    # Keeps `completion` and help fast.
    from agent.config.label_rules import label_rules  # noqa: PLC0415
    from agent.labels.catalogue import labels  # noqa: PLC0415
    from agent.labels.completeness import remarks  # noqa: PLC0415

    snapshot, wanted = load(args), settings(args)
    tiers: Mapping[str, str] = {}
    if wanted.topology_levels_file is not None:
        from agent.daemon.labels_loop import NodeTiers  # noqa: PLC0415 - loads PyYAML, structlog

        node = str(given(args).get("node_name") or snapshot.node or wanted.node_name)
        # Labels of other programs are not known here: only what the file says gives tiers.
        place = NodeTiers(wanted.but(node_name=node, topology_levels="off"))
        tiers = place.tiers() or {}
    rules = label_rules(wanted, tiers)
    result = labels(snapshot, rules)
    for text in remarks(snapshot, rules):
        warn(args, text)
    table = output.table(result.items())
    short = "".join(f"{key}={value}\n" for key, value in result.items())
    emit(Answer(plain=result, table=table, short=short), args)
    return 0
