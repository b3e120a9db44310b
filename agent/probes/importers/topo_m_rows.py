"""The table in the text of `nvidia-smi topo -m`: its columns, its rows, and no word more.

Pasted copies differ in everything but their words: tabs or blanks, underlined headers (also
where the escape byte got lost), indentation, quote marks, code fences, empty lines between.
A cell that is lost inside a row is never made up; rows lost at the end are told, and so are
affinities that cannot be told apart.
"""

import re
from dataclasses import dataclass, replace
from itertools import pairwise

from agent.errors import DecodeError

CURE = "give the whole output of `nvidia-smi topo -m`, as it was printed"
NOT_REPORTED = "?"
"""A cell of our own matrix whose value nobody reports; nvidia-smi has no such word."""

UNKNOWN = ("", "N/A")
GPU = re.compile(r"GPU([0-9]{1,4})")
DATA_DIRECT = re.compile(r"DD[0-9]{1,4}")
NVME = re.compile(r"NVMe[0-9]{1,4}", re.IGNORECASE)
"""Columns of ``topo -all`` and ``topo -nvme``."""

_HCA = re.compile(r"NIC[0-9]{1,4}|[a-z][a-z_-]*[0-9][a-z0-9_-]*")
"""``NIC0``, or the device's own name as drivers before about R515 print it: ``mlx5_0``, or
``rocep1s0f0`` and ``rdmap16s27`` where udev names by place (rdma-core, ``rdma_rename``)."""

_ANSI = re.compile(
    r"(?:\x1b|\^\[|\\(?:u001b|x1b|033|e))(?:\[[0-9;]*[A-Za-z]|\([0B])|\[[04]m",
)
"""A terminal's style code; its escape byte may be spelled out, as ``cat -v`` and JSON do."""

_LEAD = re.compile(r"[\s>#\ufeff]*")
"""What stands before a line that was quoted, indented or commented out."""

_FENCE = re.compile(r"\s*(```|~~~)")
_CELL = re.compile(r"X|PIX|PXB|PHB|NODE|SYS|SOC|NV[0-9]{1,3}|\?")
_CELL_START = re.compile(r"PI?|PX|PH|NO?|NOD|SY?|SO|NV")
"""What is left of a cell where a text ends inside it."""

_P2P = re.compile(r"OK|CNS|GNS|TNS|NS|DR|U")
"""The words of ``topo -p2p``, whose header looks the same (nvidia-smi manual)."""

_OTHERS = (
    (re.compile(r"XGMI|PCIE"), "an AMD GPU (rocm-smi, amd-smi)"),
    (re.compile(r"ICN[0-9]*|PPU[0-9]+"), "an Alibaba PPU (ppu-smi)"),
    (re.compile(r"HCCS(_SW)?|NPU[0-9]+"), "a Huawei Ascend NPU (npu-smi)"),
    (re.compile(r"MDF|XL[0-9]+"), "an Intel GPU (xpu-smi)"),
)
"""Words that only the look-alike tables of other vendors have, from their tools' manuals."""

_AFFINITY_COLUMNS = {
    "": 1,
    "NUMA Affinity": 2,
    "NUMA Affinity GPU NUMA ID": 3,
}
"""What a header holds after CPU Affinity, and how many columns there are then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One device's line: its cells, and the columns after them (none on a NIC's line).

    Attributes:
        is_unclear: the columns after the cells are there, but cut or not to be told apart;
            they are empty here.
    """

    name: str
    cells: tuple[str, ...]
    cpu_affinity: str = ""
    numa_affinity: str = ""
    gpu_numa_id: str = ""
    is_unclear: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """The columns in order, the rows of the first of them, and the lines behind the rows."""

    devices: tuple[str, ...]
    rows: tuple[Row, ...]
    rest: tuple[str, ...]


