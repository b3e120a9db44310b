"""Rules on the ports of HCAs: their PCIe link, rate, errors and, for RoCE, addresses."""

from collections import defaultdict
from collections.abc import Iterator

from nodetopo.checks.inputs import (
    hca_label,
    missing_hcas,
    missing_machine,
    no_adapters,
    own_adapters,
    unknown_of,
    virtual_machine,
)
from nodetopo.checks.rule import Finding, Judgement, Missing, Severity, Skip, rule
from nodetopo.model.hca import ACTIVE, LINK_ERRORS, Gid, Hca, HcaKind, HcaPort, LinkLayer, NetDevice
from nodetopo.model.pci import PcieLink, PciFunction
from nodetopo.model.snapshot import Snapshot

ROCE_V2 = "RoCE v2"
"""The kernel's word in ``gid_attrs/types`` (drivers/infiniband/core/cache.c, gid_type_str)."""

LEAST_MTU = 4096 + 96
"""Bytes that an interface must carry for RDMA's greatest packet and the headers that the kernel
allows for (include/rdma/ib_addr.h, iboe_get_mtu)."""

NamedPort = tuple[str, Hca, HcaPort]
"""A port with its adapter, and with its name in a finding."""


@rule("RDM-003", Severity.WARNING, unless=(no_adapters, virtual_machine))
def pcie_link(snapshot: Snapshot) -> Judgement:
    """Find HCAs with a reduced PCIe link; unlike a GPU's, it does not slow down when idle.

    An HCA on the host bridge itself is not a PCI Express device.
    """
    unread = []
    ports = {bridge.address: bridge.link for bridge in snapshot.bridges or ()}
    for hca in own_adapters(snapshot):
        if hca.path is not None and len(hca.path.hops) <= 1:
            continue
        own = (hca.function.link if hca.function else None) or PcieLink()
        port = (ports.get(hca.path.hops[-2]) if hca.path else None) or PcieLink()
        maxima = own.max_generation, own.max_width, port.max_generation, port.max_width
        if own.generation is None or own.width is None or None in maxima:
            unread.append(hca.name)
            continue
        generation = min(own.max_generation or 0, port.max_generation or 0)
        width = min(own.max_width or 0, port.max_width or 0)
        if own.generation < generation or own.width < width:
            yield Finding(
                subject=hca_label(hca),
                observed=f"Gen{own.generation} x{own.width}",
                expected=f"Gen{generation} x{width}",
            )
    yield from missing_hcas(snapshot)
    yield from missing_machine(snapshot)
    yield from unknown_of("PCIe link", unread)


@rule("RDM-004", Severity.WARNING)
def rates(snapshot: Snapshot) -> Judgement:
    """Find ports slower than others of their model: HCAs of one model in a node are wired alike."""
    hcas = own_adapters(snapshot)
    nameless = [hca.name for hca in hcas if len(hcas) > 1 and not _has_model(hca)]
    models: dict[object, list[NamedPort]] = defaultdict(list)
    for name, hca, port in active_ports(snapshot):
        if _has_model(hca):
            models[_model(hca, port)].append((name, hca, port))
    alike = [ports for ports in models.values() if len({hca.name for _, hca, _ in ports}) > 1]
    reason = no_adapters(snapshot)
    if reason is None and not alike and not nameless and not missing_states(snapshot):
        reason = "no two active ports of one model"
    if reason:
        yield Skip(reason)
        return
    unread = []
    for ports in alike:
        fastest = max(port.rate_gbps or 0 for _, _, port in ports)
        for name, _, port in ports:
            if port.rate_gbps is None:
                unread.append(name)
            elif port.rate_gbps < fastest:
                yield Finding(
                    subject=name,
                    observed=f"{port.rate_gbps:g} Gb/s",
                    expected=f"{fastest:g} Gb/s, as its peers of the same model have",
                )
    yield from missing_states(snapshot)
    yield from unknown_of("model", nameless)
    yield from unknown_of("rate", unread)


@rule("RDM-006", Severity.INFO)
def link_errors(snapshot: Snapshot) -> Judgement:
    """Find ports that have counted errors of their link since they came up."""
    hcas = own_adapters(snapshot)
    reason = no_adapters(snapshot)
    if reason is None and hcas and all(map(is_efa, hcas)):
        reason = "EFA, which counts no errors of its link"
    if reason:
        yield Skip(reason)
        return
    silent = []
    for name, hca, port in active_ports(snapshot):
        counters = port.counters or {}
        # A function without permission to read its port's counters gives none at all.
        if not is_efa(hca) and not set(LINK_ERRORS) & set(counters):
            silent.append(name)
        if counts := [f"{error} {counters[error]}" for error in LINK_ERRORS if counters.get(error)]:
            yield Finding(
                subject=name,
                observed=", ".join(counts),
                expected="none since the port came up",
            )
    yield from missing_states(snapshot)
    yield from unknown_of("error counters", silent)


def _no_roce(snapshot: Snapshot) -> str | None:
    if _missing_layers(snapshot) or any(roce_ports(snapshot)):
        return None
    return "no active RoCE port that serves jobs on this node itself"


