"""The table in the text of `nvidia-smi topo -m`: its columns and its rows.

Pasted copies differ in everything but their words: tabs or blanks, underlined headers (also where
the escape byte got lost), indentation, quote marks, code fences, empty lines between. A lost cell
inside a row is never reconstructed; rows lost at the end are reported, and so are affinities that
cannot be assigned to their columns.
"""

import re
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from msgspec import Struct
from msgspec.structs import replace

from nodetopo.errors import DecodeError
from nodetopo.formats.pasted import unwrapped
from nodetopo.model.digits import is_digits
from nodetopo.model.limits import MAX_GPUS, MAX_HCAS
from nodetopo.model.numa import CpuSet

CURE = "give the whole output of `nvidia-smi topo -m`, as it was printed"
NOT_REPORTED = "?"
"""A cell of our matrix without a reported value; nvidia-smi has no such word."""

UNKNOWN = ("", "N/A")
GPU = re.compile(r"GPU([0-9]{1,4})")
DATA_DIRECT = re.compile(r"DD[0-9]{1,4}")
NVME = re.compile(r"NVMe[0-9]{1,4}", re.IGNORECASE)
"""Columns of ``topo -all`` and ``topo -nvme``."""

_HCA = re.compile(r"NIC[0-9]{1,4}|[a-z][a-z_-]*[0-9][a-z0-9_-]*")
"""``NIC0``, or the device's own name as drivers before about R515 print it: ``mlx5_0``, or
``rocep1s0f0`` and ``rdmap16s27`` where udev names by place (rdma-core, ``rdma_rename``)."""

_ANCHOR = re.compile(
    r"GPU[0-9]{1,4}\s+(?:X\s|GPU[0-9]|NIC[0-9]|DD[0-9]|NVMe[0-9]|mlx[0-9]|CPU Affinity)"
)
"""The first words of a header, or the first row: what stands before them is a prefix."""

_LEAD = re.compile(r"[\s>#\ufeff]*")
"""The prefix of a quoted, indented or commented line."""

_FENCE = re.compile(r"\s*(```|~~~)")
_PCI_WORDS = r"X|PIX|PXB|PHB|NODE|SYS|SOC"
CELL = re.compile(rf"{_PCI_WORDS}|NV[0-9]{{1,3}}|\?")
_FUSED = re.compile(
    rf"(?<!\S)(?P<cells>(?:{_PCI_WORDS}|NV[0-9]{{1,3}})*)"
    rf"(?P<last>{_PCI_WORDS}|NV)(?P<rest>(?:[0-9][0-9,-]{{0,200}})?(?:N/A)?)(?!\S)"
)
"""Cells, or cells and the CPU affinity behind them, between which blanks got lost."""

_EACH = re.compile(rf"{_PCI_WORDS}|NV[0-9]{{1,3}}")
_CELL_START = re.compile(r"PI?|PX|PH|NO?|NOD|SY?|SO|NV")
"""The beginning of a cell in a truncated text."""

_LEGEND = re.compile(
    rf"(?:\w+ )?Legend:|(?:{_PCI_WORDS}|NV#|\?)\s+=|(?:NIC|DD|NVMe)[0-9]{{1,4}}\s*:"
    rf"|(?:NIC|DD)[0-9]{{1,4}}\s+(?!(?:{_PCI_WORDS}|\?)(?:\s|$))\S"
)
"""How a line of a legend begins; where no colon follows ``NIC0``, no cell does, as in a row."""

MAX_LINES = 1 << 14
"""Lines accepted: 1,280 rows, their legend, and ten times as many of the log around them."""

_AFFINITY_COLUMNS = {
    "": 1,
    "NUMA Affinity": 2,
    "NUMA Affinity GPU NUMA ID": 3,
}
"""The header after CPU Affinity, and the resulting number of columns."""


class Row(Struct, frozen=True, kw_only=True):
    """One device's line: its cells, and the columns after them (none on a NIC's line)."""

    name: str
    cells: tuple[str, ...]
    cpu_affinity: str = ""
    numa_affinity: str = ""
    gpu_numa_id: str = ""
    # Columns after the cells are truncated or ambiguous; they are empty here.
    is_unclear: bool = False
    # Fewer columns follow the cells than in the header, including empty ones.
    is_short: bool = False


class Table(Struct, frozen=True, kw_only=True):
    """The columns in order, the rows of the first ones, and the text after the rows."""

    devices: tuple[str, ...]
    rows: tuple[Row, ...]
    rest: tuple[str, ...]  # lines after the rows up to a second matrix: the legends
    unread: tuple[str, ...]  # lines after the rows outside legends, including a second matrix
    has_second: bool = False  # a second matrix follows


