"""The text of `nvidia-smi topo -m`, of any driver since about 2016, as a partial snapshot.

The layouts that exist are those of real captures: tabs or aligned blanks; columns named
``mlx5_0`` (old) or ``NIC0`` with a legend; one to three affinity columns; ``SOC`` where newer
drivers write ``SYS``; ``DD0``, the Data Direct function of a ConnectX-8; underlined headers,
also where the escape byte got lost. A copy that lost cells is refused, not repaired.
"""

import re
from dataclasses import dataclass

from agent.errors import DecodeError
from agent.model.gpu import Gpu
from agent.model.hca import Hca
from agent.model.numa import CpuSet
from agent.model.nvlink import Closeness, ReportedPair
from agent.model.snapshot import Snapshot

MAX_BYTES = 1024 * 1024
"""Largest text accepted; 16 GPUs with 32 NICs are about 15 KiB."""

_CURE = "give the whole output of `nvidia-smi topo -m`, as it was printed"
_ANSI = re.compile(r"\x1b\[[0-9;]*m|\[[04]m")
_GPU = re.compile(r"GPU([0-9]{1,4})")
_CELL = re.compile(r"X|PIX|PXB|PHB|NODE|SYS|SOC|NV[0-9]{1,3}|\?")
NOT_REPORTED = "?"
"""A cell of our own matrix whose value nobody reports; nvidia-smi has no such word."""

_LEGEND = re.compile(r"\s*(NIC[0-9]+):\s*(\S+)\s*")
_UNKNOWN = ("", "N/A")
_AFFINITY_COLUMNS = {
    "": 1,
    "NUMA Affinity": 2,
    "NUMA Affinity GPU NUMA ID": 3,
}
"""What a header holds after CPU Affinity, and how many columns there are then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """One device's line: its cells, and the columns after them (none on a NIC's line)."""

    name: str
    cells: tuple[str, ...]
    cpu_affinity: str = ""
    numa_affinity: str = ""


def parse_topo_m(text: str) -> Snapshot:
    """Return what the matrix tells: GPUs, HCAs in column order, the closeness of every pair.

    NVLinks are counted per pair (0 where a pair of GPUs has another word); single links,
    and all else, are ``None``. A Data Direct function stands among the HCAs as ``DD<n>``.
    A NUMA node is taken only where the text names one alone: ``0-3`` says nothing exact.

    Raises:
        DecodeError: no matrix, or one with missing, fused or contradicting cells; its path
            names the row, or the row and column.
    """
    if len(text) > MAX_BYTES:
        raise DecodeError("", f"larger than {MAX_BYTES >> 10} KiB", _CURE)
    lines = _ANSI.sub("", text).splitlines()
    at, devices, columns = _header(lines)
    rows = _rows(lines[at + 1 :], devices, columns)
    _check_symmetry(rows)
    legend = {match[1]: match[2] for match in map(_LEGEND.fullmatch, lines) if match}
    hcas = tuple(name for name in devices if not _GPU.fullmatch(name))
    return Snapshot(
        gpus=tuple(_gpu(row) for row in rows if _GPU.fullmatch(row.name)),
        pairs=_pairs(rows, {name: f"NIC{position}" for position, name in enumerate(hcas)}),
        # A matrix without NIC rows may come from a tool that leaves them out: not "none".
        hcas=tuple(Hca(name=legend.get(name, name)) for name in hcas) or None,
    )


def _header(lines: list[str]) -> tuple[int, tuple[str, ...], int]:
    """Return the header's line, the names of its columns, and how many affinity columns follow."""
    for at, line in enumerate(lines):
        names, found, rest = line.partition("CPU Affinity")
        columns = _AFFINITY_COLUMNS.get(" ".join(rest.split()))
        if found and columns is not None and _GPU.match(names.lstrip()):
            return at, _devices(names.split()), columns
    raise DecodeError("", "no header with GPU columns and CPU Affinity: not a matrix", _CURE)


def _devices(names: list[str]) -> tuple[str, ...]:
    for position, name in enumerate(names):
        if name in names[:position] or _CELL.fullmatch(name):
            raise DecodeError("header", f"column {position + 1} cannot be {name!r}", _CURE)
    gpus = [int(match[1]) for match in map(_GPU.fullmatch, names) if match]
    if gpus != sorted(gpus):
        raise DecodeError("header", "the GPU columns are out of order", _CURE)
    return tuple(names)


