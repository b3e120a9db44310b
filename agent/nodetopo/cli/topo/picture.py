"""The drawing of a node, loaded only for ``-o svg``."""

from collections.abc import Callable

from nodetopo.drawing.devices import Device
from nodetopo.model.snapshot import Snapshot


def picture(snapshot: Snapshot, ends: tuple[Device, Device] | None = None) -> Callable[[], str]:
    """Return a function that draws *snapshot*, with the path between *ends* if given."""

    def svg() -> str:
        from nodetopo.drawing.node import draw  # noqa: PLC0415 - the picture is rarely asked for

        return draw(snapshot, ends)

    return svg
