"""``nodetopo doctor``: what of the cluster's labels keeps workloads from its GPUs."""

from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import replace

from agent.checks.engine import Report
from agent.cli import render
from agent.cli.cluster_source import add_cluster_source, load_nodes
from agent.cli.files import STDIO
from agent.cli.health import add_only
from agent.cli.output import Answer, emit
from agent.cli.parser import Subparsers, add_command, add_output
from agent.cli.progress import progress
from agent.cli.source import add_settings, settings
from agent.cluster.cluster import Cluster
from agent.cluster.doctor.rule import ClusterArea, ClusterRule
from agent.cluster.node import ClusterNode
from agent.errors import InputError, UnreadableError

_EPILOG = (
    "Judged are the Nodes whose labels tell of GPUs, or all that --selector chooses. Levels are "
    "those of --levels, else of the cluster's KAI and Kueue Topologies, else those that the "
    "labels offer. Reads only, each kind of object once, 500 at a time."
)


def add(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = add_command(
        subparsers, "doctor", "check the cluster's labels as schedulers read them", epilog=_EPILOG
    )
    add_only(parser, "levels, owners, nvlink, gangs")
    add = parser.add_argument
    add("--levels", default="", metavar="KEY,…", help="label keys, broadest first")
    add(
        "--group",
        action="append",
        default=[],
        metavar="SIZE@KEY",
        help="a gang: 18@KEY, nodes within one KEY; 64x1@KEY, pods of one GPU; repeatable",
    )
    add(
        "--objects",
        action="append",
        default=[],
        metavar="FILE",
        help="gangs and Topologies as `kubectl get … -A -o json` prints them; repeatable",
    )
    add(
        "--node-snapshot",
        action="append",
        default=[],
        metavar="FILE",
        help="of a node of the cluster, to hold its labels against; repeatable",
    )
    add("--live", action="store_true", help="hold the labels of this node against its NVML")
    add_output(parser)
    add_cluster_source(parser)
    add_settings(parser, ("label_prefix", "node_name"), "labels")
    parser.set_defaults(run=run)


def run(args: Namespace) -> int:
    """Judge the cluster; 1 when a check failed, 3 when one could not tell."""
    # Keeps the other commands fast.
    from agent.cli import report  # noqa: PLC0415
    from agent.cluster.doctor.catalogue import RULES, examine  # noqa: PLC0415

    rules = selected(RULES, args.only)
    if [args.nodes, *args.objects, *args.node_snapshot].count(STDIO) > 1:
        raise InputError("standard input is named twice", "save one of them in a file")
    cluster = _cluster(args, *_gpu_nodes(args))
    with progress("judging the cluster"):
        found = examine(cluster, rules)
    emit(_answer(args, cluster, found, render.style(no_color=args.no_color)), args)
    return report.exit_code(found, strict=args.strict)


def selected(rules: Sequence[ClusterRule], only: Sequence[str]) -> tuple[ClusterRule, ...]:
    """Return those of *rules* that ``--only`` names by area or code, all where it names none.

    Raises:
        InputError: a name is neither.
    """
    names = {name.strip().upper() for argument in only for name in argument.split(",")}
    areas = {area.value.upper() for area in ClusterArea}
    unknown = names - areas - {rule.code for rule in rules}
    if unknown:
        known = ", ".join([*ClusterArea, *(rule.code for rule in rules)])
        raise InputError(f"unknown subject {min(unknown).lower()!r}", f"subjects are: {known}")
    return tuple(
        rule for rule in rules if not names or names & {rule.area.value.upper(), rule.code}
    )


def _gpu_nodes(args: Namespace) -> tuple[tuple[ClusterNode, ...], tuple[str, ...]]:
    """Return the Nodes to judge, and the names of the others."""
    from agent.cluster.gpu_node import gpu_nodes  # noqa: PLC0415 - only this command needs it

    nodes = load_nodes(args)
    found = nodes if args.selector else gpu_nodes(nodes, settings(args).label_prefix)
    if not found:
        cure = "see that the agent runs, or choose the nodes with --selector"
        raise UnreadableError(f"no label of {len(nodes)} Nodes tells of GPUs", cure)
    judged = {node.name for node in found}
    return found, tuple(node.name for node in nodes if node.name not in judged)


def _cluster(args: Namespace, nodes: tuple[ClusterNode, ...], others: tuple[str, ...]) -> Cluster:
    # Keeps the other commands fast.
    from agent.cli.doctor_demands import asked  # noqa: PLC0415
    from agent.cli.doctor_snapshots import snapshots  # noqa: PLC0415
    from agent.cluster.levels_in_use import levels_in_use  # noqa: PLC0415

    prefix = settings(args).label_prefix
    wanted = asked(args)
    named = tuple(key.strip() for key in args.levels.split(",") if key.strip())
    cluster = Cluster(
        nodes=nodes,
        prefix=prefix,
        topologies=levels_in_use(nodes, prefix, named, wanted.topologies),
        gangs=wanted.gangs,
        unread=wanted.unread,
        others=others,
    )
    return replace(cluster, snapshots=snapshots(args, cluster.nodes))


def _answer(args: Namespace, cluster: Cluster, found: Report, style: render.Style) -> Answer:
    from agent.cli import report  # noqa: PLC0415 - keeps the other commands fast
    from agent.cluster.doctor.catalogue import examined_to_plain  # noqa: PLC0415 - same

    told = report.answer(found, style)
    head = "".join(f"{line}\n" for line in _head(cluster, is_chosen=bool(args.selector)))
    return replace(told, plain=examined_to_plain(cluster, found), table=head + told.table)


def _head(cluster: Cluster, *, is_chosen: bool) -> Iterator[str]:
    count, others = len(cluster.nodes), len(cluster.others)
    nodes = f"{count} node{'' if count == 1 else 's'}"
    rest = f"; of {others} more no label tells of any" if others else ""
    yield f"{nodes} that --selector chooses" if is_chosen else f"{nodes} with GPUs{rest}"
    for one in cluster.topologies:
        yield render.clean(f"{one.name}: {' > '.join(one.levels) or 'no level'}")