@rule("RDM-007", Severity.WARNING, unless=(no_adapters, _no_roce))
def roce_addresses(snapshot: Snapshot) -> Judgement:
    """Find ports without a routable GID of RoCE v2."""
    silent = []
    for name, hca, port in roce_ports(snapshot):
        types = {gid.type for gid in _routable(port)}
        if types & {ROCE_V2, None}:
            if ROCE_V2 not in types:
                silent.append(name)
            continue
        # The interfaces of a port in a bond or bridge have no addresses: the bond has them.
        interfaces = _interfaces(hca, port)
        if (
            hca.kind is not HcaKind.BOND
            and interfaces
            and all(netdev.master for netdev in interfaces)
        ):
            continue
        observed = "no GID"
        if port.gids:
            names = ", ".join(sorted({gid.type or "" for gid in port.gids}))
            observed = f"only {names}" if types else "only link-local GIDs"
        yield Finding(
            subject=name,
            observed=observed,
            expected="a RoCE v2 GID of an IPv4 or a routable IPv6 address",
        )
    yield from _missing_layers(snapshot)
    yield from unknown_of("GID types", silent)


@rule("RDM-008", Severity.WARNING, unless=(no_adapters, _no_roce))
def roce_mtu(snapshot: Snapshot) -> Judgement:
    """Find interfaces with a small MTU: those with routable addresses, else all of the port."""
    without, unread = [], []
    for name, hca, port in roce_ports(snapshot):
        named = {gid.netdev for gid in _routable(port)}
        interfaces = _interfaces(hca, port)
        if not interfaces:
            without.append(name)
        for netdev in [
            interface for interface in interfaces if interface.name in named
        ] or interfaces:
            if netdev.mtu is None:
                unread.append(netdev.name)
            elif netdev.mtu < LEAST_MTU:
                yield Finding(
                    subject=f"{name}, interface {netdev.name}",
                    observed=f"MTU {netdev.mtu}",
                    expected=f"{LEAST_MTU} or more",
                )
    yield from _missing_layers(snapshot)
    yield from unknown_of("MTU", (*without, *unread))


def active_ports(snapshot: Snapshot) -> Iterator[NamedPort]:
    """Yield the ports that carry traffic of adapters that are no parts of others."""
    for hca in own_adapters(snapshot):
        for port in hca.ports:
            if port.state == ACTIVE:
                yield f"{hca.name} port {port.number}", hca, port


def roce_ports(snapshot: Snapshot) -> Iterator[NamedPort]:
    """Yield the active Ethernet ports that serve jobs on the node itself.

    A physical function whose virtual functions or subfunctions serve the jobs needs no address;
    and ports slower than the node's fastest are there for storage and management.
    """
    divided = {hca.parent for hca in snapshot.hcas or () if hca.parent is not None}
    fastest = max((port.rate_gbps or 0 for _, _, port in active_ports(snapshot)), default=0)
    for name, hca, port in active_ports(snapshot):
        is_slower = port.rate_gbps is not None and port.rate_gbps < fastest
        if port.layer is LinkLayer.ETHERNET and hca.pci not in divided and not is_slower:
            yield name, hca, port


def missing_states(snapshot: Snapshot) -> tuple[Missing, ...]:
    """Return the HCAs with ports of unknown state."""
    silent = (
        hca.name
        for hca in own_adapters(snapshot)
        if not hca.ports or any(port.state is None for port in hca.ports)
    )
    return missing_hcas(snapshot) + unknown_of("port states", silent)


def is_efa(hca: Hca) -> bool:
    """Return whether *hca* is Amazon's Elastic Fabric Adapter, which works differently."""
    return hca.function is not None and hca.function.driver == "efa"


def _missing_layers(snapshot: Snapshot) -> tuple[Missing, ...]:
    """Return the ports with an unknown link layer, and :func:`missing_states`.

    Adapters that are neither InfiniBand nor Ethernet (EFA) leave the file's word unknown too;
    their driver's name identifies them.
    """
    silent = (
        name for name, hca, port in active_ports(snapshot) if port.layer is None and not is_efa(hca)
    )
    return missing_states(snapshot) + unknown_of("link layer", silent)


def _has_model(hca: Hca) -> bool:
    return hca.board_id is not None or hca.function is not None


def _model(hca: Hca, port: HcaPort) -> tuple[str | None, ...]:
    """Return a key that ports of one model share."""
    function = hca.function or PciFunction()
    return (
        hca.kind,
        port.layer,
        hca.board_id,
        function.vendor,
        function.device,
        function.subsystem_vendor,
        function.subsystem_device,
    )


def _routable(port: HcaPort) -> tuple[Gid, ...]:
    return tuple(gid for gid in port.gids if not gid.gid.startswith("fe80:"))


def _interfaces(hca: Hca, port: HcaPort) -> tuple[NetDevice, ...]:
    return tuple(netdev for netdev in hca.netdevs if netdev.port in (None, port.number))
