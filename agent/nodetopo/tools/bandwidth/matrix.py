"""Matrices of copies between GPUs and hosts: nvbandwidth and p2pBandwidthLatencyTest."""

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations

from msgspec import Struct, field

from nodetopo.errors import InputError
from nodetopo.tools.bandwidth.log import (
    MOST_FIGURES,
    MOST_GPUS,
    Figure,
    Kind,
    Log,
    LoggedGpu,
    Problem,
    gpu_at,
    log_of,
    number_in,
    unreadable,
    whole_in,
)

_PAIRS = re.compile(
    r"device_to_device_memcpy_(?:read|write)_ce|unidirectional_p2p_enabled(?:_reads)?"
)
_HOST = re.compile(r"(?:host_to_device|device_to_host)_memcpy_ce")
"""Copies by copy engines, which the published figures are of. Those by kernels (``_sm``) reach
other shares: 35 of 63 GB/s from the host of a sound H100 (nvbandwidth issue 24)."""

_NAMES = ("N/A", "nan", "-nan")
_MIN = 0.01
"""GB/s below which a cell is one of a device with itself, which is printed as 0."""


class Matrix(Struct):
    """A table of a log: rows by label, each as long as *columns*; ``None`` is N/A."""

    test: str
    line: int
    columns: tuple[int, ...] = ()
    rows: dict[int, tuple[float | None, ...]] = field(default_factory=dict)

    def read(self, number: int, line: str) -> Iterator[Problem]:
        """Read a line of digits: the first has the numbers of the columns."""
        words = line.split()
        if not self.columns:
            columns = [whole_in(word) for word in words[: MOST_GPUS + 1]]
            if None in columns or len(columns) > MOST_GPUS or len(set(columns)) < len(columns):
                yield unreadable(number, line)
                return
            self.columns = tuple(column for column in columns if column is not None)
            return
        row, values = whole_in(words[0]), cells(words[1:])
        if row is None or values is None or len(values) != len(self.columns) or row in self.rows:
            yield unreadable(number, line)
            return
        self.rows[row] = values
        if len(self.rows) * len(self.columns) > MOST_FIGURES:
            raise InputError(f"line {number}: more than {MOST_FIGURES} figures", "split the log")


def cells(words: Iterable[str]) -> tuple[float | None, ...] | None:
    """Return the figures of *words*, ``None`` for N/A; ``None`` instead if a word is neither."""
    values = []
    for word in words:
        value = number_in(word)
        if value is None and word not in _NAMES:
            return None
        values.append(value)
    return tuple(values)


def add_gpu(gpus: dict[int, LoggedGpu], device: re.Match[str]) -> None:
    """Add the GPU of the line *device*."""
    number = int(device["number"])
    if len(gpus) >= MOST_GPUS:
        raise InputError(f"more than {MOST_GPUS} devices", "split the log")
    gpus[number] = gpu_at(number, device.groupdict())


def log_of_matrices(
    tool: str,
    matrices: Iterable[Matrix],
    gpus: Mapping[int, LoggedGpu],
    problems: Iterable[Problem],
) -> Log:
    """Return the figures: of each pair the slower direction, of each GPU to its host."""
    figures: list[Figure] = []
    others = []
    for matrix in matrices:
        if _PAIRS.fullmatch(matrix.test):
            figures += _pairs(matrix, gpus)
        elif _HOST.fullmatch(matrix.test):
            figures += _hosts(matrix, gpus)
        else:
            others.append(matrix.test)
        if len(figures) > MOST_FIGURES:
            raise InputError(f"more than {MOST_FIGURES} figures", "split the log")
    return log_of(tool, figures, problems, others)


def _pairs(matrix: Matrix, gpus: Mapping[int, LoggedGpu]) -> Iterator[Figure]:
    """Yield each pair with the slower of its measured directions."""
    column = {number: at for at, number in enumerate(matrix.columns)}
    for a, b in combinations(sorted(column), 2):
        ways = ((a, b), (b, a))
        measured = [matrix.rows[row][column[to]] for row, to in ways if row in matrix.rows]
        speeds = [speed for speed in measured if speed is not None and speed >= _MIN]
        if speeds:
            yield _figure(matrix, Kind.PAIR, (a, b), gpus, min(speeds))


def _hosts(matrix: Matrix, gpus: Mapping[int, LoggedGpu]) -> Iterator[Figure]:
    for row in matrix.rows.values():
        for number, speed in zip(matrix.columns, row, strict=True):
            if speed is not None and speed >= _MIN:
                yield _figure(matrix, Kind.HOST, (number,), gpus, speed)


def _figure(
    matrix: Matrix,
    kind: Kind,
    numbers: tuple[int, ...],
    gpus: Mapping[int, LoggedGpu],
    speed: float,
) -> Figure:
    return Figure(
        test=matrix.test,
        kind=kind,
        gpus=tuple(gpus.get(number, LoggedGpu(place=number)) for number in numbers),
        gb_per_s=speed,
        line=matrix.line,
    )
