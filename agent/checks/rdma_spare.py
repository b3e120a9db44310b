"""Ports that carry nothing on purpose: the free ones of cards that serve no GPU."""

from agent.checks.inputs import own_adapters
from agent.checks.rdma_ports import active_ports
from agent.model.hca import Hca
from agent.model.nvlink import Closeness
from agent.model.snapshot import Snapshot
from agent.topology.affinity import hca_closeness


def spare_adapters(snapshot: Snapshot) -> frozenset[str]:
    """Return the names of the HCAs of which a port may be free: another one of the card is active.

    Cards for storage and management often have a port without a cable. Not so cards behind a PCIe
    switch with a GPU: those are there for jobs.
    """
    in_use = {_card(hca) for _, hca, _ in active_ports(snapshot)}
    at_gpus = _names_at_gpus(snapshot)
    return frozenset(
        hca.name
        for hca in own_adapters(snapshot)
        if hca.name not in at_gpus and _card(hca) in in_use
    )


def _card(hca: Hca) -> object:
    """Return what the functions of one card, in one slot, have in common."""
    at = hca.pci
    return hca.name if at is None else (at.domain, at.bus, at.device)


def _names_at_gpus(snapshot: Snapshot) -> frozenset[str]:
    hcas = snapshot.hcas or ()
    return frozenset(
        hcas[position].name
        for (_, position), distance in hca_closeness(snapshot).items()
        if distance <= Closeness.PXB
    )
