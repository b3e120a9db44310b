"""Topologies for schedulers, made from the labels of a cluster's nodes."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches

from agent.cluster.export.export_forms import FORMS, SCHEDULERS
from agent.cluster.export.export_group import KUBERNETES, LWS
from agent.cluster.export.export_remarks import clash_remarks, node_remarks
from agent.cluster.export.kai import GROVE, KAI, RUNAI
from agent.cluster.export.kueue import KUEUE
from agent.cluster.export.objects import Family
from agent.cluster.export.record import Exported, ExportOptions
from agent.cluster.export.slurm import SLURM
from agent.cluster.export.topograph import TOPOGRAPH
from agent.cluster.export.volcano import VOLCANO
from agent.cluster.levels import choose
from agent.cluster.levels_rules import check_levels
from agent.cluster.node import ClusterNode
from agent.errors import InputError

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
