"""Logs of perftest: ``ib_write_bw``, ``ib_read_bw``, ``ib_send_bw``, with host or GPU memory.

Facts: linux-rdma/perftest ``src/perftest_parameters.{h,c}`` and ``src/cuda_memory.c``. What
versions before March 2024 called ``MB/sec`` was MiB/sec, too.
"""

import re
from collections.abc import Iterator

from msgspec import Struct, field

from nodetopo.errors import InputError
from nodetopo.model.digits import is_digits
from nodetopo.tools.bandwidth.log import (
    MOST_FIGURES,
    MOST_GPUS,
    Figure,
    Kind,
    Log,
    LoggedGpu,
    Problem,
    failure,
    gpu_at,
    lines,
    log_of,
    number_in,
    trouble,
    unreadable,
    whole_in,
)

TOOL = "perftest"

_TITLE = re.compile(
    r"^\s*(?P<test>(?:Send|RDMA_Write|RDMA_Read|Atomic)\S{0,20})"
    r"\s(?P<rest>[A-Za-z _]{0,60})Test\s*$"
)
_DEVICE = re.compile(r"\bDevice\s+: (?P<name>\S{1,64})\s*$")
_LISTED = re.compile(
    r"CUDA device (?P<number>[0-9]{1,4}): PCIe address is (?P<bus>[0-9A-Fa-f]{2}):"
    r"(?P<device>[0-9A-Fa-f]{2})"
)
_PICKED = re.compile(r"Picking (?:device No\.|GPU number) (?P<number>[0-9]{1,4})")
_BUS_ID = re.compile(
    r"Finding PCIe BUS (?:(?P<domain>[0-9A-Fa-f]{4,8}):)?(?P<bus>[0-9A-Fa-f]{2}):"
    r"(?P<device>[0-9A-Fa-f]{2})"
)
_FIRST = re.compile(r"devices supporting CUDA, picking first")
_HEADER = re.compile(r"#bytes.*BW average\[(?P<unit>[A-Za-z]{1,4})/sec\]")
_COLUMN = re.compile(
    r"#[a-z]+|(?:BW [A-Za-z]+|BW Port[12]|MsgRate(?: Port[12])?|CPU_Util)\[[^\]]*\]"
)
_GB_PER_S = {
    "Gb": 1 / 8,
    "MiB": 1.048576e-3,
    "MB": 1.048576e-3,
}
"""GB/s of 10^9 bytes that a unit is."""

_ANCHOR = re.compile(r"#bytes|\bDual-port +: O|(?:Send|RDMA_Write|RDMA_Read) (?:BW|Lat)\w* Test")

_AVERAGE = re.compile(r"BW average\[")
_TIMES = re.compile(r"t_avg\[usec\]")


class _Run(Struct):
    test: str = "ib_bw"
    hca: str | None = None
    is_both_ways: bool = False
    gpu: LoggedGpu | None = None
    line: int = 1
    column: int | None = None
    unit: float = 1.0
    rows: list[tuple[int, int, float]] = field(default_factory=list)
    is_latency: bool = False


class _Cuda(Struct):
    """The GPU of a test, as the lines before it tell."""

    listed: dict[int, LoggedGpu] = field(default_factory=dict)
    address: LoggedGpu | None = None
    picked: int | None = None

    @property
    def gpu(self) -> LoggedGpu | None:
        if self.picked is None:
            return None
        known = self.address or self.listed.get(self.picked)
        return known or LoggedGpu(place=self.picked)


def read(text: str) -> Log:
    """Return the average bandwidth of each run's largest message; the sum of both ways."""
    runs: list[_Run] = []
    problems: list[Problem] = []
    cuda = _Cuda()
    for number, line in lines(text, _ANCHOR):
        if title := _TITLE.match(line):
            rest = title["rest"]
            test = f"{title['test']} {rest.strip()}".strip()
            if runs and _is_other_end(runs[-1], test, problems):
                continue
            runs.append(
                _Run(
                    test=test,
                    is_both_ways="Bidirectional" in rest,
                    is_latency="Latency" in rest,
                    gpu=cuda.gpu,
                    line=number,
                )
            )
            cuda = _Cuda()
        elif device := _DEVICE.search(line):
            if not runs or runs[-1].rows:
                runs.append(_Run(line=number, gpu=cuda.gpu))
                cuda = _Cuda()
            runs[-1].hca = device["name"]
        elif _read_cuda(cuda, line):
            continue
        elif header := _HEADER.search(line):
            if not runs:
                runs.append(_Run(line=number, gpu=cuda.gpu))
            names = _COLUMN.findall(line)
            runs[-1].column = next(at for at, one in enumerate(names) if _AVERAGE.match(one))
            unit = _GB_PER_S.get(header["unit"])
            if unit is None:
                text_ = f"unknown unit {header['unit']}/sec"
                problems.append(Problem(line=number, text=text_, is_error=False))
                runs[-1].column = None
            else:
                runs[-1].unit = unit
        elif _TIMES.search(line) and runs:
            runs[-1].is_latency = True
        elif runs and runs[-1].column is not None and is_digits(line.strip()[:1]):
            problems += _row(runs[-1], number, line)
        elif (problem := trouble(number, line)) is not None:
            problems.append(problem)
    return _log(runs, problems)


def _is_other_end(run: _Run, test: str, problems: list[Problem]) -> bool:
    """Return whether a title of *test* after *run* is its client's or server's, in one terminal.

    Both ends of a loopback print to it, and mix their lines: the first has no result yet, and no
    error. The rows of both belong to the same transfer.
    """
    is_before_rows = run.test == test and run.column is None and not run.rows
    return is_before_rows and not any(problem.line > run.line for problem in problems)


def _read_cuda(cuda: _Cuda, line: str) -> bool:
    """Read the GPU facts in *line* into *cuda*; return whether it has any."""
    if listed := _LISTED.search(line):
        number = int(listed["number"])
        if len(cuda.listed) < MOST_GPUS:
            cuda.listed[number] = gpu_at(number, listed.groupdict())
    elif address := _BUS_ID.search(line):
        cuda.address = gpu_at(0, address.groupdict())
    elif picked := _PICKED.search(line):
        cuda.picked = int(picked["number"])
    elif _FIRST.search(line):
        cuda.picked = 0
    else:
        return False
    return True


def _row(run: _Run, number: int, line: str) -> Iterator[Problem]:
    words = line.split()
    assert run.column is not None
    size = whole_in(words[0])
    figure = number_in(words[run.column]) if run.column < len(words) else None
    if size is None or figure is None:
        yield unreadable(number, line)
        return
    run.rows.append((size, number, figure))
    if len(run.rows) > MOST_FIGURES:
        raise InputError(f"line {number}: more than {MOST_FIGURES} rows", "split the log")


def _log(runs: list[_Run], problems: list[Problem]) -> Log:
    figures, others = [], []
    for run in runs:
        if run.is_latency or "Atomic" in run.test:
            others.append(run.test)
            continue
        if not run.rows:
            text = f"{run.test} ended before its first result"
            problems.append(failure(run.line, text))
            continue
        size, line, figure = max(run.rows, key=lambda row: (row[0], row[2]))
        figures.append(
            Figure(
                test=run.test,
                kind=Kind.HCA if run.gpu is None else Kind.GPU_HCA,
                gpus=() if run.gpu is None else (run.gpu,),
                hca=run.hca,
                gb_per_s=figure * run.unit,
                is_both_ways=run.is_both_ways,
                size=size,
                line=line,
            )
        )
    return log_of(TOOL, figures, problems, others)
