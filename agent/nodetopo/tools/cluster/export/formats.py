"""Topologies for schedulers, made from the labels of a cluster's nodes."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from msgspec.structs import replace

from nodetopo.errors import InputError, closest
from nodetopo.tools.cluster.export.kai import GROVE, KAI, RUNAI
from nodetopo.tools.cluster.export.kueue import KUEUE
from nodetopo.tools.cluster.export.objects import KUBERNETES, LWS, Family
from nodetopo.tools.cluster.export.record import (
    FORMS,
    SCHEDULERS,
    Exported,
    ExportOptions,
    Remark,
    check_name,
    hint,
    warning,
)
from nodetopo.tools.cluster.export.slurm import SLURM
from nodetopo.tools.cluster.export.topograph import TOPOGRAPH
from nodetopo.tools.cluster.export.volcano import VOLCANO
from nodetopo.tools.cluster.levels import (
    HOSTNAME,
    Choice,
    check_levels,
    choose,
    dot_clashes,
    named,
    nvlink_keys,
    same_hosts,
    shared_values,
    without_nvlink,
)
from nodetopo.tools.cluster.node import ClusterNode

_SHOWN = 5
"""Clashes of a level that are named before the rest is counted."""


def node_remarks(
    nodes: Sequence[ClusterNode], choice: Choice, options: ExportOptions
) -> Iterator[Remark]:
    """Yield remarks on nodes that the topology leaves out, and on nodes without NVLink."""
    counted = {node.name for node in choice.gpus}
    rest = sorted(node.name for node in nodes if node.name not in counted)
    if rest:
        text = f"{len(rest)} of {len(nodes)} nodes are passed over: no label tells of GPUs there"
        yield hint(f"{text}: {named(rest)}")
    if options.levels or {*choice.keys} & {*nvlink_keys(options.prefix)}:
        return
    apart = without_nvlink(choice.gpus, options.prefix)
    if 0 < len(apart) < len(choice.gpus):
        key = f"{options.prefix}interconnect"
        kinds = sorted({node.labels[key] for node in choice.gpus if node.name in apart})
        others = ",".join(f"{key}!={kind}" for kind in kinds)
        these = " and ".join(f"--selector {key}={kind}" for kind in kinds)
        pools = f"with --selector {others}, and under another --name with {these}"
        yield hint(f"for the levels of NVLink export in two: {pools}")


def clash_remarks(family: Family, choice: Choice, options: ExportOptions) -> Iterator[Remark]:
    """Yield remarks on values that this consumer takes for one place or for two."""
    hosts = same_hosts(choice.nodes, choice.keys)
    for host, names in hosts[:_SHOWN]:
        text = f"{HOSTNAME}={host} is on {named(names)}: one place to every scheduler"
        yield warning(text)
    yield from _more(len(hosts), f"values of {HOSTNAME}")
    if family.joins_by_dots:
        clashes = dot_clashes(choice.nodes, choice.keys)
        for clash in clashes[:_SHOWN]:
            ways = named(["/".join(path) for path in clash.paths], " and ")
            text = f"at {clash.key}, {ways} are one place, {clash.name!r}, to KAI"
            yield warning(f"{text}: take values without dots")
        yield from _more(len(clashes), "places that are one to KAI")
    outcome = (
        "one place to this scheduler" if family.merges(options) else "a separate place in each"
    )
    by_key = groupby(shared_values(choice.nodes, choice.keys), key=lambda shared: shared.key)
    for key, group in by_key:
        values = tuple(group)
        for shared in values[:_SHOWN]:
            where = f"{shared.parent_key} {named(shared.parents)}"
            yield warning(f"{key}={shared.value} lies in {where}: {outcome}")
        yield from _more(len(values), f"values of {key}")


def _more(count: int, what: str) -> Iterator[Remark]:
    if count > _SHOWN:
        yield warning(f"so it is with {count - _SHOWN} more {what}: `nodetopo doctor` names them")


_FAMILIES: Mapping[str, Family] = {
    family.name: family
    for family in (KAI, KUEUE, VOLCANO, KUBERNETES, GROVE, LWS, RUNAI, SLURM, TOPOGRAPH)
}


__all__ = ["FORMS", "SCHEDULERS", "ExportOptions", "Exported", "export"]


_NO_OPTIONS = ExportOptions()


def export(
    scheduler: str, nodes: Sequence[ClusterNode], options: ExportOptions = _NO_OPTIONS
) -> Exported:
    """Return the topology of *nodes* in the form of *scheduler*.

    The answer does not depend on the order of nodes.

    Raises:
        NothingFound: the nodes' labels have no topology.
        InputError: an unknown scheduler, or options that it would refuse.
    """
    if scheduler not in _FAMILIES:
        close = closest(scheduler, SCHEDULERS)
        cure = f"did you mean {close!r}?" if close else f"known are: {', '.join(SCHEDULERS)}"
        raise InputError(f"unknown scheduler {scheduler!r}", cure)
    family, forms = _FAMILIES[scheduler], FORMS[scheduler]
    if options.form is not None and options.form not in forms:
        known = f"known are: {', '.join(forms)}"
        cure = known if forms else "there is one form only: leave it out"
        raise InputError(f"unknown form {options.form!r} of {scheduler}", cure)
    check_name(options.name)
    options = replace(options, form=options.form or next(iter(forms), None))
    choice = choose(nodes, options.prefix, options.levels)
    check_levels(choice.keys, family.max_key)
    exported = family.build(choice, options)
    remarks = (
        *choice.remarks,
        *node_remarks(nodes, choice, options),
        *clash_remarks(family, choice, options),
        *exported.remarks,
    )
    return replace(exported, remarks=remarks)
