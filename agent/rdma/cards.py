"""The HCAs that GPUs reach other nodes through, and what they speak."""

from collections import Counter
from collections.abc import Mapping

from agent.model.hca import ACTIVE, Hca, LinkLayer
from agent.model.snapshot import Snapshot
from agent.rdma.selection import job_hcas, nearest_cards

PROTOCOLS: Mapping[LinkLayer, str] = {LinkLayer.INFINIBAND: "ib", LinkLayer.ETHERNET: "roce"}
"""What jobs speak through a port of that layer."""


def network_cards(snapshot: Snapshot) -> tuple[int, ...] | None:
    """Return the positions of the cards that GPUs reach other nodes through; ``None``: unknown.

    They are nearest to some GPU, and of one link layer: the one that more GPUs have nearest, then
    InfiniBand. Where no distance is known, all cards of one layer count.
    """
    nearest = nearest_cards(snapshot)
    if nearest is None:
        return None
    hcas = snapshot.hcas or ()
    groups = nearest or (frozenset(job_hcas(snapshot)),)
    votes = Counter(layer for group in groups for layer in {layer_of(hcas[at]) for at in group})
    if not votes:
        return ()
    chosen = max(votes, key=lambda layer: (votes[layer], layer is LinkLayer.INFINIBAND))
    return tuple(at for at in sorted(set().union(*groups)) if layer_of(hcas[at]) is chosen)


def layer_of(hca: Hca) -> LinkLayer | None:
    """Return what *hca* speaks, by its active ports if any are; ``None`` where it is not known."""
    layers = [port.layer for port in hca.ports if port.state == ACTIVE] or [
        port.layer for port in hca.ports
    ]
    return next((layer for layer in PROTOCOLS if layer in layers), None)
