"""What each bridge on a way is: root port, or one side of a switch."""

from collections.abc import Mapping
from types import MappingProxyType

from agent.model.pci import BridgeKind, PciAddress, PciPath
from agent.model.snapshot import Snapshot

_AFTER = MappingProxyType(
    {
        None: BridgeKind.ROOT_PORT,
        BridgeKind.ROOT_PORT: BridgeKind.UPSTREAM,
        BridgeKind.UPSTREAM: BridgeKind.DOWNSTREAM,
        BridgeKind.DOWNSTREAM: BridgeKind.UPSTREAM,
        BridgeKind.PCI_BRIDGE: BridgeKind.PCI_BRIDGE,
    },
)
"""What stands below what: a switch is an upstream port with downstream ports behind it (PCI
Express Base Specification, 1.3.3). Conventional bridges only lead to more of themselves."""

TITLE = MappingProxyType(
    {
        BridgeKind.ROOT_PORT: "root port",
        BridgeKind.UPSTREAM: "switch upstream port",
        BridgeKind.DOWNSTREAM: "switch downstream port",
        BridgeKind.PCI_BRIDGE: "PCI bridge",
    },
)


def kinds(snapshot: Snapshot) -> Mapping[PciAddress, BridgeKind]:
    """Return the kind of every bridge that told one."""
    return {
        bridge.address: bridge.kind for bridge in snapshot.bridges or () if bridge.kind is not None
    }


def roles(path: PciPath, known: Mapping[PciAddress, BridgeKind]) -> tuple[BridgeKind, ...]:
    """Return the role of each bridge of *path*, root port first; the device has none.

    A bridge whose kind is unknown is what must stand below the one above it. In a collapsed
    path each hop is a whole switch, named by its upstream port.
    """
    if path.is_collapsed:
        return (BridgeKind.UPSTREAM,) * (len(path.hops) - 1)
    found: list[BridgeKind] = []
    for address in path.hops[:-1]:
        above = found[-1] if found else None
        found.append(known.get(address) or _AFTER[above])
    return tuple(found)