def read_table(text: str) -> Table:
    """Return the first matrix of *text*; rows may be missing at its end, as in a cut paste.

    Raises:
        DecodeError: no matrix, or one with missing, fused or contradicting cells, or another
            vendor's; its path names the row, or the row and column.
    """
    lines = [_clean(line) for line in text.splitlines()]
    at, devices, columns = _header(lines)
    is_open = not text.endswith(("\n", "\r"))
    rows, end = _rows(lines, at + 1, devices, columns, is_open=is_open)
    _check_symmetry(rows)
    return Table(devices=devices, rows=rows, rest=tuple(lines[end:]))


def _clean(line: str) -> str:
    if _FENCE.match(line):
        return ""
    # Web pages hand out no-break spaces where a blank stood.
    return _LEAD.sub("", _ANSI.sub("", line.replace("\xa0", " ")), count=1)


def _header(lines: list[str]) -> tuple[int, tuple[str, ...], int]:
    """Return the header's line, the names of its columns, and how many affinity columns follow."""
    strange = ""
    for at, line in enumerate(lines):
        names, found, rest = line.partition("CPU Affinity")
        if not GPU.match(names):
            continue
        columns = _AFFINITY_COLUMNS.get(" ".join(rest.split()))
        if found and columns is None:
            strange = strange or f"columns not understood after CPU Affinity: {rest.strip()[:60]!r}"
        if found and columns is not None:
            return at, _devices(names.split()), columns
        if not found and _is_bare_header(names.split(), lines, at + 1):
            return at, _devices(names.split()), 0
    for pattern, owner in _OTHERS:
        if any(pattern.fullmatch(word) for line in lines for word in line.split()):
            raise DecodeError("", f"the matrix of {owner}", CURE)
    if strange:
        raise DecodeError("header", strange, CURE)
    raise DecodeError("", "no header with GPU columns: not a matrix", CURE)


def _is_bare_header(names: list[str], lines: list[str], start: int) -> bool:
    """Return whether a line of names alone heads a matrix: `topo -gpu` has no affinities."""
    row = next((lines[at].split() for at in range(start, len(lines)) if lines[at]), [])
    return row[:2] == [names[0], "X"] and all(_is_device(name) for name in names)


def _is_device(name: str) -> bool:
    return any(kind.fullmatch(name) for kind in (GPU, _HCA, DATA_DIRECT, NVME))


def _devices(names: list[str]) -> tuple[str, ...]:
    seen: set[str] = set()
    for position, name in enumerate(names):
        if name in seen or not _is_device(name):
            raise DecodeError("header", f"column {position + 1} cannot be {name[:40]!r}", CURE)
        seen.add(name)
    gpus = [int(match[1]) for match in map(GPU.fullmatch, names) if match]
    if any(right <= left for left, right in pairwise(gpus)):
        raise DecodeError("header", "the GPU columns are out of order", CURE)
    return tuple(names)


def _rows(
    lines: list[str],
    start: int,
    devices: tuple[str, ...],
    columns: int,
    *,
    is_open: bool,
) -> tuple[tuple[Row, ...], int]:
    """Read one line for each device, in the order of the columns; return them and their end.

    *is_open*: the text ends without a line end, so its last word may be half of one.
    """
    rows: list[Row] = []
    end = start
    for at in range(start, len(lines)):
        words = lines[at].split()
        if len(rows) == len(devices) or (words and words[0] != devices[len(rows)]):
            break
        if words and _is_cut(words, devices, lines[at + 1 :]):
            return _some(rows, devices, []), len(lines)
        if words:
            rows.append(_row(words[0], lines[at], devices, columns))
            end = at + 1
    if is_open and end == len(lines) and 0 < len(rows) < len(devices):
        rows[-1:] = _open_ended(rows[-1])
    return _some(rows, devices, lines[end:]), end


def _is_cut(words: list[str], devices: tuple[str, ...], after: list[str]) -> bool:
    """Return whether the paste ends inside this row, which then says nothing reliable."""
    if any(after):
        return False
    is_in_last_cell = len(words) == len(devices) + 1 and _CELL_START.fullmatch(words[-1])
    return len(words) <= len(devices) or bool(is_in_last_cell)


