"""What a PCIe link carries, and which of its two ends says less."""

from dataclasses import replace
from types import MappingProxyType

from agent.model.pci import GT_S_TO_GENERATION, PcieLink

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
    values = {
        name: _lesser(getattr(device, name), getattr(port, name))
        for name in ("generation", "width", "max_generation", "max_width")
    }
    return replace(device, **values)


def _lesser(a: int | None, b: int | None) -> int | None:
    known = [value for value in (a, b) if value is not None]
    return min(known, default=None)
