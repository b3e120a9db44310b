"""The records of a bandwidth test's log, and the parts that its readers share."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from itertools import groupby

from msgspec import Struct
from msgspec.structs import replace

from nodetopo.formats.pasted import unwrapped
from nodetopo.model.digits import is_digits
from nodetopo.tools.bandwidth.operation import UNRESTRICTED, Algorithms, Columns

MOST_GPUS = 4096
"""Ranks or devices accepted in one log; the largest published runs of nccl-tests have as many."""

MOST_FIGURES = 100_000
"""Figures accepted in one log: ten tests of every pair of 100 GPUs."""

MOST_PROBLEMS = 50
"""Problems kept of one log; a job that goes wrong repeats one for every rank."""

LONGEST_LINE = 4096
"""Characters of a line that are looked at; no line of these tools is longer than 2048."""

HIGHEST_GB_S = 1_000_000.0
"""A larger figure is no bandwidth of a node."""


class Kind(StrEnum):
    """The devices that a figure was measured on."""

    PAIR = "pair"
    SET = "set"
    GPU_HCA = "gpu-hca"
    HCA = "hca"
    HOST = "host"


class LoggedGpu(Struct, frozen=True, kw_only=True):
    """A GPU in a log."""

    place: int  # rank, or number in the log; numbers are CUDA's, not NVML's
    host: str | None = None  # None if the log names none
    # domain, bus, device: of its PCI address; None for omitted parts
    domain: int | None = None
    bus: int | None = None
    device: int | None = None

    @property
    def name(self) -> str:
        """How messages call it."""
        return f"GPU number {self.place}" if self.host is None else f"rank {self.place}"


class Figure(Struct, frozen=True, kw_only=True):
    """One measured figure."""

    test: str  # the tool's name of it
    kind: Kind
    # Of a pair the source first; for host memory and an HCA one; empty for an HCA that was tested
    # with host memory.
    gpus: tuple[LoggedGpu, ...]
    # GB/s of 10^9 bytes, one direction; of a set the bus bandwidth; of a test both ways at once,
    # both together.
    gb_per_s: float
    line: int  # from 1; of JSON the line where the document begins
    hca: str | None = None  # as the log calls it
    size: int | None = None  # bytes of the message
    hosts: tuple[str, ...] = ()  # that took part, by the names in the log
    is_wrong: bool = False  # the data that arrived was wrong
    is_both_ways: bool = False  # data went in both directions at once
    algorithms: Algorithms = UNRESTRICTED  # what the log says about NCCL's choice
    ratio: float | None = None  # of bus to algorithm bandwidth
    # What the table's columns tell of the operation; None for a named one.
    columns: Columns | None = None
    # What the log does not show of its GPUs, e.g. `ranks 0 and 1 are missing`; None if they are
    # complete, or if it names none at all.
    lacks: str | None = None


class Problem(Struct, frozen=True, kw_only=True):
    """A line of a log with an error or warning, or an unreadable line."""

    line: int
    text: str
    is_error: bool  # the test failed or moved wrong data; else it is a warning
    is_missing: bool = False  # neither: the log lacks a result that the test had


class Log(Struct, frozen=True, kw_only=True):
    """A log as read."""

    tool: str  # such as nccl-tests
    figures: tuple[Figure, ...]  # in the order of the log
    problems: tuple[Problem, ...] = ()  # in the order of the log, `MOST_PROBLEMS` at most
    others: tuple[str, ...] = ()  # tests whose results no model predicts, such as latencies


def lines(text: str, anchor: re.Pattern[str]) -> Iterator[tuple[int, str]]:
    """Yield each line of *text* with its number, without the prefix that *anchor* finds."""
    for line in unwrapped(text, anchor, LONGEST_LINE):
        yield line.number, line.text


def of_each_source(
    tool: str,
    text: str,
    anchor: re.Pattern[str],
    read: Callable[[Iterator[tuple[int, str]]], Log],
) -> Log:
    """Return the logs that *read* finds in the lines of each source of *text*, as one.

    Of several sources each figure names its own as the host.
    """
    logs = []
    for (_, origin), group in groupby(
        unwrapped(text, anchor, LONGEST_LINE), key=lambda line: (line.source, line.origin)
    ):
        log = read((line.number, line.text) for line in group)
        hosts = (origin,) if origin else ()
        logs.append(replace(log, figures=tuple(replace(it, hosts=hosts) for it in log.figures)))
    return log_of(
        tool,
        (figure for log in logs for figure in log.figures),
        (problem for log in logs for problem in log.problems),
        (other for log in logs for other in log.others),
    )


_TROUBLE = re.compile(
    r"(?P<error>Test (?:NCCL|CUDA) failure|: Test failure |Test timeout|CUDA_ERROR_[A-Z_]+|"
    r"NVML_ERROR_[A-Z_]+|Invalid value when checking the pattern|Couldn't |Failed to |"
    r"Unable to |Completion with error|error=[0-9]|Invalid number of GPUs|^ERROR: |"
    r"ASSERT in expression)|"
    r"(?P<warning>NCCL WARN )"
)
"""Messages of the tools and NCCL about failures: nccl-tests src/common.h and util.cu,
nvbandwidth error_handling.h, perftest src/perftest_resources.c and cuda_memory.c. What launchers,
ssh and perftest call a warning ("Permanently added … to the list of known hosts", "BW peak won't be
measured in this run") says nothing about a result."""


def trouble(number: int, line: str) -> Problem | None:
    if "NCCL INFO" in line:  # it tries many libraries, and says so of those that it does not find
        return None
    message = _TROUBLE.search(line)
    if message is None:
        return None
    return Problem(line=number, text=shortened(line), is_error=message["error"] is not None)


def shortened(line: str) -> str:
    """Return *line* as a problem quotes it."""
    text = " ".join(line.split())
    return text if len(text) <= 200 else f"{text[:199]}…"


def number_in(word: str) -> float | None:
    """Return the figure that *word* is, as these tools print it; ``None`` for anything else."""
    if not re.fullmatch(r"[0-9]{1,15}(?:\.[0-9]{1,12})?(?:e[+-][0-9]{1,2})?", word):
        return None
    value = float(word)
    return value if value <= HIGHEST_GB_S else None


def whole_in(word: str) -> int | None:
    """Return the whole number that *word* is; ``None`` for anything else."""
    return int(word) if is_digits(word) and len(word) <= 18 else None


def unreadable(number: int, line: str) -> Problem:
    """Return the warning about a row that has the wrong shape."""
    return Problem(line=number, text=f"cannot be read: {shortened(line)}", is_error=False)


def failure(number: int, text: str) -> Problem:
    """Return the error *text*."""
    return Problem(line=number, text=text, is_error=True)


def missing(number: int, test: str) -> Problem:
    """Return that the log went on after the results of *test*, and lacks them."""
    text = f"the results of {test} are missing: the log is cut"
    return Problem(line=number, text=text, is_error=False, is_missing=True)


def log_of(
    tool: str, figures: Iterable[Figure], problems: Iterable[Problem], others: Iterable[str] = ()
) -> Log:
    """Return the log, with problems in its order and each of *others* once."""
    ordered = sorted(problems, key=lambda problem: problem.line)
    return Log(
        tool=tool,
        figures=tuple(figures),
        problems=tuple(ordered[:MOST_PROBLEMS]),
        others=tuple(dict.fromkeys(others)),
    )


def gpu_at(place: int, address: Mapping[str, str | None], host: str | None = None) -> LoggedGpu:
    """Return the GPU at *place* with the hexadecimal parts of *address* that a log names."""
    domain, bus, device = (
        None if (digits := address.get(part)) is None else int(digits, 16)
        for part in ("domain", "bus", "device")
    )
    return LoggedGpu(place=place, host=host, domain=domain, bus=bus, device=device)
