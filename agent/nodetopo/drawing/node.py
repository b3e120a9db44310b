"""The drawing of a node, as people draw one on a whiteboard.

NUMA nodes stand side by side, each with its CPU on top; host bridges and PCIe switches hang
below it, GPUs and NICs below those, all in one row; the NVLink side is underneath.
"""

from collections.abc import Mapping

from nodetopo.drawing import frame, nvlink, pcie
from nodetopo.drawing import frame as between
from nodetopo.drawing.blocks import BlockPlan, heights, plan, stack
from nodetopo.drawing.canvas import MARGIN, PAD, Canvas
from nodetopo.drawing.containment import BranchKind
from nodetopo.drawing.devices import Device
from nodetopo.drawing.highlight import Highlight, highlight
from nodetopo.drawing.layout import Mark
from nodetopo.model.gpu import Gpu
from nodetopo.model.snapshot import Snapshot

_LEAST_WIDTH = 560
"""Room for the title and the legend of a small machine."""


def draw(snapshot: Snapshot, ends: tuple[Device, Device] | None = None) -> str:
    """Return the picture of *snapshot* as one SVG 1.1 document, ending with a line break.

    The same snapshot gives the same bytes. With *ends*, the way between the two stands out.
    Nothing outside the document is referred to, and no word of the snapshot can become an
    element of it.
    """
    canvas, w, h = _painted(snapshot, highlight(snapshot, ends), {})
    return canvas.document(w, h, frame.heading(snapshot)[0])


def figure(snapshot: Snapshot, marks: Mapping[int, Mark], about: str) -> tuple[str, float]:
    """Return the same picture as an element of an HTML page, and its width in CSS pixels.

    It has the *marks* of GPUs, by index; *about* describes it in words.
    """
    canvas, w, h = _painted(snapshot, highlight(snapshot, None), marks)
    return canvas.figure(w, h, frame.heading(snapshot)[0], about), w


def _painted(
    snapshot: Snapshot, way: Highlight, marks: Mapping[int, Mark]
) -> tuple[Canvas, float, float]:
    """Return the painted canvas, its width and its height."""
    places = plan(snapshot)
    mark(places, marks)
    places.width = max(places.width, _LEAST_WIDTH)
    canvas = Canvas()
    stack(places, frame.paint_title(canvas, snapshot, places.width))
    pcie.paint(canvas, places, way)
    between.paint(canvas, places, snapshot, way)
    bottom = places.bottom + (PAD if places.has_frames else 0)
    gpus = heights(places)
    if gpus:
        bottom = nvlink.paint(canvas, snapshot, gpus, bottom, way)
    bottom = frame.paint_legend(canvas, places, snapshot, bottom, way)
    return canvas, places.width, bottom + MARGIN


def mark(places: BlockPlan, marks: Mapping[int, Mark]) -> None:
    """Give the cards of GPUs their *marks*, by index."""
    for box in places.boxes():
        device = box.branch.device
        if isinstance(device, Gpu) and box.branch.kind is BranchKind.GPU:
            box.mark = marks.get(device.index)
