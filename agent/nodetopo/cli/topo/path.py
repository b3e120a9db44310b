"""``nodetopo topo path A B``: every hop between two devices, the slowest, and the bandwidth.

With more names: the bandwidth of each pair of the GPUs, and of all together.
"""

from argparse import Namespace
from collections.abc import Sequence
from itertools import combinations
from typing import Any

from nodetopo.allocation.measured import Operation
from nodetopo.cli import output
from nodetopo.cli.bandwidth_table import measured_table
from nodetopo.cli.output import Answer, emit
from nodetopo.cli.source import load
from nodetopo.cli.topo.picture import picture
from nodetopo.drawing.devices import Device, find, link_text, row_name
from nodetopo.drawing.hops import Hop, hops, slowest
from nodetopo.errors import InputError
from nodetopo.model.gpu import Gpu
from nodetopo.model.hca import Hca
from nodetopo.model.snapshot import Snapshot
from nodetopo.tools.bandwidth.as_built import sound
from nodetopo.tools.bandwidth.expectation import Expected, text, to_plain
from nodetopo.tools.bandwidth.expected import Model
from nodetopo.topology.links import active_links, nvlinks_between
from nodetopo.topology.matrix import pci_closeness, word

SCHEMA = "nodetopo/topo-path/v1"
"""Names the JSON shape, described by ``docs/reference/schema/topo-path.json``."""

SET_SCHEMA = "nodetopo/topo-set/v1"
"""The JSON shape of three GPUs and more: ``docs/reference/schema/topo-set.json``."""


def run(args: Namespace) -> int:
    """Print the path, or the bandwidth between more than two devices; 0.

    Raises:
        InputError: a device is unknown, or named twice; a bandwidth table cannot be used.
    """
    snapshot = load(args)
    a, b = find(snapshot, args.a), find(snapshot, args.b)
    if a == b:
        name = row_name(a, snapshot)
        raise InputError(f"both names mean {name}", "name two different devices")
    table = measured_table(args, snapshot)
    measured = None if table is None else table.on(snapshot)
    operation = table.operation if table else Operation.ALL_REDUCE
    name = f"bandwidth table {args.bandwidth_table}"
    models = (
        Model(snapshot, measured, name, operation),
        Model(sound(snapshot), measured, name, operation),
    )
    if args.more:
        devices = (a, b, *(find(snapshot, name) for name in args.more))
        emit(_set(snapshot, devices, models, operation, args), args)
        return 0
    plain = way(snapshot, a, b)
    plain |= _expectations(a, b, *models, operation)

    headline = _headline(plain)
    carries = _carries(a, b, *models)
    if plain["hops"] is None:
        printed = f"{headline}  PCIe hops: not reported by this source\n"
    else:
        rows = [
            (
                hop["what"],
                hop["pci"] or ("" if hop["numa"] is None else f"NUMA {hop['numa']}"),
                _link_text(hop),
                "" if hop["gb_per_s"] is None else f"{hop['gb_per_s']:g} GB/s",
                "← slowest" if hop == plain["slowest"] else "",
            )
            for hop in plain["hops"]
        ]
        printed = headline + output.table(rows, indent=2)
    answer = Answer(
        plain=plain,
        table=printed + carries,
        short=headline + carries,
        svg=picture(snapshot, (a, b)),
    )
    emit(answer, args)
    return 0


def way(snapshot: Snapshot, a: Device, b: Device) -> dict[str, Any]:
    """Return the NVLinks between *a* and *b*, and every PCIe function on the way, in order.

    ``hops`` is ``None`` where the place of a device in the tree is unknown. ``slowest`` is
    the hop of least bandwidth among those whose link is known; a link that idles at a low
    generation counts with its highest, as it returns to that under load.
    """
    names = row_name(a, snapshot), row_name(b, snapshot)
    distance = pci_closeness(snapshot).get(frozenset(names))
    hops_between = hops(snapshot, a, b)
    slow = slowest(hops_between)
    return {
        "schema": SCHEMA,
        "from": _end(a, names[0]),
        "to": _end(b, names[1]),
        "pcie": None if distance is None else word(distance),
        "nvlink": _nvlink(snapshot, a, b),
        # The chip-to-chip link of a Grace GPU to its CPU, in addition to PCIe.
        "c2c": [
            {"gpu": gpu.name, "links": gpu.c2c.links, "mb_per_s_each": gpu.c2c.speed_mbps}
            for gpu in (a, b)
            if isinstance(gpu, Gpu) and gpu.c2c is not None and gpu.c2c.is_enabled
        ],
        "hops": None if hops_between is None else [_plain(hop) for hop in hops_between],
        "slowest": None if slow is None else _plain(slow),
    }


def _between(model: Model, a: Device, b: Device) -> Expected | None:
    """Return what *a* and *b* should carry; ``None`` for two HCAs, and Data Direct functions."""
    if isinstance(a, Gpu) and isinstance(b, Gpu):
        return model.pair(a, b)
    gpu, hca = (a, b) if isinstance(a, Gpu) else (b, a)
    if isinstance(gpu, Gpu) and isinstance(hca, Hca):
        return model.to_hca(gpu, hca)
    return None


