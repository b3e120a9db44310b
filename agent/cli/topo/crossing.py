"""The link between two NUMA nodes, by the name its maker gives it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from agent.model.snapshot import Snapshot
from agent.topology.affinity import socket_of_node

_BUS: Mapping[str, str] = MappingProxyType(
    {"GenuineIntel": "UPI", "AuthenticAMD": "xGMI", "HygonGenuine": "xGMI"},
)
"""By vendor as ``/proc/cpuinfo`` spells it."""

_QPI = re.compile(r"\bE[57]-")
"""Xeon E5 and E7, up to Broadwell, have QPI; the Scalable processors after them have UPI."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossing:
    """How two NUMA nodes are joined.

    Attributes:
        what: in words.
        bus: the maker's name; ``None`` inside a socket, or where the CPU is unknown.
        distance: ACPI SLIT units; ``None`` where the kernel does not tell.
    """

    what: str
    bus: str | None
    distance: int | None


def crossing(snapshot: Snapshot, a: int, b: int) -> Crossing:
    """Return what joins NUMA nodes *a* and *b*."""
    sockets = socket_of_node(snapshot)
    distance = _distance(snapshot, a, b)
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


def _distance(snapshot: Snapshot, a: int, b: int) -> int | None:
    nodes = {node.id: node for node in snapshot.numa_nodes or ()}
    order = sorted(nodes)
    row = nodes[a].distances if a in nodes else None
    if row is None or b not in order or len(row) != len(order):
        return None
    return row[order.index(b)]
