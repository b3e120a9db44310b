"""The legends behind the matrix of `nvidia-smi topo -m`: which device a row stands for."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from agent.model.pci import PciAddress

_LINE = re.compile(r"((?:NIC|DD)[0-9]{1,4})\s*:?\s+(\S.*)")
_SEPARATORS = re.compile(r"[\s,;()|]+")
_LABELLED = re.compile(r"(ibdev|netdev|pci|bdf|slot)[:=]?(.*)", re.IGNORECASE)
_PCI_ONLY_LAST = re.compile(r"PIX\s+=")
_NVLINK = re.compile(r"NV#\s+=")
_NOTHING = ("N/A", "-")


@dataclass(frozen=True, slots=True, kw_only=True)
class LegendEntry:
    """One line of the NIC legend.

    Attributes:
        hca: the RDMA device: of the row itself, or that a Data Direct function serves.
        netdev, pci: only in the longer legend of ``topo -nic`` and ``topo -all``.
    """

    row: str
    hca: str
    netdev: str | None = None
    pci: PciAddress | None = None


def read_legend(lines: Iterable[str]) -> tuple[LegendEntry, ...]:
    """Return the entries in order; a ``DD`` row has one for each HCA that it serves.

    The longer legend adds the network interface, the PCI address and the slot to the RDMA
    device (driver release notes of ``nvidia-smi topo -all``). It is read by what the words
    are, labelled or not, as no capture of it was at hand.
    """
    found = (_LINE.fullmatch(line.strip()) for line in lines)
    entries = (_entry(match[1], match[2]) for match in found if match)
    return tuple(entry for entry in entries if entry is not None)


def has_nvlinks(lines: Iterable[str], text: str) -> bool:
    """Return whether the matrix is of the kind that shows NVLinks.

    ``topo -mp`` shows PCIe only: its legend ends with PIX and knows no ``NV#``.
    """
    legend = list(lines)
    is_pci_legend = any(map(_PCI_ONLY_LAST.match, legend)) and not any(map(_NVLINK.match, legend))
    return not is_pci_legend and re.search(r"\btopo\s+-mp\b", text) is None


def by_row(entries: Iterable[LegendEntry]) -> Mapping[str, tuple[LegendEntry, ...]]:
    """Return the entries of each row."""
    grouped: dict[str, tuple[LegendEntry, ...]] = {}
    for entry in entries:
        grouped[entry.row] = (*grouped.get(entry.row, ()), entry)
    return grouped


def _entry(row: str, text: str) -> LegendEntry | None:
    names: list[str] = []
    pci = netdev = None
    label = ""
    for word in filter(None, _SEPARATORS.split(text)):
        value = word
        if labelled := _LABELLED.fullmatch(word):
            label, value = labelled[1].lower(), labelled[2]
        if not value:
            continue  # the label stands apart from its value
        address = PciAddress.as_written(value)
        if address is not None:
            pci = pci or address
        elif label == "netdev":
            netdev = None if value in _NOTHING else value
        elif label != "slot" and value not in _NOTHING:
            names.append(value)
        label = ""
    if not names:
        return None
    # Without an address the further words are a comment: "mlx5_0 data-direct function".
    if pci is not None and netdev is None and len(names) > 1 and not names[1].isdecimal():
        netdev = names[1]
    return LegendEntry(row=row, hca=names[0], netdev=netdev, pci=pci)
