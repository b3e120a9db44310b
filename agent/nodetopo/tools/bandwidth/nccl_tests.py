"""Logs of nccl-tests: ``all_reduce_perf`` and its siblings, as text or as the JSON of ``-J``.

Facts: NVIDIA/nccl-tests ``src/util.cu`` (before 2.17 ``src/common.cu``) at 2.0 to 2.19. Columns are
found by their names, which changed: ``error`` became ``#wrong``, ``root`` and ``timestamp`` came.
A GPU was ``[0x18]``, its bus alone, and is ``[0000:18:00]`` since 2.14.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct, field

from nodetopo.allocation.measured import Operation
from nodetopo.errors import DecodeError, InputError
from nodetopo.model.codec import load_json
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
    missing,
    number_in,
    shortened,
    trouble,
    unreadable,
    whole_in,
)
from nodetopo.tools.bandwidth.operation import UNRESTRICTED, Algorithms, Columns, Reader

TOOL = "nccl-tests"

_RANK = re.compile(
    r"#\s+Rank\s+(?P<rank>[0-9]{1,6})\s(?:\s*Group\s+(?P<group>[0-9]{1,6}))?(?:\s*Pid\s+[0-9]{1,10})?"
    r"\s+on\s+(?P<host>\S{1,255})\s+device\s+[0-9]{1,4}\s+\[(?P<pci>[^\]]{1,32})\]"
)
_BUS = re.compile(r"0x(?P<bus>[0-9a-fA-F]{1,2})")
_PCI = re.compile(
    r"(?P<domain>[0-9a-fA-F]{4,8}):(?P<bus>[0-9a-fA-F]{2}):(?P<device>[0-9a-fA-F]{2})"
)
# Version 2.0 called the columns `bytes` and `N`, and began its other lines without a hash.
_HEADER = re.compile(r"(?:#|^)\s*(?:size\s+count|bytes\s+N)\s.*\bbusbw\b")
_START = re.compile(r"(?:# |^)nThread (?P<threads>[0-9]{1,4}) nGpus (?P<gpus>[0-9]{1,4}) ")
_RANKS = re.compile(r"NCCL INFO .{0,200}\brank [0-9]{1,6} n[rR]anks (?P<ranks>[0-9]{1,6})\b")
_NAME = re.compile(r"# Collective test starting: (?P<name>\S{1,100})")
_PROGRAM = re.compile(
    r"\b(?P<name>(?:all_reduce|all_gather|reduce_scatter|alltoallv?|broadcast|reduce|gather|"
    r"scatter|sendrecv|hypercube)_perf)(?:_mpi)?\b"
)
_BOUNDS = re.compile(r"(?:#|^)\s*Out of bounds values\s*:\s*(?P<count>[0-9]{1,18})")
_AVERAGE = re.compile(
    r"(?:#|^)\s*Avg bus bandwidth\s*:\s*(?P<figure>\S{1,40})(?P<verdict>\s+FAILED)?"
)
_ANCHOR = re.compile(
    r"#\s+Rank\s+[0-9]{1,6}\s|# nThread [0-9]+ nGpus |#\s*size\s+count\s|# nccl-tests version "
    r"|# Collective test starting: |#\s*Out of bounds values\s*:|#\s*Avg bus bandwidth\s*:"
)

SENDRECV = Operation.SENDRECV
"""Each rank sends to the next and receives from the previous: two ranks measure their pair."""


UNNAMED = "a collective"
"""The test of a log that does not tell its operation."""

MOST_GAPS = 4
"""Missing ranks that a message names; of more it gives the number."""


class _Row(Struct):
    line: int
    size: int
    busbw: float
    wrong: float


class _Run(Struct):
    """One start of a test."""

    name: str | None = None
    ranks: list[tuple[int, LoggedGpu]] = field(default_factory=list)
    columns: tuple[str, ...] = ()
    rows: list[_Row] = field(default_factory=list)
    factor: float | None = None
    line: int = 1
    algorithms: Algorithms = UNRESTRICTED
    least_ranks: int = 0
    # Hosts of each group of ranks; a test that is split has several.
    groups: dict[str | None, set[str]] = field(default_factory=dict)
    goes_on: bool = False  # the log has what the test prints after its results
    traits: Columns | None = None

    @property
    def is_blank(self) -> bool:
        """Whether nothing is known but its name."""
        return not (self.ranks or self.columns or self.rows)


def read(text: str) -> Log:
    """Return the figures of *text*: each run's highest bus bandwidth of its largest message."""
    if text.lstrip()[:1] == "{":
        return _read_json(text)
    runs: list[_Run] = []
    problems: list[Problem] = []
    program: str | None = None  # the last that a line names, such as a command above the log
    settings = Reader()
    for number, line in lines(text, _ANCHOR):
        stripped = line.strip()
        current = settings.read(line, runs[-1].algorithms if runs else None)
        if current is not None:
            runs[-1].algorithms = current
        called = _PROGRAM.search(line) if "_perf" in line else None
        if called:
            program = called["name"]
        start, sizes = _NAME.search(line), _START.search(line)
        if sizes or (start and (not runs or runs[-1].rows)):
            begun = settings.begin()
            if runs and runs[-1].is_blank:  # what its name began, its settings begin again
                blank = runs.pop()
                begun = blank.algorithms if begun == UNRESTRICTED else begun
            runs.append(_Run(name=program, line=number, algorithms=begun))
            if sizes:  # of one process; there can be several
                runs[-1].least_ranks = int(sizes["threads"]) * int(sizes["gpus"])
        if runs and (told := _RANKS.search(line)):
            runs[-1].least_ranks = max(runs[-1].least_ranks, int(told["ranks"]))
        if start:
            runs[-1].name = called["name"] if called else start["name"]
            continue
        if (problem := trouble(number, line)) is not None:
            problems.append(problem)
            continue
        rank, is_header = _RANK.search(line), "busbw" in line and _HEADER.search(line)
        if not runs and (rank or is_header):
            runs.append(_Run(name=program, line=number, algorithms=settings.begin()))
        if rank:
            runs[-1].ranks.append((number, _gpu(rank["rank"], rank["host"], rank["pci"])))
            runs[-1].groups.setdefault(rank["group"], set()).add(rank["host"])
            if len(runs[-1].ranks) > MOST_GPUS:
                raise InputError(f"line {number}: more than {MOST_GPUS} ranks", "split the log")
        elif is_header:
            runs[-1].columns = tuple(stripped.lstrip("#").split())
        elif is_digits(stripped[:1]) and runs and runs[-1].columns:
            problems += _row(runs[-1], number, stripped)
        elif _BOUNDS.search(line) or _AVERAGE.search(line):
            if runs:
                runs[-1].goes_on = True
            if cause := _verdict(line):
                problems.append(failure(number, cause))
    return _log(runs, problems)


