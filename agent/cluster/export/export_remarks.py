"""What a person should know of the nodes and the levels behind an export."""

from collections.abc import Iterator, Sequence
from itertools import groupby

from agent.cluster.export.objects import Family
from agent.cluster.export.record import ExportOptions, Remark, hint, warning
from agent.cluster.levels import Choice, named, nvlink_keys
from agent.cluster.levels_clash import SharedValue, dot_clashes, same_hosts, shared_values
from agent.cluster.levels_rules import HOSTNAME
from agent.cluster.node import ClusterNode
from agent.cluster.nvlink_nodes import without_nvlink

_TOLD = 5
"""Clashes of one level that are told before the rest is counted."""


def node_remarks(
    nodes: Sequence[ClusterNode], choice: Choice, options: ExportOptions
) -> Iterator[Remark]:
    """Yield which of *nodes* the topology passes over, and which keep NVLink out of it."""
    counted = {node.name for node in choice.gpus}
    rest = sorted(node.name for node in nodes if node.name not in counted)
    if rest:
        text = f"{len(rest)} of {len(nodes)} nodes are passed over: no label tells of GPUs there"
        yield hint(f"{text}: {named(rest)}")
    if options.levels or {*choice.keys} & {*nvlink_keys(options.prefix)}:
        return
    apart = without_nvlink(choice.gpus, options.prefix)
    if 0 < len(apart) < len(choice.gpus):
        yield hint(f"for the levels of NVLink export in two: {_pools(choice, options, apart)}")


def _pools(choice: Choice, options: ExportOptions, apart: frozenset[str]) -> str:
    key = f"{options.prefix}interconnect"
    kinds = sorted({node.labels[key] for node in choice.gpus if node.name in apart})
    others = ",".join(f"{key}!={kind}" for kind in kinds)
    these = " and ".join(f"--selector {key}={kind}" for kind in kinds)
    return f"with --selector {others}, and under another --name with {these}"


def clash_remarks(family: Family, choice: Choice, options: ExportOptions) -> Iterator[Remark]:
    """Yield what is wrong with the values, as this consumer reads them."""
    hosts = same_hosts(choice.nodes, choice.keys)
    for host, names in hosts[:_TOLD]:
        text = f"{HOSTNAME}={host} is on {named(names)}: one place to every scheduler"
        yield warning(text)
    yield from _more(len(hosts), f"values of {HOSTNAME}")
    if family.joins_by_dots:
        clashes = dot_clashes(choice.nodes, choice.keys)
        for clash in clashes[:_TOLD]:
            ways = named(["/".join(path) for path in clash.paths], " and ")
            text = f"at {clash.key}, {ways} are one place, {clash.name!r}, to KAI"
            yield warning(f"{text}: take values without dots")
        yield from _more(len(clashes), "places that are one to KAI")
    outcome = (
        "one place to this scheduler" if family.merges(options) else "a place of its own in each"
    )
    for key, shared in groupby(shared_values(choice.nodes, choice.keys), key=_key):
        found = tuple(shared)
        for one in found[:_TOLD]:
            where = f"{one.parent_key} {named(one.parents)}"
            yield warning(f"{key}={one.value} lies in {where}: {outcome}")
        yield from _more(len(found), f"values of {key}")


def _key(shared: SharedValue) -> str:
    return shared.key


def _more(count: int, what: str) -> Iterator[Remark]:
    if count > _TOLD:
        yield warning(f"so it is with {count - _TOLD} more {what}: `nodetopo doctor` names them")