def _expectations(
    a: Device, b: Device, now: Model, built: Model, operation: Operation
) -> dict[str, Any]:
    pair = _between(now, a, b)
    if pair is None:
        return {"expected": None, "expected_as_built": None, "expected_busbw": None}
    busbw = None
    if isinstance(a, Gpu) and isinstance(b, Gpu):
        busbw = now.of_set((a, b), operation)
    as_built = _between(built, a, b)
    if as_built is not None and as_built.is_like(pair):
        as_built = None
    return {
        "expected": to_plain(pair),
        "expected_as_built": None if as_built is None else to_plain(as_built),
        "expected_busbw": None if busbw is None else to_plain(busbw),
    }


def _carries(a: Device, b: Device, now: Model, built: Model) -> str:
    """Return the expected bandwidth between *a* and *b*, its factors and their sources."""
    pair = _between(now, a, b)
    if pair is None:
        return ""
    rows = _factors("expected", pair)
    as_built = _between(built, a, b)
    if as_built is not None and not as_built.is_like(pair) and as_built.low is not None:
        rows += _factors("as built", as_built)
    return output.table(rows, indent=2)


def _factors(title: str, one: Expected) -> list[tuple[str, str]]:
    """Return the rows of *one*: the figure, its path, the factors one a row, and their sources."""
    rows = [(title, text(one))]
    if one.low is None:
        return rows
    factors = (*one.assumes, *one.behind)
    rows.append(("over", str(one.over)))
    rows += [("" if at else "factors", factor) for at, factor in enumerate(factors)]
    return [*rows, ("sources", str(one.source))]


def _set(
    snapshot: Snapshot,
    devices: Sequence[Device],
    models: tuple[Model, Model],
    operation: Operation,
    args: Namespace,
) -> Answer:
    """Return the bandwidth of each pair of GPUs, and of all together."""
    gpus = [device for device in devices if isinstance(device, Gpu)]
    for device in devices:
        if not isinstance(device, Gpu):
            cause = f"{row_name(device, snapshot)} is no GPU"
            raise InputError(cause, "name two devices, or three GPUs and more")
        if devices.count(device) > 1:
            raise InputError(f"{device.name} is named twice", "name each GPU once")
    if args.output == "svg":
        raise InputError("the picture shows the way between two devices", "name two")
    now, built = models
    pairs = [(a, b, now.pair(a, b)) for a, b in combinations(gpus, 2)]
    whole, as_built = now.of_set(gpus, operation), built.of_set(gpus, operation)
    rows = [(f"{a.name} → {b.name}", text(one), one.over or "") for a, b, one in pairs]
    names = ", ".join(gpu.name for gpu in gpus)
    of = "" if operation is Operation.ALL_REDUCE else f" of {operation}"
    headline = f"{names} · expected bus bandwidth{of} {text(whole)}\n"
    headline += output.table(_factors("", whole)[1:], indent=2)
    if not as_built.is_like(whole) and as_built.low is not None:
        headline += output.table(_factors("as built", as_built), indent=2)
    plain = {
        "schema": SET_SCHEMA,
        "gpus": [_end(gpu, gpu.name) for gpu in gpus],
        "pairs": [{"from": a.name, "to": b.name, **to_plain(one)} for a, b, one in pairs],
        "expected_busbw": to_plain(whole),
        "expected_busbw_as_built": None if as_built.is_like(whole) else to_plain(as_built),
    }
    return Answer(plain=plain, table=headline + output.table(rows, indent=2), short=headline)


def _end(device: Device, name: str) -> dict[str, Any]:
    label = device.id if isinstance(device, Gpu) else None
    label = device.name if isinstance(device, Hca) else label
    return {"id": name, "name": label or name, "pci": device.pci and str(device.pci)}


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


def _plain(hop: Hop) -> dict[str, Any]:
    return {
        "what": hop.what,
        "pci": None if hop.address is None else str(hop.address),
        "numa": hop.numa,
        "link": link_text(hop.link),
        "ends": [link_text(hop.near), link_text(hop.far)] if hop.has_link else None,
        "gb_per_s": hop.gb_per_s,
        "distance": hop.distance,
    }


def _headline(plain: dict[str, Any]) -> str:
    parts = [f"{plain['from']['id']} → {plain['to']['id']}"]
    if nvlink := plain["nvlink"]:
        through = {"direct": " direct", "nvswitch": " through NVSwitch"}.get(nvlink["through"], "")
        plural = "" if nvlink["links"] == 1 else "s"
        parts.append(f"{nvlink['links']} NVLink{plural}{through}")
        if nvlink["mb_per_s_each"]:
            total = nvlink["links"] * nvlink["mb_per_s_each"] / 1000
            parts.append(f"{total:.0f} GB/s raw each way")
    for c2c in plain["c2c"]:
        text = f"{c2c['gpu']} to its CPU over NVLink-C2C"
        if c2c["links"] and c2c["mb_per_s_each"]:
            text += f" ({c2c['links'] * c2c['mb_per_s_each'] / 1000:.0f} GB/s raw each way)"
        parts.append(text)
    parts.append(f"PCIe {plain['pcie'] or '?'}")
    if hop := plain["slowest"]:
        parts[-1] += f", slowest at {hop['what']}: {hop['link']}, {hop['gb_per_s']:g} GB/s"
    return output.clean(" · ".join(parts)) + "\n"


def _link_text(hop: dict[str, Any]) -> str:
    if hop["distance"] is not None:
        return f"distance {hop['distance']}"
    if hop["ends"] is None:
        return ""
    near, far = hop["ends"]
    if near and far and near != far:
        return f"{near} here, {far} at the port above"
    return hop["link"] or "link not reported"
