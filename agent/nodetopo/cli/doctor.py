"""``nodetopo doctor``: which of the cluster's labels keep workloads from its GPUs."""

from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from nodetopo.checks.rule import Missing
from nodetopo.cli import output, reports
from nodetopo.cli.cluster_source import api, each_object, load_nodes
from nodetopo.cli.dra_source import Published, published_in
from nodetopo.cli.files import STDIO, read_snapshot_text, reading
from nodetopo.cli.output import emit, progress, warn, warn_each_kind
from nodetopo.cli.source import settings
from nodetopo.errors import ApiUnavailable, DecodeError, InputError, UnreadableError
from nodetopo.formats.signatures import Reader
from nodetopo.model.codec import decode
from nodetopo.model.snapshot import Snapshot
from nodetopo.tools.cluster.cluster import Cluster, Gang, Topology, group
from nodetopo.tools.cluster.demands import demands
from nodetopo.tools.cluster.doctor.catalogue import RULES, examine, examined_to_plain
from nodetopo.tools.cluster.doctor.rule import ClusterArea, ClusterRule
from nodetopo.tools.cluster.kinds import KINDS, OF_LEVELS, TOPOLOGIES, ObjectKind, kind_of
from nodetopo.tools.cluster.levels import levels_in_use
from nodetopo.tools.cluster.node import ClusterNode, gpu_nodes


def run(args: Namespace) -> int:
    """Judge the cluster; 1 when a check failed, 3 when one could not tell."""
    # Keeps the other commands fast.

    rules = selected(RULES, args.only)
    if [args.nodes, *args.objects, *args.node_snapshot].count(STDIO) > 1:
        raise InputError("standard input is named twice", "save one of them in a file")
    everyone = load_nodes(args)
    nodes, others = _gpu_nodes(args, everyone)
    prefix, wanted = settings(args).label_prefix, asked(args)
    published = _published(args, everyone)
    named = tuple(key.strip() for key in args.levels.split(",") if key.strip())
    cluster = Cluster(
        nodes=nodes,
        prefix=prefix,
        topologies=levels_in_use(nodes, prefix, named, wanted.topologies),
        gangs=wanted.gangs,
        unread=wanted.unread,
        others=others,
        published=None if published is None else published.by_node,
        pools=None if published is None else published.pools,
        snapshots=snapshots(args, nodes),
    )
    if args.nodes is not None and not args.only:  # a file of Nodes says nothing about DRA
        rules = tuple(rule for rule in rules if rule.area is not ClusterArea.DRA)
    with progress("judging the cluster"):
        report = examine(cluster, rules)
    style = output.style(no_color=args.no_color)
    answer = reports.answer(report, style, is_whole=args.all)
    head = "".join(f"{line}\n" for line in _head(cluster, is_chosen=bool(args.selector)))
    plain = examined_to_plain(cluster, report)
    emit(replace(answer, plain=plain, table=head + answer.table), args)
    return reports.exit_code(report, strict=args.strict)