def _rows(lines: list[str], devices: tuple[str, ...], columns: int) -> tuple[_Row, ...]:
    """Read one line for each device, in the order of the columns."""
    rows = []
    for name, line in zip(devices, lines, strict=False):
        if line.split()[:1] != [name]:
            break
        rows.append(_row(name, line, devices, columns))
    if len(rows) < len(devices):
        missing = devices[len(rows)]
        problem = f"its row is missing: {len(rows)} rows for {len(devices)} columns"
        raise DecodeError(missing, problem, _CURE)
    return tuple(rows)


def _row(name: str, line: str, devices: tuple[str, ...], columns: int) -> _Row:
    words = list(re.finditer(r"\S+", line))[1:]
    if len(words) < len(devices):
        raise DecodeError(name, f"{len(words)} cells for {len(devices)} columns", _CURE)
    for device, word in zip(devices, words, strict=False):
        is_nvlink = word[0].startswith("NV")
        is_gpu_pair = bool(_GPU.fullmatch(name) and _GPU.fullmatch(device))
        is_cell = _CELL.fullmatch(word[0]) and (is_gpu_pair or not is_nvlink)
        if not is_cell or (word[0] == "X") != (device == name):
            raise DecodeError(f"{name}/{device}", f"not a cell here: {word[0]!r}", _CURE)
    cells = tuple(word[0].replace("SOC", "SYS") for word in words[: len(devices)])
    rest = line[words[len(devices) - 1].end() :]
    if _GPU.fullmatch(name):
        cpu, numa = _affinities(name, rest, columns)
        return _Row(name=name, cells=cells, cpu_affinity=cpu, numa_affinity=numa)
    if rest.strip():
        raise DecodeError(name, f"more cells than columns: {rest.strip()[:40]!r}", _CURE)
    return _Row(name=name, cells=cells)


def _affinities(name: str, rest: str, columns: int) -> tuple[str, str]:
    """Return the CPU and NUMA affinity of a GPU's line, from what follows its cells.

    All columns filled: take them in order. Otherwise only tabs can tell which one is empty:
    drivers print ``CPU⇥NUMA⇥⇥GPU NUMA ID``, and a NUMA affinity of ``N/A`` one tab late.
    """
    words = rest.split()
    if len(words) == columns:
        return words[0], words[1] if columns > 1 else ""
    fields = [field.strip() for field in rest.split("\t")[1:]]
    cpu, numa, late = (*fields, "", "", "")[:3]
    if len(words) < columns and late in _UNKNOWN and (fields or not words):
        return cpu, numa
    raise DecodeError(name, f"affinity columns not understood: {rest.strip()[:60]!r}", _CURE)


def _check_symmetry(rows: tuple[_Row, ...]) -> None:
    for i, row in enumerate(rows):
        for j, other in enumerate(rows[:i]):
            if row.cells[j] != other.cells[i]:
                problem = f"{row.cells[j]} one way, {other.cells[i]} the other"
                raise DecodeError(f"{row.name}/{other.name}", problem, _CURE)


def _gpu(row: _Row) -> Gpu:
    match = _GPU.fullmatch(row.name)
    assert match is not None
    nodes = _list(row, "NUMA Affinity", row.numa_affinity)
    numa_affinity = None if nodes is None else tuple(nodes)
    is_exact = numa_affinity is not None and len(numa_affinity) == 1
    return Gpu(
        index=int(match[1]),
        numa_node=numa_affinity[0] if numa_affinity and is_exact else None,
        numa_affinity=numa_affinity,
        cpu_affinity=_list(row, "CPU Affinity", row.cpu_affinity),
    )


def _list(row: _Row, column: str, text: str) -> CpuSet | None:
    if text in _UNKNOWN:
        return None
    try:
        return CpuSet.parse(text)
    except ValueError:
        raise DecodeError(f"{row.name}/{column}", f"not a list: {text[:40]!r}", _CURE) from None


def _pairs(rows: tuple[_Row, ...], position: dict[str, str]) -> tuple[ReportedPair, ...]:
    return tuple(
        _pair(position.get(row.name, row.name), position.get(other.name, other.name), cell)
        for at, row in enumerate(rows)
        for other, cell in zip(rows[at + 1 :], row.cells[at + 1 :], strict=True)
    )


def _pair(a: str, b: str, cell: str) -> ReportedPair:
    if cell.startswith("NV"):
        return ReportedPair(a=a, b=b, nvlinks=int(cell[2:]))
    if cell == NOT_REPORTED:
        return ReportedPair(a=a, b=b)
    is_gpu_pair = a.startswith("GPU") and b.startswith("GPU")
    return ReportedPair(a=a, b=b, closeness=Closeness[cell], nvlinks=0 if is_gpu_pair else None)
