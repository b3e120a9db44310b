"""``nodetopo topo path A B``: every hop between two devices, and the slowest."""

from argparse import Namespace
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from agent.cli import render
from agent.cli.devices import Device, find, link_text, row_name
from agent.cli.output import Answer, emit
from agent.cli.source import load
from agent.errors import InputError
from agent.model.gpu import Gpu
from agent.model.pci import GT_S_TO_GENERATION, PciAddress, PcieLink, PciPath
from agent.model.snapshot import Snapshot
from agent.topology.links import active_links, nvlinks_between
from agent.topology.matrix import pci_closeness, word

SCHEMA = "nodetopo/topo-path/v1"

_RATE = MappingProxyType({generation: rate for rate, generation in GT_S_TO_GENERATION.items()})
_PAYLOAD = MappingProxyType(
    {1: 8 / 10, 2: 8 / 10, 3: 128 / 130, 4: 128 / 130, 5: 128 / 130, 6: 236 / 256, 7: 236 / 256},
)
"""Share of the raw rate left by the line code (PCI Express Base 6.0: 8b/10b, 128b/130b, and
236 bytes of packets in a 256-byte flit)."""


def run(args: Namespace) -> int:
    """Print the way; 0.

    Raises:
        InputError: a device is unknown, or both are the same.
    """
    snapshot = load(args)
    a, b = find(snapshot, args.a), find(snapshot, args.b)
    if a == b:
        name = row_name(a, snapshot)
        raise InputError(f"both names mean {name}", "name two different devices")
    plain = way(snapshot, a, b)
    emit(Answer(plain=plain, table=_text(plain), short=_headline(plain)), args)
    return 0


def way(snapshot: Snapshot, a: Device, b: Device) -> dict[str, Any]:
    """Return the NVLinks between *a* and *b*, and every PCIe function on the way, in order.

    ``hops`` is ``None`` where the place of a device in the tree is unknown. ``slowest`` is
    the hop of least bandwidth among those whose link is known; a link that idles at a low
    generation counts with its highest, as it returns to that under load.
    """
    names = row_name(a, snapshot), row_name(b, snapshot)
    distance = pci_closeness(snapshot).get(frozenset(names))
    hops = None if a.path is None or b.path is None else list(_hops(snapshot, a, b))
    known = [hop for hop in hops or () if hop["gb_per_s"] is not None]
    return {
        "schema": SCHEMA,
        "from": _end(a, names[0]),
        "to": _end(b, names[1]),
        "pcie": None if distance is None else word(distance),
        "nvlink": _nvlink(snapshot, a, b),
        "hops": hops,
        "slowest": min(known, key=lambda hop: float(hop["gb_per_s"]), default=None),
    }


def _end(device: Device, name: str) -> dict[str, Any]:
    label = device.id if isinstance(device, Gpu) else device.name
    return {"id": name, "name": label, "pci": None if device.pci is None else str(device.pci)}


def _nvlink(snapshot: Snapshot, a: Device, b: Device) -> dict[str, Any] | None:
    if not (isinstance(a, Gpu) and isinstance(b, Gpu)):
        return None
    low, high = sorted((a.index, b.index))
    count = nvlinks_between(snapshot).get((low, high))
    if not count:
        return None
    links = active_links(a, snapshot)
    speeds = {link.speed_mbps for link in links}
    speed = speeds.pop() if len(speeds) == 1 else None
    direct = any(link.peer == b.pci for link in links if link.peer is not None)
    return {
        "links": count,
        "through": None if not links else "direct" if direct else "nvswitch",
        "mb_per_s_each": speed,
    }


