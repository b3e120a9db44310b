"""Which HCAs of a node a pool takes, and why it leaves out the others.

What is no card for jobs is left out by rule, unless the pool's selectors name it, or match cards
of that kind alone:

- Software devices (rxe, siw): they copy through the CPU.
- Virtual functions and subfunctions of a card that the node has as a whole: they come and go
  with pods, and the card is offered.
- Cards that are no rail (:mod:`nodetopo.rdma.rails`): they are for storage and management.

An HCA that a pool once had stays in it until it is gone: a container might have it, and what is
wrong with it is for health to say.

Always left out are the HCAs through which Fabric Manager configures NVSwitches, and those through
which no program can send: ``/dev/infiniband`` has no uverbs device of them.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from types import MappingProxyType

from msgspec import Struct, field

from nodetopo.model.hca import Hca, HcaKind, LinkLayer
from nodetopo.model.snapshot import Snapshot
from nodetopo.rdma.pools import Pool, Selectors, SharingMode
from nodetopo.rdma.rails import nearest_cards, network_cards, no_cards

LINK_TYPES: Mapping[LinkLayer, str] = MappingProxyType(
    {LinkLayer.ETHERNET: "ether", LinkLayer.INFINIBAND: "infiniband"}
)
"""What netlink calls the encapsulation of a port's interface (iproute2 ``ip link``), which is
what the shared plugin compares."""


class Exclusion(Struct, frozen=True, kw_only=True):
    """An HCA that a pool does not take although its selectors match; *resource* names the pool.

    ``None`` for *resource* means all pools.
    """

    hca: str
    reason: str
    resource: str | None = None


class Selection(Struct, frozen=True, kw_only=True):
    """The positions of the HCAs of each pool, by resource, and what was left out."""

    hcas: Mapping[str, tuple[int, ...]]
    exclusions: tuple[Exclusion, ...] = ()
    # Resource → why its pool has HCAs that others leave out by rule.
    exceptions: Mapping[str, str] = field(default_factory=dict)


def select(
    snapshot: Snapshot,
    pools: Sequence[Pool],
    members: Mapping[str, Collection[int]] = MappingProxyType({}),
) -> Selection:
    """Return which HCAs of *snapshot* each of *pools* takes, in the order of PCI addresses.

    Shared pools can overlap, as those of the shared plugin do. An HCA of an exclusive pool is in
    no other; of several the first takes it.

    Args:
        members: by resource, the positions of HCAs that stay whatever is known of them now.
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
            hca, is_member = hcas[position], position in members.get(pool.resource, ())
            if not is_member and not matches(hca, pool.selectors):
                continue
            reason = None
            if not is_member and not has_verbs(hca):
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
        # A pool that matches nothing else means them.
        is_exception = not own and pool.selectors != Selectors()
        kept = [
            at
            for at in by_rule
            if at in members.get(pool.resource, ())
            or (is_exception and hcas[at].kind is not HcaKind.SOFTWARE)
        ]
        if is_exception and kept:
            exceptions[pool.resource] = _exception(kept, hcas, unfit)
        own = [at for at in order if at in {*own, *kept}]
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


def has_verbs(hca: Hca) -> bool:
    """Return whether programs can send through *hca*."""
    return any(name.startswith("uverbs") for name in hca.char_devices)


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
    parts = dict(no_cards(snapshot))
    yield from parts.items()
    nearest, rails = nearest_cards(snapshot), network_cards(snapshot)
    if not nearest or rails is None:
        return
    near = frozenset[int]().union(*nearest)
    for position in range(len(snapshot.hcas or ())):
        if position in parts or position in rails:
            continue
        if position in near:
            yield position, "the other HCAs near the GPUs have another link layer"
        else:
            yield position, "no GPU has it nearest, or others as near are faster"
