"""The text of `nvidia-smi topo -m`, of any driver since about 2016, as a partial snapshot.

The supported layouts come from real captures: tabs or aligned blanks; columns named ``mlx5_0``
(old) or ``NIC0`` with a legend; one to three affinity columns or none; ``SOC`` for newer drivers'
``SYS``; ``DD0``, the Data Direct function of a ConnectX-8, and NVMe drives (``topo -all``); PCIe
only (``topo -mp``). A copy that lost cells inside a row is refused, not repaired; a truncated copy
is read up to its end, with an issue, and so is one whose affinities cannot be assigned to their
columns.
"""

import re
from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

from nodetopo.errors import DecodeError
from nodetopo.model.digits import is_digits
from nodetopo.model.gpu import Gpu
from nodetopo.model.hca import DataDirect, Hca, NetDevice
from nodetopo.model.limits import MAX_NUMA_NODE, MAX_NUMA_NODES
from nodetopo.model.numa import CpuSet
from nodetopo.model.nvlink import Closeness, ReportedPair
from nodetopo.model.pci import PciAddress
from nodetopo.model.probe_issue import ProbeIssue
from nodetopo.model.snapshot import Snapshot
from nodetopo.tools.importers.topo_m_rows import (
    CELL,
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

MAX_BYTES = 1024 * 1024
"""Largest text accepted; 16 GPUs with 32 NICs are about 15 KiB."""

_MAX_LIST = 4096
"""Longest list of CPUs in characters; every second one of 1000 takes 2 KiB."""

_PROBE = "topo-m"

_LEGEND_LINE = re.compile(r"((?:NIC|DD)[0-9]{1,4})\s*:?\s+(\S.*)")

_LEGEND_ROW = re.compile(r"(?:NIC|DD)[0-9]{1,4}")

_NIC_LEGEND = re.compile(r"\s*NIC Legend:")

_SEPARATORS = re.compile(r"[\s,;()|]+")

_NAME = re.compile(r"(.*?)[0-9]+")
"""The name of an RDMA device as kernels and udev make it: it ends in a number."""

_DRIVERS = ("mlx4_", "mlx5_")
"""Prefixes of the names that NVIDIA's drivers give to HCAs, before the number."""

_LABELLED = re.compile(r"(ibdev|netdev|pci|bdf|slot)[:=]?(.*)", re.IGNORECASE)

_PCI_ONLY_LAST = re.compile(r"PIX\s+=")

_NVLINK = re.compile(r"NV#\s+=")

_NOTHING = ("N/A", "-")


class LegendEntry(Struct, frozen=True, kw_only=True):
    """One line of the NIC legend."""

    row: str
    hca: str  # the RDMA device of the row, or the one that a Data Direct function serves
    # netdev, pci: only in the longer legend of `topo -nic` and `topo -all`
    netdev: str | None = None
    pci: PciAddress | None = None


def parse_topo_m(text: str) -> Snapshot:
    """Return the content of the matrix: GPUs, HCAs in column order, the closeness of every pair.

    NVLinks are counted per pair (0 if a pair of GPUs has another word, None in the PCIe-only form
    ``topo -mp``); single links, and all other facts, are None. Data Direct functions are
    ``data_directs``; NVMe drives are left out. A NUMA node is used only if the text names exactly
    one: ``0-3`` is not exact. If rows are missing at the end of a truncated paste, their devices
    are kept without the rows' facts, and an issue names them. A truncated last row or legend, and
    other text, cause issues too.

    Raises:
        DecodeError: no matrix, or one with missing or contradicting cells; its path names the row,
            or the row and column.
    """
    if len(text) > MAX_BYTES:
        raise DecodeError("", f"larger than {MAX_BYTES >> 10} KiB", CURE)
    table = read_table(text)
    legend = read_legend(table.rest)
    if not table.unread:
        legend = _without_cut_name(legend, table.rest)
    rows = {row.name: row for row in table.rows}
    names = _names(table.devices)
    hcas: list[Hca] = []
    for column in (it for it, name in names.items() if name.startswith("NIC")):
        entries = legend.get(column, ())
        # Two names of one row belong to two machines.
        is_clear = len({entry.hca for entry in entries}) == 1
        entry = entries[0] if is_clear else LegendEntry(row=column, hca=column)
        netdevs = () if entry.netdev is None else (NetDevice(name=entry.netdev),)
        hcas.append(Hca(name=entry.hca, pci=entry.pci, netdevs=netdevs))
    # A line of the legend names an HCA that the Data Direct function serves.
    directs = [
        DataDirect(hcas=tuple(sorted({entry.hca for entry in legend.get(column, ())})))
        for column, name in names.items()
        if name.startswith("DD")
    ]
    return Snapshot(
        gpus=tuple(_gpu(name, rows.get(name)) for name in table.devices if GPU.fullmatch(name)),
        pairs=tuple(_pairs(table, names, text)),
        # A matrix without NIC rows can come from a tool that omits them: not "none".
        hcas=tuple(hcas) or None,
        data_directs=tuple(directs) or None,
        issues=tuple(
            ProbeIssue(probe=_PROBE, subject=subject, reason=reason)
            for subject, reason in _issues(table, legend, has_links=_has_links(table, text))
        ),
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
    if nodes is not None and len(nodes) > MAX_NUMA_NODES:
        problem = f"{len(nodes)} nodes, more than the {MAX_NUMA_NODES} that Linux has"
        raise DecodeError(f"{name}/NUMA Affinity", problem, CURE)
    numa_affinity = None if nodes is None else tuple(nodes)
    own_node, node = row.gpu_numa_id, None
    if own_node not in UNKNOWN:
        is_number = is_digits(own_node) and len(own_node) < 6
        if not is_number or int(own_node) > MAX_NUMA_NODE:
            raise DecodeError(f"{name}/GPU NUMA ID", f"not a number: {own_node[:40]!r}", CURE)
        node = int(own_node)
    return Gpu(
        index=index,
        numa_node=numa_affinity[0] if numa_affinity and len(numa_affinity) == 1 else None,
        numa_affinity=numa_affinity,
        memory_numa_node=node,
        cpu_affinity=_list(row, "CPU Affinity", row.cpu_affinity),
    )


def _list(row: Row, column: str, text: str) -> CpuSet | None:
    if text in UNKNOWN:
        return None
    try:
        return CpuSet.parse(text if len(text) <= _MAX_LIST else "too long")
    except ValueError:
        raise DecodeError(f"{row.name}/{column}", f"not a list: {text[:40]!r}", CURE) from None


def _pairs(table: Table, names: Mapping[str, str], text: str) -> Iterator[ReportedPair]:
    """Yield each pair of devices that is kept, once."""
    has_links = _has_links(table, text)
    for at, row in enumerate(table.rows):
        for column, cell in zip(table.devices[at + 1 :], row.cells[at + 1 :], strict=True):
            if row.name not in names or column not in names:
                continue
            a, b = names[row.name], names[column]
            if cell.startswith("NV"):
                yield ReportedPair(a=a, b=b, nvlinks=int(cell[2:]))
            elif cell == NOT_REPORTED:
                yield ReportedPair(a=a, b=b)
            else:
                are_gpus = a.startswith("GPU") and b.startswith("GPU")
                nvlinks = 0 if has_links and are_gpus else None
                yield ReportedPair(a=a, b=b, closeness=Closeness[cell], nvlinks=nvlinks)


def _has_links(table: Table, text: str) -> bool:
    """Return whether the matrix shows NVLinks.

    ``topo -mp`` shows PCIe only: its legend ends with PIX and has no ``NV#``.
    """
    if any(cell.startswith("NV") for row in table.rows for cell in row.cells):
        return True
    is_pci_legend = any(map(_PCI_ONLY_LAST.match, table.rest)) and not any(
        map(_NVLINK.match, table.rest)
    )
    return not is_pci_legend and re.search(r"\btopo\s+-mp\b", text) is None


def _issues(
    table: Table, legend: Mapping[str, tuple[LegendEntry, ...]], *, has_links: bool
) -> Iterator[tuple[str, str]]:
    """Yield subject and reason of each issue."""
    if not has_links:
        yield "nvlinks", "`topo -mp` hides NVLinks: not known; `nvidia-smi topo -m` shows them"
    if missing := table.devices[len(table.rows) :]:
        count = f"{len(missing)} of {len(table.devices)}"
        yield "rows", f"{count} rows are missing, from {missing[0]} on"
    if unclear := [row.name for row in table.rows if row.is_unclear]:
        yield "affinities", f"cut, or not to be told apart without tabs: {', '.join(unclear)}"
    nics = [name for name in table.devices if _LEGEND_ROW.fullmatch(name)]
    unnamed = [name for name in nics if name not in legend]
    if unnamed and (legend or any(map(_NIC_LEGEND.match, table.rest))):
        count = f"{len(unnamed)} of {len(nics)}"
        yield "legend", f"cut: {count} rows have no name in it, from {unnamed[0]} on"
    for name in nics:
        hcas = sorted({entry.hca for entry in legend.get(name, ())})
        if name.startswith("NIC") and len(hcas) > 1:
            yield "legend", f"{name} has several names: {', '.join(hcas)}"
    if table.unread:
        lines = "1 line is" if len(table.unread) == 1 else f"{len(table.unread)} lines are"
        first = " ".join(table.unread[0].split())
        what = ": a second matrix, perhaps of another node" if table.has_second else ""
        where = "after the matrix and its legend"
        yield "text", f"{lines} not read {where}, from {first[:40]!r} on{what}"


def read_legend(lines: Iterable[str]) -> Mapping[str, tuple[LegendEntry, ...]]:
    """Return row → its entries in order; a ``DD`` row has one for each HCA that it serves."""
    entries: dict[str, tuple[LegendEntry, ...]] = {}
    for match in map(_LEGEND_LINE.fullmatch, map(str.strip, lines)):
        if match and (entry := _legend_entry(match[1], match[2])):
            entries[entry.row] = (*entries.get(entry.row, ()), entry)
    return entries


def _without_cut_name(
    legend: Mapping[str, tuple[LegendEntry, ...]], lines: Iterable[str]
) -> Mapping[str, tuple[LegendEntry, ...]]:
    """Return the *legend* of *lines* without a final name that might be truncated.

    A name ends in a number. Otherwise it is truncated; so is a name that is the others' prefix, as
    ``mlx5`` next to ``mlx5_0`` and ``mlx5_1``, and one that another row has.
    """
    last = next((line for line in reversed([line.strip() for line in lines]) if line), "")
    match = _LEGEND_LINE.fullmatch(last)
    entry = match and _legend_entry(match[1], match[2])
    if entry is None or not last.endswith(entry.hca):
        return legend  # more words follow the name
    others = {other.hca for row in legend.values() for other in row if other.row != entry.row}
    stems = {found[1] for found in map(_NAME.fullmatch, others) if found} or {*_DRIVERS}
    is_start = entry.hca in others or any(stem.startswith(entry.hca) for stem in stems)
    if _NAME.fullmatch(entry.hca) and not is_start:
        return legend
    kept = tuple(other for other in legend[entry.row] if other != entry)
    others_kept = {row: entries for row, entries in legend.items() if row != entry.row}
    return {**others_kept, entry.row: kept} if kept else others_kept


def _legend_entry(row: str, text: str) -> LegendEntry | None:
    """Return the entry in *text*; None where it names no RDMA device, as in a row of the matrix.

    The longer legend adds the network interface, the PCI address and the slot to the RDMA device
    (driver release notes of ``nvidia-smi topo -all``). It is read by the form of the words,
    labelled or not, as no capture of it was at hand.
    """
    names: list[str] = []
    pci = netdev = None
    label = ""
    for word in filter(None, _SEPARATORS.split(text)):
        value = word
        if labelled := _LABELLED.fullmatch(word):
            label, value = labelled[1].lower(), labelled[2]
        if not value:
            continue  # the label is separate from its value
        address = PciAddress.as_written(value)
        if address is not None:
            pci = pci or address
        elif label == "netdev":
            netdev = None if value in _NOTHING else value
        elif label != "slot" and value not in _NOTHING:
            names.append(value)
        label = ""
    if not names or CELL.fullmatch(names[0]):
        return None
    # Without an address the further words are a comment: "mlx5_0 data-direct function".
    if pci is not None and netdev is None and len(names) > 1 and not is_digits(names[1]):
        netdev = names[1]
    return LegendEntry(row=row, hca=names[0], netdev=netdev, pci=pci)
