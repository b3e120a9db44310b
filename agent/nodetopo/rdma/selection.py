"""Which HCAs of a node a pool takes, and why it leaves out the others.

What is no card for jobs is left out by rule, unless the pool's selectors name it, or match cards
of that kind alone:

- Software devices (rxe, siw): they copy through the CPU.
- Virtual functions and subfunctions of a card that the node has as a whole: they come and go
  with pods, and the card is offered.
- Cards that no GPU has nearest, and the slower ones of equally near cards: they are for storage
  and management, and NCCL uses the others.

Always left out are the HCAs through which Fabric Manager configures NVSwitches, and those through
which no program can send: ``/dev/infiniband`` has no uverbs device of them.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from nodetopo.model.hca import ACTIVE, Hca, HcaKind, LinkLayer
from nodetopo.model.snapshot import Snapshot
from nodetopo.rdma.pools import Pool, Selectors, SharingMode
from nodetopo.topology.affinity import hca_closeness

LINK_TYPES: Mapping[LinkLayer, str] = MappingProxyType(
    {LinkLayer.ETHERNET: "ether", LinkLayer.INFINIBAND: "infiniband"}
)
"""What netlink calls the encapsulation of a port's interface (iproute2 ``ip link``), which is
what the shared plugin compares."""

PROTOCOLS: Mapping[LinkLayer, str] = {LinkLayer.INFINIBAND: "ib", LinkLayer.ETHERNET: "roce"}
"""What jobs speak through a port of that layer."""

_PARTS = {HcaKind.VIRTUAL, HcaKind.SUBFUNCTION}


@dataclass(frozen=True, slots=True, kw_only=True)
class Exclusion:
    """An HCA that a pool does not take although its selectors match; *resource* names the pool.

    ``None`` for *resource* means all pools.
    """

    hca: str
    reason: str
    resource: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The positions of the HCAs of each pool, by resource, and what was left out.

    Attributes:
        exceptions: by resource, why a pool has HCAs that are left out of others by rule.
    """

    hcas: Mapping[str, tuple[int, ...]]
    exclusions: tuple[Exclusion, ...] = ()
    exceptions: Mapping[str, str] = field(default_factory=dict)


def select(snapshot: Snapshot, pools: Sequence[Pool]) -> Selection:
    """Return which HCAs of *snapshot* each of *pools* takes, in the order of PCI addresses.

    Shared pools may overlap, as those of the shared plugin do. An HCA of an exclusive pool is in
    no other; of several the first takes it.
    """
    hcas = snapshot.hcas or ()
    order = sorted(range(len(hcas)), key=lambda position: hcas[position].pci_order)
    reserved = {hca.name: "it belongs to the NVLink fabric" for hca in _management(snapshot)}
    unfit = dict(_unfit(snapshot))
    exclusions = [Exclusion(hca=name, reason=reason) for name, reason in reserved.items()]
    taken: dict[int, str] = {}
    chosen: dict[str, tuple[int, ...]] = {}
    exceptions: dict[str, str] = {}
    # Exclusive pools first: what they take is in no other.
    for pool in sorted(pools, key=lambda pool: pool.mode is not SharingMode.EXCLUSIVE):
        own, by_rule = [], []
        for position in order:
            hca = hcas[position]
            if not matches(hca, pool.selectors):
                continue
            reason = None
            if not any(name.startswith("uverbs") for name in hca.char_devices):
                reason = "it has no uverbs device: load ib_uverbs"
            elif position in taken:
                reason = f"{taken[position]} has it exclusively"
            elif position in unfit and not _is_named(hca, pool.selectors):
                by_rule.append(position)
                continue
            if reason is None:
                own.append(position)
            else:
                exclusions.append(Exclusion(hca=hca.name, reason=reason, resource=pool.resource))
        if not own and pool.selectors != Selectors():
            own = [at for at in by_rule if hcas[at].kind is not HcaKind.SOFTWARE]
            if own:
                exceptions[pool.resource] = _exception(own, hcas, unfit)
        for position in by_rule:
            if position not in own:
                reason = f"{unfit[position]}: name it in ifNames or hcas to offer it"
                hca = hcas[position]
                exclusions.append(Exclusion(hca=hca.name, reason=reason, resource=pool.resource))
        if pool.mode is SharingMode.EXCLUSIVE:
            taken.update(dict.fromkeys(own, pool.resource))
        chosen[pool.resource] = tuple(own)
    return Selection(
        hcas=MappingProxyType({pool.resource: chosen[pool.resource] for pool in pools}),
        exclusions=tuple(exclusions),
        exceptions=MappingProxyType(exceptions),
    )


