"""The ports of adapters, as several rules go through them."""

from collections import defaultdict
from collections.abc import Iterator, Mapping

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
from agent.model.hca import Gid, Hca, HcaKind, HcaPort, LinkLayer, NetDevice
from agent.model.pci import PcieLink, PciFunction
from agent.model.snapshot import Snapshot

# A rule on the PCIe links of HCAs, which unlike those of GPUs do not slow down when idle.

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


ACTIVE = "ACTIVE"
"""The word of sysfs ``state`` for a port that carries traffic (ib_verbs.h ``ib_port_state``)."""


NamedPort = tuple[str, Hca, HcaPort]
"""A port with its adapter, and with the name that a finding gives it."""


def active_ports(snapshot: Snapshot) -> Iterator[NamedPort]:
    """Yield the ports that carry traffic of adapters that are no parts of others."""
    for hca in own_adapters(snapshot):
        for port in hca.ports:
            if port.state == ACTIVE:
                yield f"{hca.name} port {port.number}", hca, port


def roce_ports(snapshot: Snapshot) -> Iterator[NamedPort]:
    """Yield those of the active ports that speak Ethernet and serve jobs on the node itself.

    A physical function whose virtual functions or subfunctions serve the jobs needs no address;
    and ports slower than the node's fastest are there for storage and management.
    """
    divided = {hca.parent for hca in snapshot.hcas or () if hca.parent is not None}
    fastest = max((port.rate_gbps or 0 for _, _, port in active_ports(snapshot)), default=0)
    for name, hca, port in active_ports(snapshot):
        is_slower = port.rate_gbps is not None and port.rate_gbps < fastest
        if port.layer is LinkLayer.ETHERNET and hca.pci not in divided and not is_slower:
            yield name, hca, port


def missing_states(snapshot: Snapshot) -> Inputs:
    """Return the HCAs of whose ports it is not known whether they are active."""
    silent = (
        hca.name
        for hca in own_adapters(snapshot)
        if not hca.ports or any(port.state is None for port in hca.ports)
    )
    return missing_hcas(snapshot) + unknown_of("port states", silent)


def missing_layers(snapshot: Snapshot) -> Inputs:
    """Return the ports of which it is not known what they speak, and :func:`missing_states`.

    Adapters that are neither InfiniBand nor Ethernet (EFA) leave the file's word unknown too;
    their driver's name tells them.
    """
    silent = (
        name for name, hca, port in active_ports(snapshot) if port.layer is None and not is_efa(hca)
    )
    return missing_states(snapshot) + unknown_of("link layer", silent)


def is_efa(hca: Hca) -> bool:
    """Return whether *hca* is Amazon's Elastic Fabric Adapter, which has ways of its own."""
    return hca.function is not None and hca.function.driver == "efa"


def no_roce(snapshot: Snapshot) -> str | None:
    """Return why rules about RoCE say nothing here."""
    if missing_layers(snapshot) or any(roce_ports(snapshot)):
        return None
    return "no active RoCE port that serves jobs on this node itself"


# A rule on the rates of ports: HCAs of one model, in one node, are wired alike.

Model = tuple[str | None, ...]
"""What ports of one model have in common."""


def _model(hca: Hca, port: HcaPort) -> Model:
    function = hca.function or PciFunction()
    return (
        None if hca.kind is None else hca.kind.value,
        None if port.layer is None else port.layer.value,
        hca.board_id,
        function.vendor,
        function.device,
        function.subsystem_vendor,
        function.subsystem_device,
    )


def _alike(snapshot: Snapshot) -> Mapping[Model, list[NamedPort]]:
    """Return the active ports of each model that several HCAs are of."""
    found: dict[Model, list[NamedPort]] = defaultdict(list)
    for name, hca, port in active_ports(snapshot):
        if _has_model(hca):
            found[_model(hca, port)].append((name, hca, port))
    return {
        model: ports for model, ports in found.items() if len({hca.name for _, hca, _ in ports}) > 1
    }


def _has_model(hca: Hca) -> bool:
    return hca.board_id is not None or hca.function is not None


def _slower(snapshot: Snapshot) -> tuple[Finding, ...]:
    return tuple(
        Finding(
            subject=name,
            observed=f"{port.rate_gbps:g} Gb/s",
            expected=f"{fastest:g} Gb/s, as its peers of the same model have",
        )
        for ports in _alike(snapshot).values()
        for fastest in (max(port.rate_gbps or 0 for _, _, port in ports),)
        for name, _, port in ports
        if port.rate_gbps is not None and port.rate_gbps < fastest
    )


