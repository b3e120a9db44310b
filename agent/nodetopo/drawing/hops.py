"""Every PCIe function on the way between two devices, in order."""

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import replace

from nodetopo.drawing.containment import TITLE, kinds, roles
from nodetopo.drawing.devices import Device, link_of, row_name
from nodetopo.model.pci import GT_S_TO_GENERATION, BridgeKind, PciAddress, PcieLink, PciPath
from nodetopo.model.snapshot import Snapshot
from nodetopo.topology.affinity import socket_of_node
from nodetopo.topology.path import shared_hops

# The link between two NUMA nodes, by the name its maker gives it.

_BUS: Mapping[str, str] = MappingProxyType(
    {"GenuineIntel": "UPI", "AuthenticAMD": "xGMI", "HygonGenuine": "xGMI"},
)
"""By vendor as ``/proc/cpuinfo`` spells it."""


_QPI = re.compile(r"\bE[57]-")
"""Xeon E5 and E7, up to Broadwell, have QPI; the Scalable processors after them have UPI."""


class Crossing(Struct, frozen=True, kw_only=True):
    """How two NUMA nodes are joined."""

    what: str  # in words
    bus: str | None  # the maker's name; None inside a socket, or if the CPU is unknown
    distance: int | None  # ACPI SLIT units


def crossing(snapshot: Snapshot, a: int, b: int) -> Crossing:
    """Return what joins NUMA nodes *a* and *b*."""
    sockets = socket_of_node(snapshot)
    nodes = sorted(snapshot.numa_nodes or (), key=lambda node: node.id)
    order = [node.id for node in nodes]
    row = nodes[order.index(a)].distances if a in order else None
    distance = None
    if row is not None and b in order and len(row) == len(order):
        distance = row[order.index(b)]
    if a not in sockets or b not in sockets:
        return Crossing(what="link between NUMA nodes", bus=None, distance=distance)
    if sockets[a] == sockets[b]:
        what = f"between NUMA nodes {a} and {b} inside socket {sockets[a]}"
        return Crossing(what=what, bus=None, distance=distance)
    bus = socket_bus(snapshot)
    what = f"{bus or 'link'} between sockets {sockets[a]} and {sockets[b]}"
    return Crossing(what=what, bus=bus, distance=distance)


def socket_bus(snapshot: Snapshot) -> str | None:
    """Return the name of the link between sockets; ``None`` where the CPU is unknown."""
    cpu = snapshot.cpu
    if cpu is None or cpu.vendor is None:
        return None
    if cpu.vendor == "GenuineIntel" and cpu.model and _QPI.search(cpu.model):
        return "QPI"
    return _BUS.get(cpu.vendor)


# What a PCIe link carries, and which of its two ends says less.

_RATE = MappingProxyType({generation: rate for rate, generation in GT_S_TO_GENERATION.items()})


_PAYLOAD = MappingProxyType(
    {1: 8 / 10, 2: 8 / 10, 3: 128 / 130, 4: 128 / 130, 5: 128 / 130, 6: 236 / 256, 7: 236 / 256},
)
"""Share of the raw rate left by the line code (PCI Express Base 6.0: 8b/10b, 128b/130b, and
236 bytes of packets in a 256-byte flit)."""


def gb_per_s(link: PcieLink | None) -> float | None:
    """Return GB/s in one direction under load; ``None`` when the link is not known.

    A link that idles at a low generation counts with its highest, as it returns to that.
    """
    if link is None or link.width is None:
        return None
    generation = link.max_generation or link.generation
    if generation is None or generation not in _PAYLOAD:
        return None
    return round(_RATE[generation] * _PAYLOAD[generation] * link.width / 8, 1)


def joined(device: PcieLink | None, port: PcieLink | None) -> PcieLink | None:
    """Return the link between two ends, each value the lesser of what they say.

    What only one end could do is no fault: the highest is what both can. ``None`` when
    neither end is known.
    """
    if device is None or port is None:
        return device or port
    lesser = {}
    for name in ("generation", "width", "max_generation", "max_width"):
        ends = (getattr(device, name), getattr(port, name))
        lesser[name] = min((value for value in ends if value is not None), default=None)
    return replace(device, **lesser)