def _verdict(line: str) -> str | None:
    """Return the fault of a run by the summary in *line*."""
    if (bounds := _BOUNDS.search(line)) and int(bounds["count"]):
        return f"{int(bounds['count'])} values out of bounds: wrong data arrived"
    if (average := _AVERAGE.search(line)) and average["verdict"]:
        return f"the average of {average['figure']} GB/s is below what the test was given"
    return None


def _row(run: _Run, number: int, line: str) -> Iterator[Problem]:
    """Read a row of the table into *run*; yield its problems."""
    words = line.split()
    first = run.columns.index("busbw")
    # `redop` is empty for operations without one in old versions, where the columns move left.
    moved = max(len(run.columns) - len(words), 0)
    size = whole_in(words[0])
    at = [n - moved for n, name in enumerate(run.columns) if name == "busbw"]
    if size is None or moved > 2 or at[-1] >= len(words) or first - moved < 2:
        yield unreadable(number, line)
        return
    figures = [value for n in at if (value := number_in(words[n])) is not None]
    if not figures:
        yield Problem(line=number, text=f"no bus bandwidth: {shortened(line)}", is_error=False)
        return
    # `error` was the greatest difference, in floating point; `#wrong` counts elements.
    bad = [n - moved for n, name in enumerate(run.columns) if name == "#wrong"]
    wrong = sum(number_in(words[n]) or 0 for n in bad if n < len(words))
    best = max(figures)
    if (algbw := number_in(words[at[figures.index(best)] - 1])) and algbw > 1:
        run.factor = best / algbw
    if run.name is None:
        run.traits = _traits(run.columns, words, moved)
    run.rows.append(_Row(line=number, size=size, busbw=best, wrong=wrong))
    if len(run.rows) > MOST_FIGURES:
        raise InputError(f"line {number}: more than {MOST_FIGURES} rows", "split the log")
    if wrong:
        text = f"{wrong:g} wrong elements at {size} bytes: wrong data arrived"
        yield failure(number, text)


def _traits(columns: Sequence[str], words: Sequence[str], moved: int) -> Columns:
    """Return what a row of *words* tells of its operation; *moved* columns are empty in it."""
    cells = dict(zip(reversed(columns), reversed(words[: len(columns)]), strict=False))
    checked = [words[n - moved] for n, name in enumerate(columns) if name in ("#wrong", "error")]
    return Columns(
        names=frozenset(columns),
        reduces=moved == 0 and cells.get("redop", "none") != "none",
        is_rooted=is_digits(cells.get("root", "")),
        is_checked_twice=len(checked) > 1 and all(number_in(word) is not None for word in checked),
    )