def read_table(text: str) -> Table:
    """Return the first matrix of *text*; final rows can be missing, as in a truncated paste."""
    raw = text.splitlines()
    if len(raw) > MAX_LINES:
        raise DecodeError("", f"{len(raw)} lines, of which {MAX_LINES} are read at most", CURE)
    first, *others = _sources(text)
    lines = [
        "" if _FENCE.match(line) else _FUSED.sub(_split, _LEAD.sub("", line, count=1))
        for line in first
    ]
    at, devices, columns = _header(lines)
    is_open = not text.endswith(("\n", "\r"))
    rows, end = _rows(lines, at + 1, devices, columns, is_open=is_open)
    for i, row in enumerate(rows):
        for j, other in enumerate(rows[:i]):
            if row.cells[j] != other.cells[i]:
                problem = f"{row.cells[j]} one way, {other.cells[i]} the other"
                raise DecodeError(f"{row.name}/{other.name}", problem, CURE)
    behind = lines[end:]
    second = next((at for at, line in enumerate(behind) if _is_header(line.split())), len(behind))
    unread = [*_outside_legends(behind[:second]), *filter(str.strip, behind[second:])]
    unread += [line for source in others for line in source if line.strip()]
    has_second = second < len(behind) or bool(others)
    return Table(
        devices=devices,
        rows=rows,
        rest=tuple(behind[:second]),
        unread=tuple(unread),
        has_second=has_second,
    )


def _split(fused: re.Match[str]) -> str:
    """Return the cells of a word such as ``NODENODE`` or ``NODE0-31``, where a blank got lost.

    No cell is the beginning of another but ``NV1`` of ``NV18``, after which no cell begins with a
    digit: there is one way to split cells. ``NV180-95`` can be split in two ways, and stays.
    """
    cells, last, rest = _EACH.findall(fused["cells"]), fused["last"], fused["rest"]
    counts = [""]
    if last == "NV":  # digits alone are no affinity: ``NV18`` is no ``NV1`` of CPU 8
        counts = [rest] if is_digits(rest) else [rest[:n] for n in (1, 2, 3) if is_digits(rest[:n])]
    ways = [count for count in counts if _is_affinity(rest[len(count) :])]
    if len(ways) != 1:
        return fused[0]
    affinity = rest[len(ways[0]) :]
    split = " ".join((*cells, last + ways[0]))
    return f"{split}\t{affinity}" if affinity else split


def _is_affinity(text: str) -> bool:
    """Return whether *text* is a list of CPUs, ``N/A``, or empty."""
    try:
        return text in UNKNOWN or bool(CpuSet.parse(text))
    except ValueError:
        return False


def _sources(text: str) -> list[list[str]]:
    """Return the lines of each source that *text* has, without their prefixes."""
    sources: dict[int, list[str]] = {0: []}
    for line in unwrapped(text, _ANCHOR):
        sources.setdefault(line.source, []).append(line.text)
    return list(sources.values())


def _is_header(words: list[str]) -> bool:
    """Return whether *words* begin like the header of a matrix: with two columns or more."""
    return len(words) > 1 and GPU.fullmatch(words[0]) is not None and _is_column(words[1])


def _is_column(word: str) -> bool:
    return _is_device(word) or word == "CPU"


def _outside_legends(lines: list[str]) -> Iterator[str]:
    """Yield the lines that are no part of a legend, nor of the table of drives.

    ``topo -all`` and ``topo -nvme`` print that table below the first; it ends at an empty line.
    """
    is_of_drives = False
    for line in lines:
        words = line.split()
        is_of_drives = bool(words) and (is_of_drives or all(map(NVME.fullmatch, words)))
        if words and not is_of_drives and not _LEGEND.match(line):
            yield line


def _header(lines: list[str]) -> tuple[int, tuple[str, ...], int]:
    """Return the header's line, the names of its columns, and how many affinity columns follow."""
    strange = ""
    for at, line in enumerate(lines):
        head, has_affinities, rest = line.partition("CPU Affinity")
        names = head.split()
        if not GPU.match(head):
            continue
        columns = _AFFINITY_COLUMNS.get(" ".join(rest.split()))
        if has_affinities and columns is not None:
            return at, _devices(names), columns
        if has_affinities:
            strange = strange or f"columns not understood after CPU Affinity: {rest.strip()[:60]!r}"
            continue
        # A line of names alone heads a matrix, too: `topo -gpu` has no affinities.
        row = next((each.split() for each in lines[at + 1 :] if each), [])
        if row[:2] == [names[0], "X"] and all(map(_is_device, names)):
            return at, _devices(names), 0
    if strange:
        raise DecodeError("header", strange, CURE)
    raise DecodeError("", "no header with GPU columns: not a matrix", CURE)


def _is_device(name: str) -> bool:
    return any(kind.fullmatch(name) for kind in (GPU, _HCA, DATA_DIRECT, NVME))


