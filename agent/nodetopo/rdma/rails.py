"""The rails of a node: the cards through which its GPUs reach those of other nodes.

Placement, the labels, the advice for NCCL and the pools of HCAs all mean the same cards:

- no software device, and no part of a card that the node has as a whole;
- nearest to some GPU, by nvidia-smi's levels. What lies farther from every GPU is for storage or
  management;
- of equally near cards none of a slower model, which is for storage or management too, as NCCL
  uses the fastest. A model shows its speed by its ports that are up. Where all are down, it counts
  as the fastest if a port states a higher rate, or if its chip is faster (:data:`CHIP_GBPS`) and
  the node has more of it: cards for storage are fewer than rails;
- of one link layer, since a job speaks one.

What a link happens to have trained to is no part of it, nor is whether a port is up: a card stays a
rail when its cable is bad. Only :func:`usable_cards` asks for the ports.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from nodetopo.model.hca import ACTIVE, Hca, HcaKind, LinkLayer
from nodetopo.model.snapshot import Snapshot
from nodetopo.topology.affinity import hca_closeness

PROTOCOLS: Mapping[LinkLayer, str] = {LinkLayer.INFINIBAND: "ib", LinkLayer.ETHERNET: "roce"}
"""What jobs speak through a port of that layer."""

CHIP_GBPS: Mapping[tuple[str | None, str | None], int] = {
    ("15b3", "1013"): 100,  # ConnectX-4
    ("15b3", "1017"): 100,  # ConnectX-5
    ("15b3", "1019"): 100,  # ConnectX-5 Ex
    ("15b3", "101b"): 200,  # ConnectX-6
    ("15b3", "101d"): 200,  # ConnectX-6 Dx
    ("15b3", "1021"): 400,  # ConnectX-7
    ("15b3", "1023"): 800,  # ConnectX-8
    ("15b3", "a2d6"): 200,  # BlueField-2
    ("15b3", "a2dc"): 400,  # BlueField-3
    ("14e4", "1750"): 200,  # BCM57508
    ("14e4", "1760"): 400,  # BCM57608
}
"""Gb/s of one port by vendor and device id (pci.ids; the vendors' product briefs). Boards can be
slower, so it only tells what a chip can be."""

_PARTS = {HcaKind.VIRTUAL, HcaKind.SUBFUNCTION}


def network_cards(snapshot: Snapshot) -> tuple[int, ...] | None:
    """Return the positions of the cards that GPUs reach other nodes through; ``None``: unknown.

    They are nearest to some GPU, and of one link layer: the one that more GPUs have nearest, then
    InfiniBand. Where no distance is known, all cards of one layer count, and a card of unknown
    layer counts everywhere.
    """
    nearest = nearest_cards(snapshot)
    if nearest is None:
        return None
    hcas = snapshot.hcas or ()
    groups = nearest or (frozenset(job_hcas(snapshot)),)
    votes = Counter(layer for group in groups for layer in {layer_of(hcas[at]) for at in group})
    del votes[None]
    chosen = max(votes, key=lambda it: (votes[it], it is LinkLayer.INFINIBAND), default=None)
    return tuple(
        at
        for at in sorted(set().union(*groups))
        if not votes or layer_of(hcas[at]) in (chosen, None)
    )


def usable_cards(snapshot: Snapshot) -> tuple[int, ...]:
    """Return the positions of the rails that are not down: a port without a link serves no GPU.

    Where it is unknown which cards are rails, every card counts.
    """
    hcas, rails = snapshot.hcas or (), network_cards(snapshot)
    cards = job_hcas(snapshot) if rails is None else rails
    return tuple(at for at in cards if not hcas[at].is_down)


def nearest_by_gpu(snapshot: Snapshot) -> Mapping[int, frozenset[int]] | None:
    """Return for each GPU, by index, the positions of its nearest cards, without slower models.

    GPUs of which no distance is known are left out. ``None`` where HCAs were not read, without
    GPUs, and where the place of a lost GPU is unknown: the cards near it count.
    """
    hcas = snapshot.hcas
    if hcas is None or not snapshot.gpus:
        return None
    distances, cards, most = hca_closeness(snapshot), job_hcas(snapshot), most_rates(hcas)
    models = {at: _model(hcas[at]) or at for at in cards}
    alike = Counter(models.values())
    nearest: dict[int, frozenset[int]] = {}
    for gpu in snapshot.gpus:
        known = {at: distances[gpu.index, at] for at in cards if (gpu.index, at) in distances}
        if gpu.is_lost and cards and not known:
            return None
        best = min(known.values(), default=None)
        speeds = {at: most[at] for at, distance in known.items() if distance is best}
        fastest = max((rate for rate in speeds.values() if rate is not None), default=None)
        # A card of which no rate is known stays, or a cable would change the result.
        silent = {at for at, rate in speeds.items() if rate is None}
        usual = {at for at, rate in speeds.items() if rate == fastest} - silent
        leading = set[int]()
        if fastest is not None:
            common = max(alike[models[at]] for at in usual)
            leading = {
                at
                for at in silent
                if _stated(hcas[at]) > fastest
                or (_chip(hcas[at]) > fastest and alike[models[at]] > common)
            }
        if group := leading or silent | usual:
            nearest[gpu.index] = frozenset(group)
    return nearest


def _chip(hca: Hca) -> int:
    """Return the highest rate that the chip of *hca* is published with, Gb/s; 0 for unknown."""
    function = hca.function
    return 0 if function is None else CHIP_GBPS.get((function.vendor, function.device), 0)


def _stated(hca: Hca) -> int:
    """Return the highest rate that a port of *hca* states, Gb/s; 0 for none.

    It is no more than the port can do; one that is down states the least rate of its kind, or the
    last one.
    """
    return max((round(port.rate_gbps) for port in hca.ports if port.rate_gbps), default=0)


def nearest_cards(snapshot: Snapshot) -> tuple[frozenset[int], ...] | None:
    """Return for each GPU what :func:`nearest_by_gpu` has, by index."""
    nearest = nearest_by_gpu(snapshot)
    return None if nearest is None else tuple(nearest.values())


def job_hcas(snapshot: Snapshot) -> tuple[int, ...]:
    """Return the positions of the HCAs that are cards of their own.

    Without software devices, and without functions of a card that the node has as a whole: those
    come and go with pods.
    """
    parts = dict(no_cards(snapshot))
    return tuple(at for at in range(len(snapshot.hcas or ())) if at not in parts)


def no_cards(snapshot: Snapshot) -> Iterator[tuple[int, str]]:
    """Yield the position of each HCA that is no card of its own, and why."""
    hcas = snapshot.hcas or ()
    cards = {hca.pci for hca in hcas if hca.kind not in _PARTS}
    for position, hca in enumerate(hcas):
        if hca.kind is HcaKind.SOFTWARE:
            yield position, "it is made of software"
        elif hca.kind in _PARTS and hca.parent is not None and hca.parent in cards:
            yield position, f"it is a part of the card at {hca.parent}, which is offered whole"


def layer_of(hca: Hca) -> LinkLayer | None:
    """Return what *hca* speaks, by its active ports if any are; ``None`` if unknown."""
    layers = [port.layer for port in hca.ports if port.state == ACTIVE] or [
        port.layer for port in hca.ports
    ]
    return next((layer for layer in PROTOCOLS if layer in layers), None)


def rates(hca: Hca) -> list[int]:
    """Return the rates of the ports that are up, Gb/s; a port that is down states no link's."""
    return [
        round(port.rate_gbps)
        for port in hca.ports
        if port.state == ACTIVE and port.rate_gbps is not None and port.rate_gbps >= 1
    ]


def most_rates(hcas: Sequence[Hca]) -> tuple[int | None, ...]:
    """Return for each of *hcas* the rate that its model has shown, Gb/s; ``None`` for none.

    sysfs has no maximum of a port, but the ports of the same model that are up show it, unless all
    of them are slow: a link that trains badly, or with fewer lanes, does so alone. The PSID tells
    apart cards that share a PCI id and differ in speed.
    """
    best: dict[object, int] = {}
    for at, hca in enumerate(hcas):
        best[_model(hca) or at] = max([best.get(_model(hca) or at, 0), *rates(hca)])
    return tuple(best[_model(hca) or at] or None for at, hca in enumerate(hcas))


def _model(hca: Hca) -> object | None:
    """Return what cards of one model have in common; ``None`` where too little is known."""
    function = hca.function
    ids = None if function is None else (function.vendor, function.device)
    known = ids, hca.hca_type, hca.board_id
    return None if known == (None, None, None) else (hca.kind, *known)
