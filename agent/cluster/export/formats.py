"""Topologies for schedulers, made from the labels of a cluster's nodes."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from itertools import groupby

from agent.cluster.export.kai import GROVE, KAI, RUNAI
from agent.cluster.export.kueue import KUEUE
from agent.cluster.export.objects import KUBERNETES, LWS, Family
from agent.cluster.export.record import (
    FORMS,
    SCHEDULERS,
    Exported,
    ExportOptions,
    Remark,
    hint,
    warning,
)
from agent.cluster.export.slurm import SLURM
from agent.cluster.export.topograph import TOPOGRAPH
from agent.cluster.export.volcano import VOLCANO
from agent.cluster.levels import (
    HOSTNAME,
    Choice,
    SharedValue,
    check_levels,
    choose,
    dot_clashes,
    named,
    nvlink_keys,
    same_hosts,
    shared_values,
    without_nvlink,
)
from agent.cluster.node import ClusterNode
from agent.errors import InputError

# What a person should know of the nodes and the levels behind an export.

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


_FAMILIES: Mapping[str, Family] = {
    family.name: family
    for family in (KAI, KUEUE, VOLCANO, KUBERNETES, GROVE, LWS, RUNAI, SLURM, TOPOGRAPH)
}


_NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
"""What Run:ai and LWS, the strictest, take as a name; the others take more."""


__all__ = ["FORMS", "SCHEDULERS", "ExportOptions", "Exported", "export"]


_NO_OPTIONS = ExportOptions()


def export(
    scheduler: str, nodes: Sequence[ClusterNode], options: ExportOptions = _NO_OPTIONS
) -> Exported:
    """Return what *scheduler* is to be given so that it knows how *nodes* are joined.

    The answer depends on the nodes alone, not on their order.

    Raises:
        InputError: an unknown scheduler, options that it would refuse, or nodes whose labels
            make no topology.
    """
    family = _family(scheduler)
    options = replace(options, form=_form(scheduler, options.form))
    _check_name(options.name)
    choice = choose(nodes, options.prefix, options.levels)
    check_levels(choice.keys, family.max_key)
    found = family.build(choice, options)
    remarks = (
        *choice.remarks,
        *node_remarks(nodes, choice, options),
        *clash_remarks(family, choice, options),
        *found.remarks,
    )
    return replace(found, remarks=remarks)


def _family(scheduler: str) -> Family:
    if scheduler in _FAMILIES:
        return _FAMILIES[scheduler]
    close = get_close_matches(scheduler, SCHEDULERS, n=1)
    cure = f"did you mean {close[0]!r}?" if close else f"known are: {', '.join(SCHEDULERS)}"
    raise InputError(f"unknown scheduler {scheduler!r}", cure)


def _form(scheduler: str, asked: str | None) -> str | None:
    """Return the form to export; ``None`` where there is one only."""
    forms = FORMS[scheduler]
    if asked is None or asked in forms:
        return asked or next(iter(forms), None)
    cure = f"known are: {', '.join(forms)}" if forms else "there is one form only: leave it out"
    raise InputError(f"unknown form {asked!r} of {scheduler}", cure)


def _check_name(name: str) -> None:
    if _NAME.fullmatch(name) is None:
        cure = "a letter, then up to 62 of a-z, 0-9 and -, not - at the end"
        raise InputError(f"not a usable name: {name!r}", cure)
