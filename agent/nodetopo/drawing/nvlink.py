"""The NVLink side of the picture, below the devices."""

from collections.abc import Iterator, Mapping, Sequence

from nodetopo.allocation.facts import nvlink_rate
from nodetopo.drawing import canvas as look
from nodetopo.drawing.canvas import Canvas, fitted, number
from nodetopo.drawing.highlight import Highlight
from nodetopo.model.snapshot import Snapshot
from nodetopo.topology.domains import clique, has_switch
from nodetopo.topology.links import (
    Pair,
    cpu_links,
    nvlinks_between,
    switch_links,
    usable_nvlinks_between,
)

Places = Mapping[int, tuple[float, float]]
"""The (x, lower side) of each GPU's card, by index."""

BAR_H = 34
_BAR_GAP = 58
_TWO_LINES = 330
"""Width from which the bar has room for a second line."""

_LABELLED = 12
"""Up to so many pairs have their count written at the line; more would cover each other."""

_SHALLOW, _DEEP = 34, 190
"""Least and greatest depth of a curve below the cards."""


def paint(
    canvas: Canvas,
    snapshot: Snapshot,
    places: Places,
    top: float,
    way: Highlight,
) -> float:
    """Paint bar or curves below *top*; return the lower side of all of it."""
    links = nvlinks_between(snapshot)
    joined = {pair: count for pair, count in links.items() if count}
    if has_switch(snapshot):
        return _bar(canvas, snapshot, places, top, way)
    if joined:
        return _curves(canvas, joined, places, top, way)
    if not links:
        return top
    text = "NVLink: not reported" if None in links.values() else "no NVLink"
    xs = [x for x, _ in places.values()]
    canvas.text((min(xs) + max(xs)) / 2, top + 24, text, 11, fill=look.FAINT)
    return top + 30


def words(snapshot: Snapshot) -> Iterator[str]:
    """Yield the content of the picture as text, a line each."""
    links = nvlinks_between(snapshot)
    if has_switch(snapshot):
        head, rest = _bar_text(snapshot)
        counts = sorted(set(switch_links(snapshot).values()) or {max(_most(links).values())})
        yield ", ".join(filter(None, (f"{head}: {span_text(counts)} from each GPU", rest)))
    elif any(links.values()) or cpu_links(snapshot):
        to_cpu = cpu_links(snapshot)
        for index in sorted({index for pair in links for index in pair} | {*to_cpu}):
            peers = [
                f"{count} to GPU{b if a == index else a}"
                for (a, b), count in links.items()
                if count and index in (a, b)
            ]
            peers += [f"{to_cpu[index]} to the CPU"] if to_cpu[index] else []
            if peers:
                yield f"NVLinks of GPU{index}: {', '.join(peers)}"
    elif links:
        yield "NVLink: not reported" if None in links.values() else "no NVLink"


def _bar(canvas: Canvas, snapshot: Snapshot, places: Places, top: float, way: Highlight) -> float:
    y = top + _BAR_GAP
    xs = [x for x, _ in places.values()]
    left, right = min(xs) - look.CARD / 2, max(xs) + look.CARD / 2
    _spokes(canvas, snapshot, places, (top, y), way)
    on_way = bool(way.gpus)
    canvas.rect(
        left,
        y,
        right - left,
        BAR_H,
        ", ".join(str(switch.pci) for switch in snapshot.nvswitches or ()),
        rx=6,
        fill=look.NVLINK_FILL,
        stroke=look.WAY if on_way else look.NVLINK,
        stroke_width=3.5 if on_way else 1.8,
    )
    head, rest = _bar_text(snapshot)
    room, middle = right - left - 12, (left + right) / 2
    has_two = bool(rest) and room > _TWO_LINES
    head_y = y + (15 if has_two else 22)
    canvas.text(middle, head_y, fitted(head, 13, room), 13, font_weight="bold")
    if has_two:
        canvas.text(middle, y + 28, fitted(rest, 10.5, room), 10.5, fill=look.FAINT)
    return y + BAR_H


def _spokes(
    canvas: Canvas,
    snapshot: Snapshot,
    places: Places,
    span: tuple[float, float],
    way: Highlight,
) -> None:
    """Draw each GPU's links to the switches; those that no program can use are dashed."""
    counts, usable = _most(nvlinks_between(snapshot)), _most(usable_nvlinks_between(snapshot))
    own = switch_links(snapshot)
    most = max((*own.values(), *counts.values()), default=0)
    top, end = span
    for index, (x, bottom) in places.items():
        count = counts.get(index, 0) if snapshot.nvlinks is None else own[index]
        is_unused = bool(counts) and not usable.get(index, 0)
        canvas.path(
            f"M{number(x)} {number(bottom)} V{number(end)}",
            f"GPU{index}: {_plural(count)} to NVSwitch",
            stroke=look.WAY if index in way.gpus else look.NVLINK,
            stroke_width=2 if is_unused else 6,
            **({"stroke_dasharray": "4 4"} if is_unused else {}),
        )
        text = f"{count} unused" if is_unused else f"{count} links"
        color = look.BAD if is_unused or count < most else look.INK
        canvas.label(x, top + _BAR_GAP * 0.55, text, 11, color=color)