def selected(rules: Sequence[ClusterRule], only: Sequence[str]) -> tuple[ClusterRule, ...]:
    """Return the *rules* that ``--only`` names by area or code; all of them without it.

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


def _gpu_nodes(
    args: Namespace, nodes: tuple[ClusterNode, ...]
) -> tuple[tuple[ClusterNode, ...], tuple[str, ...]]:
    """Return the Nodes to judge, and the names of the others."""
    found = nodes if args.selector else gpu_nodes(nodes, settings(args).label_prefix)
    if not found:
        cure = "see that the agent runs, or choose the nodes with --selector"
        raise UnreadableError(f"no label of {len(nodes)} Nodes tells of GPUs", cure)
    judged = {node.name for node in found}
    return found, tuple(node.name for node in nodes if node.name not in judged)


def _head(cluster: Cluster, *, is_chosen: bool) -> Iterator[str]:
    count, others = len(cluster.nodes), len(cluster.others)
    nodes = f"{count} node{'' if count == 1 else 's'}"
    rest = f"; of {others} more no label tells of any" if others else ""
    yield f"{nodes} that --selector chooses" if is_chosen else f"{nodes} with GPUs{rest}"
    for topology in cluster.topologies:
        yield output.clean(f"{topology.name}: {' > '.join(topology.levels) or 'no level'}")


class Asked(Struct, frozen=True, kw_only=True):
    """The demands on the cluster."""

    topologies: tuple[Topology, ...]
    gangs: tuple[Gang, ...] | None  # ``None`` if no flag, file or API server has any
    unread: tuple[Missing, ...]  # gangs that could not be read


def asked(args: Namespace) -> Asked:
    """Return the demands from flags, files and the API server, in this order.

    Raises:
        InputError: a flag or a file cannot be used.
    """
    by_hand = tuple(group(text) for text in args.group)
    files = [_from_file(args, name) for name in args.objects]
    from_files = [document for found in files for document in found or ()]
    from_api, problems = _from_api(args)
    understood = demands((*from_files, *from_api))
    # A file tells of gangs if it holds some, or nothing at all.
    from_any_file = any(
        file is not None and (not file or any(kind not in OF_LEVELS for kind, _ in file))
        for file in files
    )
    is_told = bool(args.group) or args.nodes is None or from_any_file
    return Asked(
        topologies=understood.topologies,
        gangs=(*by_hand, *understood.gangs) if is_told else None,
        unread=tuple(problems),
    )


def _from_file(
    args: Namespace, name: str
) -> tuple[tuple[ObjectKind, Mapping[str, Any]], ...] | None:
    """Return the gangs and levels in the file; ``None`` if it has other content."""
    known, unknown = [], set()
    for item in each_object(name, Reader.OBJECTS, "an object of Kubernetes", _with_kind):
        kind = kind_of(str(item.get("apiVersion")), str(item.get("kind")))
        if kind is None:
            unknown.add(f"{item.get('apiVersion')} {item.get('kind')}")
        else:
            known.append((kind, item))
    warn_each_kind(
        args, (f"{name}: says nothing about gangs or levels: {what}" for what in sorted(unknown))
    )
    return None if unknown and not known else tuple(known)


def _with_kind(at: str, item: dict[str, Any]) -> dict[str, Any]:
    for key in ("apiVersion", "kind"):
        if key not in item:
            raise DecodeError(at, f"no object of Kubernetes: it has no {key}")
    return item


def _from_api(
    args: Namespace,
) -> tuple[tuple[tuple[ObjectKind, Mapping[str, Any]], ...], list[Missing]]:
    """Return the objects of the API server, and the kinds of gangs that could not be listed."""
    cluster = api(args)
    if cluster is None:
        return (), []
    with progress("listing gangs and Topologies"):
        listed = cluster.objects(KINDS)
    unlisted = listed.problems.items()
    of_levels: dict[str, list[str]] = {}
    for kind, problem in unlisted:
        if kind in TOPOLOGIES:
            of_levels.setdefault(problem, []).append(kind.name)
    for problem, kinds in of_levels.items():
        warn(args, f"{', '.join(kinds)}: {problem}")
    gangs = [(kind.name, problem) for kind, problem in unlisted if kind not in TOPOLOGIES]
    return listed.found, [Missing(f"{name}s", problem) for name, problem in gangs]


def _published(args: Namespace, nodes: Sequence[ClusterNode]) -> Published | None:
    """Return the devices that DRA drivers publish for *nodes*; ``None`` if unknown."""
    cluster = api(args)
    if cluster is None:
        return None
    try:
        return published_in(cluster.slices(), nodes)
    except ApiUnavailable as error:
        warn(args, f"ResourceSlices: {error}")
        return None


def snapshots(args: Namespace, nodes: Sequence[ClusterNode]) -> Mapping[str, Snapshot]:
    """Return node name → snapshot, by ``--node-snapshot`` and ``--live``.

    Raises:
        InputError: a file cannot be used, or is of none of *nodes*.
    """
    sources: list[tuple[str, str | None, Snapshot]] = []
    for name in args.node_snapshot:
        text = read_snapshot_text(name)
        with reading(name, text, Reader.SNAPSHOT):
            decoded = decode(text)
        warn_each_kind(args, (f"{name}: {warning}" for warning in decoded.warnings))
        sources.append((name, decoded.snapshot.node, decoded.snapshot))
    if args.live:
        from nodetopo.cli import live  # noqa: PLC0415 - loads the probes

        wanted = settings(args)
        here = live.read(wanted, in_full=False, pods=False)
        sources.append(("--live", wanted.node_name, here.snapshot))

    by_node: dict[str, Snapshot] = {}
    for origin, node, snapshot in sources:
        if node is None:
            raise InputError(
                f"{origin} does not say of which node it is", "capture it with --node-name"
            )
        if node not in {known.name for known in nodes}:
            raise InputError(f"{origin} is of {node!r}, none of the nodes", "check --selector")
        if node in by_node:
            raise InputError(f"{origin} is a second snapshot of {node!r}", "give one of each node")
        by_node[node] = snapshot
    return by_node
