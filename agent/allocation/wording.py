"""Words that all reasons share."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from agent.model.nvlink import Closeness
from agent.topology.matrix import word

WAY: Mapping[Closeness, str] = MappingProxyType(
    {
        Closeness.INTERNAL: "inside one board",
        Closeness.PIX: "through one PCIe switch",
        Closeness.PXB: "through several PCIe switches",
        Closeness.PHB: "through a CPU's host bridge",
        Closeness.NODE: "between host bridges of one NUMA node",
        Closeness.SYS: "between NUMA nodes",
    },
)
"""The levels of ``nvidia-smi topo -m`` in words (its legend)."""


def way(distance: Closeness) -> str:
    """Return a distance in words, with nvidia-smi's word behind."""
    return f"{WAY[distance]} ({word(distance)})"


def counted(count: int, what: str) -> str:
    """Return *count* with *what* in singular or plural."""
    return f"{count} {what}{'' if count == 1 else 's'}"


def listed(parts: Iterable[str]) -> str:
    """Return *parts*, at least one, as a list with "and" before the last."""
    *most, last = parts
    return f"{', '.join(most)} and {last}" if most else last