def _most(links: Mapping[Pair, int | None]) -> Mapping[int, int]:
    """Return the most links that each GPU has to another."""
    found: dict[int, int] = {}
    for pair, count in links.items():
        for index in pair:
            found[index] = max(found.get(index, 0), count or 0)
    return found


def _bar_text(snapshot: Snapshot) -> tuple[str, str]:
    switches = len(snapshot.nvswitches or ())
    group = clique(snapshot)
    if group is not None and not switches:
        head = "NVLink fabric (NVSwitches outside this node)"
        return head, f"cluster {group.cluster_uuid}, clique {group.clique_id}"
    # The figure of `allocate`: without the overhead that the raw rate of a link includes.
    counts = switch_links(snapshot)
    most = max((counts[gpu.index] * nvlink_rate(gpu, snapshot) for gpu in snapshot.gpus), default=0)
    rate = f"{most / 1000:.0f} GB/s each way from each GPU" if most else ""
    return f"{switches} x NVSwitch" if switches else "NVSwitch", rate


def _curves(
    canvas: Canvas,
    joined: Mapping[Pair, int],
    places: Places,
    top: float,
    way: Highlight,
) -> float:
    docks = _docks(joined, places)
    order = {
        index: position for position, index in enumerate(sorted(places, key=places.__getitem__))
    }
    widest = max(abs(order[a] - order[b]) for a, b in joined)
    step = (_DEEP - _SHALLOW) / max(1, widest - 1) if widest > 1 else 0
    counts = sorted(set(joined.values()))
    thickness: dict[int, float] = {counts[0]: 2.5 if counts[0] == 1 else 5}
    if len(counts) > 1:
        thickness = {count: 2 + 4 * at / (len(counts) - 1) for at, count in enumerate(counts)}
    deepest, labels = top, []
    for pair, count in sorted(
        joined.items(), key=lambda item: (frozenset(item[0]) == way.gpus, item)
    ):
        a, b = pair
        x1, x2 = sorted((docks[a, b], docks[b, a]))
        y1, y2 = places[a][1], places[b][1]
        depth = _SHALLOW + step * (abs(order[a] - order[b]) - 1)
        low = top + depth
        is_way = frozenset(pair) == way.gpus
        d = (
            f"M{number(x1)} {number(y1)} V{number(top)} "
            f"C{number(x1)} {number(low)} {number(x2)} {number(low)} {number(x2)} {number(top)} "
            f"V{number(y2)}"
        )
        canvas.path(
            d,
            f"GPU{a} to GPU{b}: {_plural(count)}",
            stroke=look.WAY if is_way else look.NVLINK,
            stroke_width=thickness[count],
            stroke_opacity=1 if is_way or len(joined) <= _LABELLED else 0.8,
        )
        bottom = top + depth * 0.75  # the middle of a cubic curve whose handles are at depth
        labels.append(((x1 + x2) / 2, bottom, str(count)))
        deepest = max(deepest, bottom)
    if len(joined) <= _LABELLED:
        for x, y, text in labels:
            canvas.label(x, y + 4, f"{text} link{'' if text == '1' else 's'}", 11)
    return deepest + 10


def _docks(joined: Mapping[Pair, int], places: Places) -> Mapping[Pair, float]:
    """Return the x where each GPU (first) has its end of the curve to another.

    Ends stand in the order of the far ends, so that curves of one GPU do not cross.
    """
    docks: dict[Pair, float] = {}
    for index, (x, _) in places.items():
        peers = [b if a == index else a for a, b in joined if index in (a, b)]
        # Nested curves share no point: the nearer of two peers has the inner one.
        left = sorted((p for p in peers if places[p][0] < x), key=lambda p: -places[p][0])
        right = sorted((p for p in peers if places[p][0] > x), key=lambda p: -places[p][0])
        order = [*left, *right]
        gap = min(14.0, (look.CARD - 20) / max(1, len(order)))
        start = x - gap * (len(order) - 1) / 2
        docks |= {(index, peer): start + gap * at for at, peer in enumerate(order)}
    return docks


def span_text(counts: Sequence[int]) -> str:
    """Return the least and the most of *counts* of links, which ascend, e.g. ``1 to 2 links``."""
    low, high = counts[0], counts[-1]
    return f"{low if low == high else f'{low} to {high}'} link{'' if high == 1 else 's'}"


def _plural(count: int) -> str:
    return f"{count} NVLink{'' if count == 1 else 's'}"
