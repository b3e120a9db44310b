"""A rule on the PCIe links of HCAs, which unlike those of GPUs do not slow down when idle."""

from collections.abc import Iterator

from agent.checks.inputs import (
    Inputs,
    first_of,
    hca_label,
    missing_hcas,
    missing_machine,
    no_adapters,
    own_adapters,
    unknown_of,
    virtual_machine,
)
from agent.checks.rule import Area, Finding, Rule, Severity, Suite
from agent.model.hca import Hca
from agent.model.pci import PcieLink
from agent.model.snapshot import Snapshot

Ends = tuple[PcieLink, PcieLink]
"""The link as the HCA and as the port above it tell of it."""


def _ends(snapshot: Snapshot) -> Iterator[tuple[Hca, Ends]]:
    """Yield the HCAs below a port; one on the host bridge itself is no PCI Express device."""
    ports = {bridge.address: bridge.link for bridge in snapshot.bridges or ()}
    for hca in own_adapters(snapshot):
        if hca.path is None or len(hca.path.hops) > 1:
            own = None if hca.function is None else hca.function.link
            port = None if hca.path is None else ports.get(hca.path.hops[-2])
            yield hca, (own or PcieLink(), port or PcieLink())


def _reduced(snapshot: Snapshot) -> tuple[Finding, ...]:
    return tuple(
        Finding(
            subject=hca_label(hca),
            observed=f"Gen{ends[0].generation} x{ends[0].width}",
            expected=f"Gen{_possible(ends)[0]} x{_possible(ends)[1]}",
        )
        for hca, ends in _ends(snapshot)
        if _is_known(ends) and _is_less(ends[0], _possible(ends))
    )


def _is_known(ends: Ends) -> bool:
    own, port = ends
    present = own.generation, own.width, own.max_generation, own.max_width
    return None not in (*present, port.max_generation, port.max_width)


def _possible(ends: Ends) -> tuple[int, int]:
    """Return generation and width that both ends can, 0 where unknown."""
    own, port = ends
    generation = min(own.max_generation or 0, port.max_generation or 0)
    return generation, min(own.max_width or 0, port.max_width or 0)


def _is_less(link: PcieLink, possible: tuple[int, int]) -> bool:
    return (link.generation or 0) < possible[0] or (link.width or 0) < possible[1]


def _missing(snapshot: Snapshot) -> Inputs:
    unread = (hca.name for hca, ends in _ends(snapshot) if not _is_known(ends))
    return (
        *missing_hcas(snapshot),
        *missing_machine(snapshot),
        *unknown_of("PCIe link", unread),
    )


RULE = Rule(
    code="RDM-003",
    claim="every HCA runs at the PCIe speed and width that it and its slot can",
    why="An HCA that trained with fewer lanes or an older generation cannot fill its port.",
    area=Area.RDMA,
    suite=Suite.HEALTH,
    severity=Severity.WARNING,
    needs=_missing,
    check=_reduced,
    skips=first_of(no_adapters, virtual_machine),
    remedy="reseat the adapter, then check riser, cable and the slot's settings in firmware",
    reference="https://www.kernel.org/doc/Documentation/ABI/testing/sysfs-bus-pci",
)
