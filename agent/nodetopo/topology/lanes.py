"""The lanes of GPUs' PCIe links, against what GPU and slot can do."""

from collections.abc import Iterator, Mapping

from nodetopo.model.gpu import Gpu
from nodetopo.model.pci import PcieLink
from nodetopo.model.snapshot import Snapshot


def ends(snapshot: Snapshot) -> Iterator[tuple[Gpu, PcieLink | None, PcieLink | None]]:
    """Yield each GPU below a port, with its own link and the port's link."""
    ports = {bridge.address: bridge.link for bridge in snapshot.bridges or ()}
    for gpu in snapshot.gpus:
        if gpu.path is None or len(gpu.path.hops) > 1:
            own = None if gpu.function is None else gpu.function.link
            yield gpu, own, None if gpu.path is None else ports.get(gpu.path.hops[-2])


def lanes(snapshot: Snapshot) -> Mapping[int, tuple[int, int] | None]:
    """Return by GPU index how many lanes its link trained to, and how many it could have.

    The second is the lesser of what the GPU reports and what its port can do: a slot with fewer
    lanes is no fault of the link. A GPU that does not report either has ``None``. The width, unlike
    the generation, does not drop while a GPU idles (NVIDIA NVML API reference,
    nvmlDeviceGetCurrPcieLinkWidth).
    """
    ports = {gpu.index: port for gpu, _, port in ends(snapshot)}
    found: dict[int, tuple[int, int] | None] = {}
    for gpu in snapshot.gpus:
        link, port = gpu.pcie, ports.get(gpu.index)
        if link is None or link.width is None or link.max_width is None:
            found[gpu.index] = None
            continue
        full = link.max_width
        if port is not None and port.max_width is not None:
            full = min(full, port.max_width)
        found[gpu.index] = link.width, full
    return found


def missing_lanes(snapshot: Snapshot) -> Mapping[int, tuple[int, int]]:
    """Return the same of the GPUs that lack lanes which they could have."""
    return {index: both for index, both in lanes(snapshot).items() if both and both[0] < both[1]}
