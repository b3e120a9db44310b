"""Rules on GPU–NIC complexes of NVIDIA's own design: flags of ports, IOMMU groups, ATS.

They agree with rdma-core's ``rdma_topo check`` where that tool knows the machine
(docs/internals/topology.md). On all other machines PCI-005 and PCI-006 judge.
"""

from collections.abc import Callable, Iterator
from typing import TypeAlias

from nodetopo.checks.inputs import no_gpus, unknown_of, virtual_machine
from nodetopo.checks.rule import Finding, Judgement, Missing, Severity, rule
from nodetopo.components.audit.rules.pcie_paths import missing_pairs
from nodetopo.model.snapshot import Snapshot
from nodetopo.topology.complex_faults import (
    Concern,
    Fault,
    Unread,
    flag_faults,
    group_faults,
    is_of_nvidia,
    translation_faults,
)
from nodetopo.topology.complexes import Complexes, ComplexKind, complexes

Faults: TypeAlias = Iterator[Fault | Unread]


_OVERRIDE = "GrdmaPciTopoCheckOverride"
"""With 1 the driver does not look at IOMMU groups (NVIDIA/open-gpu-kernel-modules, nv-reg.h)."""


def _unless(*kinds: ComplexKind) -> Callable[[Snapshot], str | None]:
    """Return a function to the reason why a node has no complex of *kinds*.

    Complexes of a NUMA node count below root ports of Grace and Vera alone.
    """

    def reason(snapshot: Snapshot) -> str | None:
        if found := no_gpus(snapshot) or virtual_machine(snapshot):
            return found
        if missing_pairs(snapshot):
            return None
        layout = complexes(snapshot)
        is_numa = layout.layout is ComplexKind.NUMA
        if layout.layout in kinds and (not is_numa or any(map(is_of_nvidia, layout.complexes))):
            return None
        return "no GPU and HCA are wired in a way that asks for it"

    return reason


@rule("PCI-008", Severity.ERROR, unless=_unless(ComplexKind.DATA_DIRECT, ComplexKind.INLINE))
def flags_on_the_way(snapshot: Snapshot) -> Judgement:
    """Find ports of the data-direct and inline layouts with other ACS flags."""
    yield from _judged(snapshot, lambda found: flag_faults(found, Concern.WAY))


@rule(
    "PCI-009",
    Severity.WARNING,
    unless=_unless(ComplexKind.DATA_DIRECT, ComplexKind.INLINE, ComplexKind.NUMA),
)
def flags_elsewhere(snapshot: Snapshot) -> Judgement:
    """Find other ports of a known layout with other flags, and devices that share a group."""

    def faults(found: Complexes) -> Faults:
        yield from flag_faults(found, Concern.ISOLATION)
        yield from group_faults(found, is_shared=False)

    yield from _judged(snapshot, faults)


@rule("GDR-004", Severity.ERROR, unless=_unless(ComplexKind.DATA_DIRECT, ComplexKind.INLINE))
def groups(snapshot: Snapshot) -> Judgement:
    """Find Data Direct functions and HCAs whose IOMMU group does not fit their GPU's."""
    parameters = (snapshot.nvidia and snapshot.nvidia.parameters) or {}
    if parameters.get(_OVERRIDE) != "1":
        yield from _judged(snapshot, lambda found: group_faults(found, is_shared=True))


@rule("GDR-005", Severity.WARNING, unless=_unless(ComplexKind.INLINE, ComplexKind.NUMA))
def translation(snapshot: Snapshot) -> Judgement:
    """Find HCAs with address translation where there should be none, or on some alone."""
    yield from _judged(snapshot, translation_faults)


def _judged(
    snapshot: Snapshot, faults: Callable[[Complexes], Faults]
) -> Iterator[Finding | Missing]:
    """Yield the findings of *faults*, then its missing inputs, grouped by kind.

    If a device is missing, all complexes can be wrong, so no verdict is given.
    """
    if missing := missing_pairs(snapshot):
        yield from missing
        return
    unread: dict[str, list[str]] = {}
    for part in faults(complexes(snapshot)):
        if isinstance(part, Fault):
            yield Finding(subject=part.subject, observed=part.observed, expected=part.expected)
        else:
            unread.setdefault(part.what, []).append(part.subject)
    for what, subjects in unread.items():
        yield from unknown_of(what, subjects)