_PORTS = (BridgeKind.ROOT_PORT, BridgeKind.DOWNSTREAM)


class Hop(Struct, frozen=True, kw_only=True):
    """One place on the way.

    A link belongs to the function at its lower end: a device, or a switch's upstream port.
    The root port or downstream port at the upper end has none of its own.
    """

    what: str
    address: PciAddress | None = None
    root: str | None = None  # the host bridge, if the hop is one
    numa: int | None = None
    # near, far: both ends of the link: of the function itself, and of the port above
    near: PcieLink | None = None
    far: PcieLink | None = None
    distance: int | None = None  # ACPI SLIT units, if the hop leads from one NUMA node to another
    has_link: bool = False  # traffic uses a link of this function; not where it turns round
    is_crossing: bool = False

    @property
    def link(self) -> PcieLink | None:
        """The link as both ends together leave it."""
        return joined(self.near, self.far)

    @property
    def gb_per_s(self) -> float | None:
        """GB/s in one direction; ``None`` when not known."""
        return gb_per_s(self.link)


def hops(snapshot: Snapshot, a: Device, b: Device) -> tuple[Hop, ...] | None:
    """Return the way from *a* to *b*; ``None`` where the place of a device is unknown."""
    if a.path is None or b.path is None:
        return None
    shared = shared_hops(a.path, b.path)
    up = list(_climb(snapshot, a, shared))
    down = list(_climb(snapshot, b, shared))[::-1]
    if shared:
        role = roles(a.path, kinds(snapshot))[shared - 1]
        title = "switch" if a.path.is_collapsed else TITLE[role]
        # Traffic turns round inside this bridge: its own link is not on the way.
        middle = [Hop(what=f"turns at {title}", address=a.path.hops[shared - 1])]
    else:
        middle = list(_across(snapshot, a, b))
    return (*up, *middle, *down)


def slowest(way: tuple[Hop, ...] | None) -> Hop | None:
    """Return the hop of least bandwidth among those whose link is known; the first of equals."""
    known = [(speed, hop) for hop in way or () if (speed := hop.gb_per_s) is not None]
    return min(known, key=lambda pair: pair[0])[1] if known else None


def _climb(snapshot: Snapshot, device: Device, shared: int) -> Iterator[Hop]:
    """Yield *device*, then the bridges above it up to the shared ones."""
    path = device.path
    assert path is not None
    links = {bridge.address: bridge.link for bridge in snapshot.bridges or ()}
    found = roles(path, kinds(snapshot))
    yield Hop(
        what=row_name(device, snapshot),
        address=path.hops[-1],
        near=link_of(device),
        far=_far(path, len(path.hops) - 1, links),
        has_link=True,
    )
    for position in range(len(found) - 1, shared - 1, -1):
        address, role = path.hops[position], found[position]
        if role in _PORTS:
            yield Hop(what=TITLE[role], address=address)
            continue
        yield Hop(
            what="switch" if path.is_collapsed else TITLE[role],
            address=address,
            near=links.get(address),
            far=_far(path, position, links),
            has_link=True,
        )


def _far(
    path: PciPath,
    position: int,
    links: Mapping[PciAddress, PcieLink | None],
) -> PcieLink | None:
    """Return the upper end of a link: the port's, which a collapsed path does not name."""
    if position == 0 or path.is_collapsed:
        return None
    return links.get(path.hops[position - 1])


def _across(snapshot: Snapshot, a: Device, b: Device) -> Iterator[Hop]:
    assert a.path is not None
    assert b.path is not None
    is_one = a.path.root == b.path.root and (a.path.root or a.numa_node == b.numa_node)
    yield _host(a)
    if not is_one:
        if a.numa_node is None or b.numa_node is None:
            yield Hop(what="between host bridges (NUMA node not reported)")
        elif a.numa_node != b.numa_node:
            found = crossing(snapshot, a.numa_node, b.numa_node)
            yield Hop(what=found.what, distance=found.distance, is_crossing=True)
        yield _host(b)


def _host(device: Device) -> Hop:
    assert device.path is not None
    root = device.path.root
    what = "CPU" if root is None else f"host bridge {root}"
    return Hop(what=what, root=root, numa=device.numa_node)
