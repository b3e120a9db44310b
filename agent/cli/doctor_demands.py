"""Where `doctor` learns of gangs and Topologies: flags, files, and the API server."""

from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent.cli.cluster_file import found, not_usable, objects
from agent.cli.cluster_source import api
from agent.cli.output import warn
from agent.cli.progress import progress
from agent.cluster.demands import demands
from agent.cluster.gang import Gang, group
from agent.cluster.kinds import KINDS, OF_LEVELS, TOPOLOGIES, Kind, kind_of
from agent.cluster.topology import Topology
from agent.errors import DecodeError


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is asked of the cluster.

    Attributes:
        gangs: ``None`` where neither a flag nor a file nor the API server tells of any.
        unread: what of the gangs could not be learnt.
    """

    topologies: tuple[Topology, ...]
    gangs: tuple[Gang, ...] | None
    unread: tuple[str, ...]


def asked(args: Namespace) -> Asked:
    """Return what flags, files and the API server ask of the cluster, in this order.

    Raises:
        InputError: a flag or a file cannot be used.
    """
    by_hand = tuple(group(text) for text in args.group)
    files = [_from_file(args, name) for name in args.objects]
    from_files = [one for found in files for one in found or ()]
    from_api, problems = _from_api(args)
    understood = demands((*from_files, *from_api))
    is_told = bool(args.group) or args.nodes is None or any(map(_tells_of_gangs, files))
    return Asked(
        topologies=understood.topologies,
        gangs=(*by_hand, *understood.gangs) if is_told else None,
        unread=tuple(problems),
    )


def _tells_of_gangs(of_file: Sequence[tuple[Kind, Mapping[str, Any]]] | None) -> bool:
    """Return whether somebody looked for gangs: some are there, or nothing at all."""
    if of_file is None:
        return False
    return not of_file or any(kind not in OF_LEVELS for kind, _found in of_file)


def _from_file(args: Namespace, name: str) -> tuple[tuple[Kind, Mapping[str, Any]], ...] | None:
    """Return what the file tells of gangs and levels; ``None`` where it is about other things."""
    known, unknown = [], set()
    with progress(f"reading {name}"):
        for at, item in objects(name):
            if not isinstance(item, dict):
                problem = f"expected an object of Kubernetes, found {found(item)}"
                raise not_usable(name, DecodeError(at, problem))
            kind = kind_of(str(item.get("apiVersion")), str(item.get("kind")))
            if kind is None:
                unknown.add(f"{item.get('apiVersion')} {item.get('kind')}")
            else:
                known.append((kind, item))
    for what in sorted(unknown):
        warn(args, f"{name}: says nothing about gangs or levels: {what}")
    return None if unknown and not known else tuple(known)


def _from_api(args: Namespace) -> tuple[tuple[tuple[Kind, Mapping[str, Any]], ...], list[str]]:
    """Return the objects of the API server, and why gangs among them could not be listed."""
    connect = api(args)
    if connect is None:
        return (), []
    from agent.publish.labels.cluster_objects import cluster_objects  # noqa: PLC0415 - structlog, 0.2 s

    with progress("listing gangs and Topologies"):
        listed = cluster_objects(connect, KINDS)
    problems = []
    for kind, problem in listed.problems.items():
        if kind in TOPOLOGIES:
            warn(args, f"{kind.name}: {problem}")
        else:
            problems.append(f"{kind.name}s ({problem})")
    return listed.found, problems
