"""Rules on RoCE: a port needs an address that can be routed, and packets as large as RDMA's."""

from collections.abc import Iterator

from agent.checks.inputs import Inputs, first_of, no_adapters, unknown_of
from agent.checks.rdma_ports import missing_layers, no_roce, roce_ports
from agent.checks.rule import Area, Finding, Rule, Severity, Suite
from agent.model.hca import Gid, Hca, HcaKind, HcaPort, NetDevice
from agent.model.snapshot import Snapshot

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