def _hops(snapshot: Snapshot, a: Device, b: Device) -> Iterator[dict[str, Any]]:
    assert a.path is not None
    assert b.path is not None
    links = {bridge.address: bridge.link for bridge in snapshot.bridges or ()}
    shared = _shared(a.path, b.path)
    yield _hop(row_name(a, snapshot), a.path.hops[-1], a.pcie)
    yield from reversed(list(_bridges(a.path, shared, links)))
    if shared:
        # Traffic turns round inside this bridge: its own link is not on the way.
        yield _hop(f"turns at {_role(shared - 1)}", a.path.hops[shared - 1], None)
    else:
        yield from _across(a, b)
    yield from _bridges(b.path, shared, links)
    yield _hop(row_name(b, snapshot), b.path.hops[-1], b.pcie)


def _across(a: Device, b: Device) -> Iterator[dict[str, Any]]:
    assert a.path is not None
    assert b.path is not None
    yield _place(f"host bridge {a.path.root}", a.numa_node)
    if a.path.root != b.path.root:
        if a.numa_node != b.numa_node:
            yield _place("link between NUMA nodes", None)
        yield _place(f"host bridge {b.path.root}", b.numa_node)


def _shared(a: PciPath, b: PciPath) -> int:
    if a.root != b.root:
        return 0
    pairs = zip(a.hops[:-1], b.hops[:-1], strict=False)
    count = 0
    for left, right in pairs:
        if left != right:
            break
        count += 1
    return count


def _bridges(
    path: PciPath,
    shared: int,
    links: Mapping[PciAddress, PcieLink | None],
) -> Iterator[dict[str, Any]]:
    for position, address in enumerate(path.hops[:-1]):
        if position >= shared:
            yield _hop(_role(position), address, links.get(address))


def _role(position: int) -> str:
    """Name a bridge by its place: behind the root port, ports of switches alternate."""
    if position == 0:
        return "root port"
    return "switch upstream port" if position % 2 else "switch downstream port"


def _hop(what: str, address: PciAddress, link: PcieLink | None) -> dict[str, Any]:
    return {
        "what": what,
        "pci": str(address),
        "numa": None,
        "link": link_text(link),
        "gb_per_s": _bandwidth(link),
    }


def _place(what: str, numa: int | None) -> dict[str, Any]:
    return {"what": what, "pci": None, "numa": numa, "link": None, "gb_per_s": None}


def _bandwidth(link: PcieLink | None) -> float | None:
    """Return GB/s in one direction; ``None`` when the link is not known."""
    if link is None or link.width is None:
        return None
    generation = link.max_generation or link.generation
    if generation is None or generation not in _PAYLOAD:
        return None
    return round(_RATE[generation] * _PAYLOAD[generation] * link.width / 8, 1)


def _headline(plain: dict[str, Any]) -> str:
    nvlink = plain["nvlink"]
    parts = [f"{plain['from']['id']} → {plain['to']['id']}"]
    if nvlink:
        through = {"direct": " direct", "nvswitch": " through NVSwitch"}.get(nvlink["through"], "")
        plural = "" if nvlink["links"] == 1 else "s"
        parts.append(f"{nvlink['links']} NVLink{plural}{through}")
        if nvlink["mb_per_s_each"]:
            total = nvlink["links"] * nvlink["mb_per_s_each"] / 1000
            parts.append(f"{total:.0f} GB/s raw each way")
    parts.append(f"PCIe {plain['pcie'] or '?'}")
    if hop := plain["slowest"]:
        parts[-1] += f", slowest at {hop['what']}: {hop['link']}, {hop['gb_per_s']:g} GB/s"
    return render.clean(" · ".join(parts)) + "\n"


def _text(plain: dict[str, Any]) -> str:
    if plain["hops"] is None:
        return _headline(plain) + "  PCIe hops: not reported by this source\n"
    rows = [
        (
            hop["what"],
            hop["pci"] or ("" if hop["numa"] is None else f"NUMA {hop['numa']}"),
            hop["link"] or "",
            "" if hop["gb_per_s"] is None else f"{hop['gb_per_s']:g} GB/s",
            "← slowest" if hop is plain["slowest"] else "",
        )
        for hop in plain["hops"]
    ]
    return _headline(plain) + render.table(rows, indent=2)