def _rate_missing(snapshot: Snapshot) -> Inputs:
    alike = _alike(snapshot).values()
    unread = (name for ports in alike for name, _, port in ports if port.rate_gbps is None)
    return (
        *missing_states(snapshot),
        *unknown_of("model", _nameless(snapshot)),
        *unknown_of("rate", unread),
    )


def _nameless(snapshot: Snapshot) -> tuple[str, ...]:
    found = own_adapters(snapshot)
    return tuple(hca.name for hca in found if not _has_model(hca)) if len(found) > 1 else ()


def _no_peers(snapshot: Snapshot) -> str | None:
    is_known = not missing_states(snapshot) and not _nameless(snapshot)
    return "no two active ports of one model" if is_known and not _alike(snapshot) else None


RATE_RULE = Rule(
    code="RDM-004",
    claim="every HCA port runs at the rate of its peers",
    why="A collective across nodes runs at the rate of the slowest rail; a port that fell back to "
    "half its rate raises no error.",
    area=Area.RDMA,
    suite=Suite.HEALTH,
    severity=Severity.WARNING,
    needs=_rate_missing,
    check=_slower,
    skips=first_of(no_adapters, _no_peers),
    remedy="check cable, transceiver and the switch port's settings; waive it for ports that are "
    "slower on purpose",
    reference="https://www.kernel.org/doc/Documentation/ABI/stable/sysfs-class-infiniband",
)


# A remark on errors that the ports of HCAs have counted since they came up.

LINK_ERRORS = (
    "excessive_buffer_overrun_errors",
    "link_downed",
    "link_error_recovery",
    "local_link_integrity_errors",
    "port_rcv_errors",
    "symbol_error",
)
"""The counters of sysfs that speak of the cable and its two ends. Discards and retransmissions
are left out: a busy fabric makes them."""


def _counted(snapshot: Snapshot) -> tuple[Finding, ...]:
    return tuple(
        Finding(subject=port[0], observed=counts, expected="none since the port came up")
        for port in active_ports(snapshot)
        if (counts := _counts(port))
    )


def _counts(port: NamedPort) -> str:
    counters = port[2].counters or {}
    return ", ".join(f"{name} {counters[name]}" for name in LINK_ERRORS if counters.get(name))


def _errors_missing(snapshot: Snapshot) -> Inputs:
    # A function that may not read its port's counters gives none at all.
    silent = (
        name
        for name, hca, port in active_ports(snapshot)
        if not is_efa(hca) and not set(LINK_ERRORS) & set(port.counters or ())
    )
    return missing_states(snapshot) + unknown_of("error counters", silent)


def _no_counters(snapshot: Snapshot) -> str | None:
    found = own_adapters(snapshot)
    is_own = bool(found) and all(map(is_efa, found))
    return "EFA, which counts no errors of its link" if is_own else None


ERRORS_RULE = Rule(
    code="RDM-006",
    claim="no HCA port has counted errors of its link",
    why="A bad cable or transceiver shows in these counters long before the port goes down; what "
    "matters is whether they grow.",
    area=Area.RDMA,
    suite=Suite.AUDIT,
    severity=Severity.INFO,
    needs=_errors_missing,
    check=_counted,
    skips=first_of(no_adapters, _no_counters),
    remedy="look again after an hour of work: if the counters grow, clean or exchange cable and "
    "transceiver",
    reference="https://www.kernel.org/doc/Documentation/ABI/stable/sysfs-class-infiniband",
)


# Rules on RoCE: a port needs an address that can be routed, and packets as large as RDMA's.

ROCE_V2 = "RoCE v2"
"""The kernel's word in ``gid_attrs/types`` (drivers/infiniband/core/cache.c, gid_type_str)."""


LEAST_MTU = 4096 + 96
"""Bytes that an interface must carry for RDMA's greatest packet and the headers that the kernel
allows for (include/rdma/ib_addr.h, iboe_get_mtu)."""


_LINK_LOCAL = "fe80:"


def _routable(port: HcaPort) -> tuple[Gid, ...]:
    return tuple(gid for gid in port.gids if not gid.gid.startswith(_LINK_LOCAL))