def _open_ended(row: Row) -> list[Row]:
    """Return what is sure of the last row of a cut text: ``NV1`` may be the start of ``NV18``."""
    if row.is_unclear or any((row.cpu_affinity, row.numa_affinity, row.gpu_numa_id)):
        blank = replace(row, cpu_affinity="", numa_affinity="", gpu_numa_id="", is_unclear=True)
        return [blank]
    return [] if row.cells[-1].startswith("NV") else [row]


def _some(rows: list[Row], devices: tuple[str, ...], after: list[str]) -> tuple[Row, ...]:
    """Return the rows, unless the matrix goes on after a gap, or has not begun.

    Raises:
        DecodeError: that is so.
    """
    missing = devices[len(rows) :]
    goes_on = any(
        words[0] in missing and _CELL.fullmatch(words[1])
        for words in map(str.split, after)
        if len(words) > 1
    )
    if missing and (goes_on or not rows):
        problem = f"its row is missing: {len(rows)} rows for {len(devices)} columns"
        raise DecodeError(missing[0], problem, CURE)
    return tuple(rows)


def _row(name: str, line: str, devices: tuple[str, ...], columns: int) -> Row:
    words = list(re.finditer(r"\S+", line))[1:]
    if len(words) < len(devices):
        raise DecodeError(name, f"{len(words)} cells for {len(devices)} columns", CURE)
    for device, word in zip(devices, words, strict=False):
        _check_cell(name, device, word[0])
    cells = tuple(word[0].replace("SOC", "SYS") for word in words[: len(devices)])
    rest = line[words[len(devices) - 1].end() :]
    if GPU.fullmatch(name) and columns:
        return _with_affinities(Row(name=name, cells=cells), rest, columns)
    if rest.strip():
        raise DecodeError(name, f"more cells than columns: {rest.strip()[:40]!r}", CURE)
    return Row(name=name, cells=cells)


def _check_cell(row: str, column: str, word: str) -> None:
    is_gpu_pair = bool(GPU.fullmatch(row) and GPU.fullmatch(column))
    is_cell = _CELL.fullmatch(word) and (is_gpu_pair or not word.startswith("NV"))
    if is_cell and (word == "X") == (row == column):
        return
    problem = f"not a cell here: {word[:40]!r}"
    if is_gpu_pair and _P2P.fullmatch(word):
        problem = f"{word!r} is a word of `topo -p2p`, not of `topo -m`"
    for pattern, owner in _OTHERS:
        if pattern.fullmatch(word):
            problem = f"{word[:40]!r} is a word of {owner}, not of NVIDIA"
    raise DecodeError(f"{row}/{column}", problem, CURE)


def _with_affinities(row: Row, rest: str, columns: int) -> Row:
    """Return *row* with what follows its cells.

    All columns filled: take them in order. Otherwise only tabs can tell which one is empty:
    drivers print ``CPU⇥NUMA⇥⇥GPU NUMA ID``, and a NUMA affinity of ``N/A`` one tab late.
    Where a copy has blanks for tabs, nobody can tell, and the cells are still good.

    Raises:
        DecodeError: more words than columns, so that a cell may have slipped in here.
    """
    words = rest.split()
    if len(words) > columns:
        raise DecodeError(row.name, f"more words than columns: {rest.strip()[:60]!r}", CURE)
    fields = [field.strip() for field in rest.split("\t")[1:]]
    gpu_numa = fields[-1] if len(fields) > 3 else ""
    cpu, numa, late = (*fields, "", "", "")[:3]
    if len(words) == columns:
        cpu, numa, gpu_numa = (*words, "", "")[:3]
    elif all(word in UNKNOWN for word in words):
        return row
    elif not fields or late not in UNKNOWN or any(len(field.split()) > 1 for field in fields):
        return replace(row, is_unclear=True)
    return replace(row, cpu_affinity=cpu, numa_affinity=numa, gpu_numa_id=gpu_numa)


def _check_symmetry(rows: tuple[Row, ...]) -> None:
    for i, row in enumerate(rows):
        for j, other in enumerate(rows[:i]):
            if row.cells[j] != other.cells[i]:
                problem = f"{row.cells[j]} one way, {other.cells[i]} the other"
                raise DecodeError(f"{row.name}/{other.name}", problem, CURE)
