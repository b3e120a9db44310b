"""What `doctor` knows of the nodes' own hardware: snapshot files, and the node it runs on."""

from argparse import Namespace
from collections.abc import Mapping, Sequence

from agent.cli.files import read_text
from agent.cli.output import warn
from agent.cli.source import settings
from agent.cluster.node import ClusterNode
from agent.errors import DecodeError, InputError
from agent.model.codec import decode
from agent.model.snapshot import Snapshot


def snapshots(args: Namespace, nodes: Sequence[ClusterNode]) -> Mapping[str, Snapshot]:
    """Return node name → snapshot, as ``--node-snapshot`` and ``--live`` ask for.

    Raises:
        InputError: a file cannot be used, or is of none of *nodes*.
    """
    found: dict[str, Snapshot] = {}
    for name in args.node_snapshot:
        snapshot = _from_file(args, name)
        _add(found, nodes, name, snapshot.node, snapshot)
    if args.live:
        from agent.cli import live  # noqa: PLC0415 - loads the probes

        wanted = settings(args)
        reading = live.read(wanted, in_full=False, pods=False)
        for text in reading.warnings:
            warn(args, text)
        _add(found, nodes, "--live", wanted.node_name, reading.snapshot)
    return found


def _add(
    found: dict[str, Snapshot],
    nodes: Sequence[ClusterNode],
    origin: str,
    node: str | None,
    snapshot: Snapshot,
) -> None:
    if node is None:
        raise InputError(
            f"{origin} does not say of which node it is", "capture it with --node-name"
        )
    if node not in {one.name for one in nodes}:
        raise InputError(f"{origin} is of {node!r}, none of the nodes", "check --selector")
    if node in found:
        raise InputError(f"{origin} is a second snapshot of {node!r}", "give one of each node")
    found[node] = snapshot


def _from_file(args: Namespace, name: str) -> Snapshot:
    try:
        decoded = decode(read_text(name))
    except DecodeError as error:
        raise InputError(f"{name}: {error.cause}", error.cure or "check the file") from None
    for warning in decoded.warnings:
        warn(args, f"{name}: {warning}")
    return decoded.snapshot