def _without_address(snapshot: Snapshot) -> tuple[Finding, ...]:
    return tuple(
        Finding(
            subject=name,
            observed=_addresses(port),
            expected="a RoCE v2 GID of an IPv4 or a routable IPv6 address",
        )
        for name, hca, port in roce_ports(snapshot)
        if not _may_have_v2(port) and not _is_below_another(hca, port)
    )


def _is_below_another(hca: Hca, port: HcaPort) -> bool:
    """Return whether a bond or bridge has the addresses in the place of the port's interfaces."""
    own = _own_interfaces(hca, port)
    return hca.kind is not HcaKind.BOND and bool(own) and all(one.master for one in own)


def _addresses(port: HcaPort) -> str:
    types = sorted({gid.type or "" for gid in port.gids})
    if not types:
        return "no GID"
    return "only link-local GIDs" if not _routable(port) else f"only {', '.join(types)}"


def _may_have_v2(port: HcaPort) -> bool:
    """Return whether a routable GID is, or for all that is known could be, RoCE v2."""
    return any(gid.type in (ROCE_V2, None) for gid in _routable(port))


def _missing_types(snapshot: Snapshot) -> Inputs:
    silent = (
        name
        for name, _, port in roce_ports(snapshot)
        if _may_have_v2(port) and ROCE_V2 not in {gid.type for gid in _routable(port)}
    )
    return missing_layers(snapshot) + unknown_of("GID types", silent)


def _interfaces(hca: Hca, port: HcaPort) -> tuple[NetDevice, ...]:
    """Return the interfaces that the port's routable addresses are of, else all of the port."""
    named = {gid.netdev for gid in _routable(port)}
    own = _own_interfaces(hca, port)
    return tuple(netdev for netdev in own if netdev.name in named) or own


def _own_interfaces(hca: Hca, port: HcaPort) -> tuple[NetDevice, ...]:
    return tuple(netdev for netdev in hca.netdevs if netdev.port in (None, port.number))


def _small(snapshot: Snapshot) -> tuple[Finding, ...]:
    return tuple(
        Finding(
            subject=f"{name}, interface {netdev.name}",
            observed=f"MTU {netdev.mtu}",
            expected=f"{LEAST_MTU} or more",
        )
        for name, netdev in _all_interfaces(snapshot)
        if netdev.mtu is not None and netdev.mtu < LEAST_MTU
    )


def _all_interfaces(snapshot: Snapshot) -> Iterator[tuple[str, NetDevice]]:
    for name, hca, port in roce_ports(snapshot):
        for netdev in _interfaces(hca, port):
            yield name, netdev


def _missing_sizes(snapshot: Snapshot) -> Inputs:
    silent = (name for name, hca, port in roce_ports(snapshot) if not _interfaces(hca, port))
    unread = (netdev.name for _, netdev in _all_interfaces(snapshot) if netdev.mtu is None)
    return missing_layers(snapshot) + unknown_of("MTU", (*silent, *unread))


RULES: tuple[Rule, ...] = (
    Rule(
        code="RDM-007",
        claim="every RoCE port has a RoCE v2 address that can be routed",
        why="NCCL looks for such an address; with a link-local one only, connections beyond the "
        "own switch fail, and RoCE v1 cannot be routed at all.",
        area=Area.RDMA,
        suite=Suite.AUDIT,
        severity=Severity.WARNING,
        needs=_missing_types,
        check=_without_address,
        skips=first_of(no_adapters, no_roce),
        remedy="give the port's interface an IP address; `show_gids` then lists a GID of type v2",
        reference="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html",
    ),
    Rule(
        code="RDM-008",
        claim="every RoCE interface carries RDMA packets of 4096 bytes",
        why="RDMA takes the greatest packet that fits the interface: with an MTU of 1500 that is "
        "1024 bytes, four times as many packets.",
        area=Area.RDMA,
        suite=Suite.AUDIT,
        severity=Severity.WARNING,
        needs=_missing_sizes,
        check=_small,
        skips=first_of(no_adapters, no_roce),
        remedy="`ip link set INTERFACE mtu 9000`, kept in the network's configuration, and no less "
        "on all switches between",
        reference="https://github.com/torvalds/linux/blob/v6.8/include/rdma/ib_addr.h",
    ),
)