def _log(runs: Sequence[_Run], problems: list[Problem]) -> Log:
    figures = []
    for run in runs:
        ranks = [gpu for _, gpu in run.ranks]
        places = [gpu.place for gpu in ranks]
        if len(set(places)) < len(places):
            text = (
                "a rank twice: the test was built without MPI, so each process tests itself alone"
            )
            problems.append(failure(run.ranks[0][0], text))
            continue
        if not run.rows:
            if run.goes_on:
                problems.append(missing(run.line, run.name or "a test"))
            elif run.ranks:
                text = "the test ended before its first result"
                problems.append(failure(run.line, text))
            continue
        largest = max(row.size for row in run.rows)
        best = max((row for row in run.rows if row.size == largest), key=lambda row: row.busbw)
        lacks = _missing(places, run.least_ranks) or _average(run) if places else None
        known = None if lacks or run.traits is None else run.traits
        test = run.name or (known and known.operation(run.factor, len(ranks))) or UNNAMED
        is_pair = test == SENDRECV and len(ranks) == 2
        figures.append(
            Figure(
                test=test,
                kind=Kind.PAIR if is_pair else Kind.SET,
                gpus=tuple(sorted(ranks, key=lambda gpu: gpu.place)),
                gb_per_s=best.busbw,
                size=largest,
                line=best.line,
                hosts=tuple(dict.fromkeys(gpu.host for gpu in ranks if gpu.host is not None)),
                is_wrong=any(row.wrong for row in run.rows),
                algorithms=run.algorithms,
                ratio=run.factor,
                columns=run.traits,
                lacks=lacks,
            )
        )
    return log_of(TOOL, figures, problems)


def _average(run: _Run) -> str | None:
    """Return which groups the figures of *run* are the average of, if the test was split.

    Each group is a communicator of its own (``NCCL_TESTS_SPLIT``); the time is the average of all
    ranks, so that no group has a figure.
    """
    if len(run.groups) < 2:
        return None
    is_apart = all(len(hosts) == 1 for hosts in run.groups.values())
    where = ", each on one host" if is_apart else " over several hosts"
    return (
        f"the average of {len(run.groups)} groups of ranks{where}: run the test without the split"
    )


def _missing(places: Sequence[int], least: int) -> str | None:
    """Return which ranks of 0 to the highest, and of *least* at least, *places* lacks."""
    gaps: list[str] = []
    count = 0
    following = 0
    for place in (*sorted(places), max(least, max(places) + 1)):
        if missing := place - following:
            count += missing
            gaps.append(f"{following}" if missing == 1 else f"{following} to {place - 1}")
            if missing == 2:
                gaps[-1:] = [f"{following}", f"{place - 1}"]
        following = place + 1
    if not gaps:
        return None
    if len(gaps) > MOST_GAPS:
        return f"{count} of {following - 1} ranks are missing: the log is cut"
    names = " and ".join((", ".join(gaps[:-1]), gaps[-1]) if len(gaps) > 1 else gaps)
    if count == 1:
        return f"rank {names} is missing: the log is cut"
    return f"ranks {names} are missing: the log is cut"


def _gpu(rank: str, host: str, pci: str) -> LoggedGpu:
    address = _BUS.fullmatch(pci) or _PCI.fullmatch(pci)
    return gpu_at(int(rank), {} if address is None else address.groupdict(), host)


def _read_json(text: str) -> Log:
    document = load_json(text)
    if not isinstance(document, Mapping):
        raise DecodeError("", "not a report of nccl-tests", "give what -J wrote")
    run = _Run(columns=("size", "busbw"))
    config = document.get("config")
    devices = config.get("devices") if isinstance(config, Mapping) else None
    for entry in devices if isinstance(devices, list) else ():
        if isinstance(entry, Mapping) and isinstance(entry.get("rank"), int):
            host, pci = str(entry.get("hostname")), str(entry.get("device_hex"))
            run.ranks.append((1, _gpu(str(entry["rank"]), host[:255], pci[:32])))
    if len(run.ranks) > MOST_GPUS:
        raise InputError(f"more than {MOST_GPUS} ranks", "split the log")
    problems = []
    results = document.get("results")
    for position, entry in enumerate(results if isinstance(results, list) else ()):
        row = _json_row(entry)
        if row is None:
            where = f"results[{position}] cannot be read"
            problems.append(Problem(line=1, text=where, is_error=False))
            continue
        run.rows.append(row)
        if row.wrong:
            where = f"{row.wrong:g} wrong elements at {row.size} bytes: wrong data arrived"
            problems.append(failure(1, where))
    args = document.get("args")
    words = " ".join(map(str, args)) if isinstance(args, list) else str(document.get("args", ""))
    if program := _PROGRAM.search(words[:1000]):
        run.name = program["name"]
    return _log([run], problems)


def _json_row(entry: object) -> _Row | None:
    if not isinstance(entry, Mapping) or not isinstance(entry.get("size"), int):
        return None
    halves = [half for half in (entry.get("out_of_place"), entry.get("in_place")) if half]
    if not all(isinstance(half, Mapping) for half in halves):
        return None
    figures = [
        value for half in halves if (value := number_in(str(half.get("bus_bw")))) is not None
    ]
    wrong = sum(number_in(str(half.get("nwrong"))) or 0 for half in halves)
    if not figures:
        return None
    return _Row(line=1, size=entry["size"], busbw=max(figures), wrong=wrong)
