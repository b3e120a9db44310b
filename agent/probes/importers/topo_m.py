"""The text of `nvidia-smi topo -m`, of any driver since about 2016, as a partial snapshot.

The layouts that exist are those of real captures: tabs or aligned blanks; columns named
``mlx5_0`` (old) or ``NIC0`` with a legend; one to three affinity columns or none; ``SOC``
where newer drivers write ``SYS``; ``DD0``, the Data Direct function of a ConnectX-8, and NVMe
drives (``topo -all``); PCIe only (``topo -mp``). A copy that lost cells inside a row is
refused, not repaired; one that was cut short tells what its rows tell, with an issue, and so
does one whose affinities are not to be told apart.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from agent.errors import DecodeError
from agent.model.gpu import Gpu
from agent.model.hca import DataDirect, Hca, NetDevice
from agent.model.numa import CpuSet
from agent.model.nvlink import Closeness, ReportedPair
from agent.model.pci import PciAddress
from agent.model.snapshot import ProbeIssue, Snapshot
from agent.probes.importers.topo_m_rows import (
    CURE,
    DATA_DIRECT,
    GPU,
    NOT_REPORTED,
    NVME,
    UNKNOWN,
    Row,
    Table,
    read_table,
)

# The legends behind the matrix of `nvidia-smi topo -m`: which device a row stands for.

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


MAX_BYTES = 1024 * 1024
"""Largest text accepted; 16 GPUs with 32 NICs are about 15 KiB."""


_MAX_NUMA_NODE = 1 << 16


_MAX_LIST = 4096
"""Longest list of CPUs in characters; every second one of 1000 takes 2 KiB."""


_PROBE = "topo-m"


def parse_topo_m(text: str) -> Snapshot:
    """Return what the matrix tells: GPUs, HCAs in column order, the closeness of every pair.

    NVLinks are counted per pair (0 where a pair of GPUs has another word, ``None`` in the
    PCIe-only form ``topo -mp``); single links, and all else, are ``None``. Data Direct
    functions are ``data_directs``; NVMe drives are left out. A NUMA node is taken only where
    the text names one alone: ``0-3`` says nothing exact. Where rows are missing at the end
    of a cut paste, their devices are there, what only those rows tell is not, and an issue
    names them.

    Raises:
        DecodeError: no matrix, or one with missing, fused or contradicting cells, or another
            vendor's; its path names the row, or the row and column.
    """
    if len(text) > MAX_BYTES:
        raise DecodeError("", f"larger than {MAX_BYTES >> 10} KiB", CURE)
    table = read_table(text)
    legend = by_row(read_legend(table.rest))
    rows = {row.name: row for row in table.rows}
    names = _names(table.devices)
    return Snapshot(
        gpus=tuple(_gpu(name, rows.get(name)) for name in table.devices if GPU.fullmatch(name)),
        pairs=_pairs(table, names, shows_nvlinks=has_nvlinks(table.rest, text)),
        # A matrix without NIC rows may come from a tool that leaves them out: not "none".
        hcas=tuple(_hca(column, legend) for column, name in names.items() if name.startswith("NIC"))
        or None,
        data_directs=tuple(
            _data_direct(column, legend) for column, name in names.items() if name.startswith("DD")
        )
        or None,
        issues=_issues(table),
    )


def _names(devices: tuple[str, ...]) -> dict[str, str]:
    """Return our name of every column that we keep: NICs and Data Directs count from 0."""
    names: dict[str, str] = {}
    nics = directs = 0
    for column in devices:
        if GPU.fullmatch(column):
            names[column] = f"GPU{int(column[3:])}"
        elif DATA_DIRECT.fullmatch(column):
            names[column] = f"DD{directs}"
            directs += 1
        elif not NVME.fullmatch(column):
            names[column] = f"NIC{nics}"
            nics += 1
    return names


def _gpu(name: str, row: Row | None) -> Gpu:
    index = int(name[3:])
    if row is None:
        return Gpu(index=index)
    nodes = _list(row, "NUMA Affinity", row.numa_affinity)
    numa_affinity = None if nodes is None else tuple(nodes)
    return Gpu(
        index=index,
        numa_node=numa_affinity[0] if numa_affinity and len(numa_affinity) == 1 else None,
        numa_affinity=numa_affinity,
        memory_numa_node=_number(row, "GPU NUMA ID", row.gpu_numa_id),
        cpu_affinity=_list(row, "CPU Affinity", row.cpu_affinity),
    )


def _list(row: Row, column: str, text: str) -> CpuSet | None:
    if text in UNKNOWN:
        return None
    try:
        return CpuSet.parse(text if len(text) <= _MAX_LIST else "too long")
    except ValueError:
        raise DecodeError(f"{row.name}/{column}", f"not a list: {text[:40]!r}", CURE) from None


def _number(row: Row, column: str, text: str) -> int | None:
    if text in UNKNOWN:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) < 6 and int(text) < _MAX_NUMA_NODE):
        raise DecodeError(f"{row.name}/{column}", f"not a number: {text[:40]!r}", CURE)
    return int(text)


def _hca(column: str, legend: Mapping[str, tuple[LegendEntry, ...]]) -> Hca:
    entries = legend.get(column)
    if not entries:
        return Hca(name=column)
    entry = entries[0]
    netdevs = () if entry.netdev is None else (NetDevice(name=entry.netdev),)
    return Hca(name=entry.hca, pci=entry.pci, netdevs=netdevs)


def _data_direct(column: str, legend: Mapping[str, tuple[LegendEntry, ...]]) -> DataDirect:
    """Return the function; a legend line names an HCA that it serves."""
    hcas = {entry.hca for entry in legend.get(column, ())}
    return DataDirect(hcas=tuple(sorted(hcas)))


def _pairs(
    table: Table,
    names: Mapping[str, str],
    *,
    shows_nvlinks: bool,
) -> tuple[ReportedPair, ...]:
    has_links = shows_nvlinks or any(cell[:2] == "NV" for row in table.rows for cell in row.cells)
    return tuple(
        _pair(names[row.name], names[other], cell, has_links=has_links)
        for at, row in enumerate(table.rows)
        for other, cell in zip(table.devices[at + 1 :], row.cells[at + 1 :], strict=True)
        if row.name in names and other in names
    )


def _pair(a: str, b: str, cell: str, *, has_links: bool) -> ReportedPair:
    if cell.startswith("NV"):
        return ReportedPair(a=a, b=b, nvlinks=int(cell[2:]))
    if cell == NOT_REPORTED:
        return ReportedPair(a=a, b=b)
    counts_links = has_links and a.startswith("GPU") and b.startswith("GPU")
    return ReportedPair(a=a, b=b, closeness=Closeness[cell], nvlinks=0 if counts_links else None)


def _issues(table: Table) -> tuple[ProbeIssue, ...]:
    return tuple(
        ProbeIssue(probe=_PROBE, subject=subject, reason=reason)
        for subject, reason in _reasons(table)
    )


def _reasons(table: Table) -> Iterator[tuple[str, str]]:
    if missing := table.devices[len(table.rows) :]:
        count = f"{len(missing)} of {len(table.devices)}"
        yield "rows", f"{count} rows are missing, from {missing[0]} on"
    if unclear := [row.name for row in table.rows if row.is_unclear]:
        yield "affinities", f"cut, or not to be told apart without tabs: {', '.join(unclear)}"