def matches(hca: Hca, selectors: Selectors) -> bool:
    """Return whether *hca* has one of the values of each list; empty lists match everything."""
    function = hca.function
    vendor = None if function is None else function.vendor
    device = None if function is None else function.device
    driver = None if function is None else function.driver
    layers = {LINK_TYPES[port.layer] for port in hca.ports if port.layer is not None}
    have: tuple[tuple[Sequence[str], set[str | None]], ...] = (
        (tuple(one.lower() for one in selectors.vendors), {vendor}),
        (tuple(one.lower() for one in selectors.device_ids), {device}),
        (selectors.drivers, {driver}),
        (selectors.if_names, {netdev.name for netdev in hca.netdevs}),
        (selectors.link_types, {*layers}),
        (selectors.hcas, {hca.name}),
    )
    return all(not wanted or not values.isdisjoint(wanted) for wanted, values in have)


def job_hcas(snapshot: Snapshot) -> tuple[int, ...]:
    """Return the positions of the HCAs that are cards of their own.

    Without software devices, and without functions of a card that the node has as a whole: those
    come and go with pods.
    """
    parts = dict(_no_cards(snapshot))
    return tuple(at for at in range(len(snapshot.hcas or ())) if at not in parts)


def nearest_cards(snapshot: Snapshot) -> tuple[frozenset[int], ...] | None:
    """Return for each GPU what :func:`nearest_by_gpu` has, by index."""
    nearest = nearest_by_gpu(snapshot)
    return None if nearest is None else tuple(nearest.values())


def nearest_by_gpu(snapshot: Snapshot) -> Mapping[int, frozenset[int]] | None:
    """Return for each GPU, by index, the positions of its nearest cards, without slower ones.

    GPUs of which no distance is known are left out. ``None`` where HCAs were not read, without
    GPUs, and where the place of a lost GPU is unknown: the cards near it count.
    """
    hcas = snapshot.hcas
    if hcas is None or not snapshot.gpus:
        return None
    distances, cards = hca_closeness(snapshot), job_hcas(snapshot)
    nearest: dict[int, frozenset[int]] = {}
    for gpu in snapshot.gpus:
        known = {at: distances[gpu.index, at] for at in cards if (gpu.index, at) in distances}
        if gpu.is_lost and cards and not known:
            return None
        best = min(known.values(), default=None)
        # The rate of a card that is down is unknown: it stays, or a cable would change the result.
        speeds = {at: rates(hcas[at]) for at, distance in known.items() if distance is best}
        fastest = max((rate for of_card in speeds.values() for rate in of_card), default=0)
        group = {at for at, of_card in speeds.items() if not of_card or max(of_card) == fastest}
        if group:
            nearest[gpu.index] = frozenset(group)
    return nearest


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


def rates(hca: Hca) -> list[int]:
    """Return the rates of the ports that are up, Gb/s; a port that is down states no link's."""
    return [
        round(port.rate_gbps)
        for port in hca.ports
        if port.state == ACTIVE and port.rate_gbps is not None and port.rate_gbps >= 1
    ]


def _management(snapshot: Snapshot) -> Sequence[Hca]:
    return snapshot.management_hcas or ()


def _is_named(hca: Hca, selectors: Selectors) -> bool:
    """Return whether *selectors* mean this very HCA, not only some of its kind."""
    names = {netdev.name for netdev in hca.netdevs}
    return hca.name in selectors.hcas or not names.isdisjoint(selectors.if_names)


def _exception(positions: Sequence[int], hcas: Sequence[Hca], unfit: Mapping[int, str]) -> str:
    """Return why a pool has the HCAs at *positions*, each with what keeps it out of others."""
    left_out = "; ".join(f"{hcas[at].name}: {unfit[at]}" for at in positions)
    return f"its selectors match only HCAs that are left out of other pools: {left_out}"


def _unfit(snapshot: Snapshot) -> Iterator[tuple[int, str]]:
    """Yield each HCA that is not for jobs by rule, with the reason."""
    parts = dict(_no_cards(snapshot))
    yield from parts.items()
    nearest = nearest_cards(snapshot)
    if not nearest:
        return
    used = frozenset[int]().union(*nearest)
    for position in range(len(snapshot.hcas or ())):
        if position not in used and position not in parts:
            yield position, "no GPU has it nearest, or others as near are faster"


def _no_cards(snapshot: Snapshot) -> Iterator[tuple[int, str]]:
    hcas = snapshot.hcas or ()
    cards = {hca.pci for hca in hcas if hca.kind not in _PARTS}
    for position, hca in enumerate(hcas):
        if hca.kind is HcaKind.SOFTWARE:
            yield position, "it is made of software"
        elif hca.kind in _PARTS and hca.parent is not None and hca.parent in cards:
            yield position, f"it is a part of the card at {hca.parent}, which is offered whole"
