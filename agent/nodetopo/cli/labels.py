"""``nodetopo labels``: the labels of the Node object."""

from argparse import Namespace
from collections.abc import Mapping

from nodetopo.cli import output
from nodetopo.cli.output import Answer, emit, warn
from nodetopo.cli.settings import given
from nodetopo.cli.source import load, settings
from nodetopo.components.labels.catalogue import labels
from nodetopo.components.labels.completeness import remarks
from nodetopo.components.labels.label_rules import label_rules


def run(args: Namespace) -> int:
    """Print the labels of the snapshot; 0.

    Raises:
        InputError: a setting or a file is invalid.
    """
    # Keeps `completion` and help fast.

    snapshot, wanted = load(args), settings(args)
    tiers: Mapping[str, str] = {}
    if wanted.topology_levels_file is not None:
        from nodetopo.components.labels.loop import (  # noqa: PLC0415 - loads PyYAML, structlog
            NodeTiers,
        )

        node = str(given(args).get("node_name") or snapshot.node or wanted.node_name)
        # Labels of other programs are unknown here: only the file gives tiers.
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