def _devices(names: list[str]) -> tuple[str, ...]:
    columns = Counter("GPU" if GPU.fullmatch(name) else "other" for name in names)
    for kind, most in (("GPU", MAX_GPUS), ("other", MAX_HCAS)):
        if columns[kind] > most:
            problem = f"{columns[kind]} {kind} columns, more than the {most} that a node has"
            raise DecodeError("header", problem, CURE)
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

    Args:
        is_open: whether the text ends without a line end, so that its last word might be truncated.
    """
    rows: list[Row] = []
    end = last = start
    for at in range(start, len(lines)):
        words = lines[at].split()
        is_last = not any(lines[at + 1 :])
        if len(rows) == len(devices) or (words and words[0] != devices[len(rows)]):
            if is_last and len(rows) < len(devices) and devices[len(rows)].startswith(lines[at]):
                end = len(lines)  # the paste ends inside the name of the next row
            break
        if not words:
            continue
        is_in_last_cell = len(words) == len(devices) + 1 and _CELL_START.fullmatch(words[-1])
        if is_last and (len(words) <= len(devices) or is_in_last_cell):
            end = len(lines)  # the paste ends inside this row, which then says nothing reliable
            break
        rows.append(_row(words[0], lines[at], devices, columns))
        end = at + 1
        last = at
    if rows and not any(lines[last + 1 :]):
        is_cut = is_open and last == len(lines) - 1
        # An editor or a fence ends every paste with a line end, so missing rows tell of a cut, too.
        is_cut = is_cut or (len(rows) < len(devices) and not _is_whole(rows[-1], rows[:-1]))
        rows[-1:] = _last_row(rows[-1], rows[:-1], is_cut=is_cut)
    missing = devices[len(rows) :]
    goes_on = any(
        words[0] in missing and CELL.fullmatch(words[1])
        for words in map(str.split, lines[end:])
        if len(words) > 1
    )
    if missing and (goes_on or not rows):
        problem = f"its row is missing: {len(rows)} rows for {len(devices)} columns"
        raise DecodeError(missing[0], problem, CURE)
    return tuple(rows), end


def _is_whole(row: Row, others: list[Row]) -> bool:
    """Return whether the end of *row* is no beginning: ``N/A``, or that of one of *others*."""

    def end(row: Row) -> tuple[str, str, str]:
        return row.cpu_affinity, row.numa_affinity, row.gpu_numa_id

    return row.gpu_numa_id == "N/A" or (any(end(row)) and end(row) in map(end, others))


def _last_row(row: Row, others: list[Row], *, is_cut: bool) -> Iterator[Row]:
    """Yield the final *row* of the text, without possibly truncated parts.

    Args:
        is_cut: whether the last word might be truncated.
    """
    shorts = [other.is_short for other in others if GPU.fullmatch(other.name)]
    has_affinities = bool(
        row.is_unclear or row.cpu_affinity or row.numa_affinity or row.gpu_numa_id
    )
    if is_cut and not has_affinities and row.cells[-1].startswith("NV"):
        return  # ``NV1`` can be the start of ``NV18``
    if (is_cut and has_affinities) or (row.is_short and not (shorts and all(shorts))):
        yield Row(name=row.name, cells=row.cells, is_unclear=True)
    else:
        yield row


def _row(name: str, line: str, devices: tuple[str, ...], columns: int) -> Row:
    words = list(re.finditer(r"\S+", line))[1:]
    if len(words) < len(devices):
        raise DecodeError(name, f"{len(words)} cells for {len(devices)} columns", CURE)
    cells = [word[0] for word in words[: len(devices)]]
    for device, cell in zip(devices, cells, strict=True):
        is_gpu_pair = bool(GPU.fullmatch(name) and GPU.fullmatch(device))
        is_cell = CELL.fullmatch(cell) and (is_gpu_pair or not cell.startswith("NV"))
        if is_cell and (cell == "X") == (name == device):
            continue
        raise DecodeError(f"{name}/{device}", f"not a cell here: {cell[:40]!r}", CURE)
    row = Row(name=name, cells=tuple(cell.replace("SOC", "SYS") for cell in cells))
    rest = line[words[len(devices) - 1].end() :]
    if GPU.fullmatch(name) and columns:
        return _with_affinities(row, rest, columns)
    if rest.strip():
        raise DecodeError(name, f"more cells than columns: {rest.strip()[:40]!r}", CURE)
    return row


def _with_affinities(row: Row, rest: str, columns: int) -> Row:
    """Return *row* with the columns after its cells.

    If all columns are filled, they are in order. Otherwise only tabs show the empty one: drivers
    print ``CPU⇥NUMA⇥⇥GPU NUMA ID``, and a NUMA affinity of ``N/A`` one tab late. If a copy has
    blanks for tabs, it is ambiguous, and the cells are still valid.
    """
    words = rest.split()
    if len(words) > columns:
        raise DecodeError(row.name, f"more words than columns: {rest.strip()[:60]!r}", CURE)
    fields = [field.strip() for field in rest.split("\t")[1:]]
    row = replace(row, is_short=max(len(words), len(fields)) < columns)
    gpu_numa = fields[-1] if len(fields) > 3 else ""
    cpu, numa, late = (*fields, "", "", "")[:3]
    if len(words) == columns:
        cpu, numa, gpu_numa = (*words, "", "")[:3]
    elif all(word in UNKNOWN for word in words):
        return row
    elif not fields or late not in UNKNOWN or any(len(field.split()) > 1 for field in fields):
        return replace(row, is_unclear=True)
    return replace(row, cpu_affinity=cpu, numa_affinity=numa, gpu_numa_id=gpu_numa)
