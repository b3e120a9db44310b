"""Logs of copies between GPUs and hosts: nvbandwidth, as text or JSON, and p2pBandwidthLatencyTest.

Facts: NVIDIA/nvbandwidth 0.8 ``output.cpp``, ``json_output.cpp``, ``inline_common.h`` (the matrix)
and ``testcase.h``; NVIDIA/cuda-samples ``p2pBandwidthLatencyTest.cu``.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from agent.bandwidth.log import (
    MOST_FIGURES,
    MOST_GPUS,
    MOST_PROBLEMS,
    Figure,
    Kind,
    Log,
    LoggedGpu,
    Problem,
    lines,
    number_in,
    shortened,
    trouble,
    whole_in,
)
from agent.errors import DecodeError, InputError
from agent.model.codec import load_json
from agent.model.digits import is_digits

NVBANDWIDTH = "nvbandwidth"
P2P_TEST = "p2pBandwidthLatencyTest"

_ADDRESS = r"(?P<domain>[0-9a-f]{4,8}):(?P<bus>[0-9a-f]{2}):(?P<device>[0-9a-f]{2})"
_DEVICE = re.compile(
    r"(?:Device )?(?P<number>[0-9]{1,4}): (?P<name>.{1,200}?)"
    rf"(?: \({_ADDRESS}\))?(?:: \(.*\))?$"
)
_P2P_DEVICE = re.compile(
    r"Device: (?P<number>[0-9]{1,4}), .{1,200}, pciBusID: (?P<bus>[0-9a-f]{1,2}), "
    r"pciDeviceID: (?P<device>[0-9a-f]{1,2}), pciDomainID: ?(?P<domain>[0-9a-f]{1,8})"
)
_RUNNING = re.compile(r"Running (?P<test>\w{1,100})\.")
_SUM = re.compile(r"(?:SUM|&&&& PERF) (?P<test>\w{1,100}) ")
_TITLE = re.compile(r"^memcpy .*\((?:GB/s)\)\s*$")
_P2P_TITLE = re.compile(r"^(?P<ways>Uni|Bi)directional P2P=(?P<p2p>Enabled|Disabled) Bandwidth")
_OTHER_TITLE = re.compile(r"^(?:P2P=\w+ Latency|P2P Connectivity Matrix|.*latency.*\(ns\))")

_PAIRS = re.compile(r"device_to_device_memcpy_(?:read|write)_ce")
_HOST = re.compile(r"(?:host_to_device|device_to_host)_memcpy_ce")
"""Copies by copy engines, which the published figures are of. Those by kernels (``_sm``) reach
other shares: 35 of 63 GB/s from the host of a sound H100 (nvbandwidth issue 24)."""

_NAMES = ("N/A", "nan", "-nan")
_MIN = 0.01
"""GB/s below which a cell is one of a device with itself, which is printed as 0."""


def is_nvbandwidth(text: str) -> bool:
    """Return whether *text* seems to be from nvbandwidth."""
    if text.lstrip()[:1] == "{":
        return '"nvbandwidth"' in text
    return "nvbandwidth Version" in text or bool(_MEMCPY.search(text))


_MEMCPY = re.compile(r"^memcpy (?:CE|SM) [CG]PU\(row\)", re.MULTILINE)


def is_p2p_test(text: str) -> bool:
    """Return whether *text* seems to be from p2pBandwidthLatencyTest."""
    return "P2P (Peer-to-Peer) GPU Bandwidth Latency Test" in text or "directional P2P=" in text


@dataclass(slots=True)
class _Matrix:
    """A table of a log: rows by label, each as long as *columns*; ``None`` is N/A."""

    test: str
    line: int
    columns: tuple[int, ...] = ()
    rows: dict[int, tuple[float | None, ...]] = field(default_factory=dict)


def read_nvbandwidth(text: str) -> Log:
    """Return the figures of *text*: of each pair the slower direction, of each GPU to its host.

    Raises:
        InputError: it holds too many devices, or is JSON of another shape.
    """
    if text.lstrip()[:1] == "{":
        return _read_json(text)
    gpus: dict[int, LoggedGpu] = {}
    problems: list[Problem] = []
    matrices: list[_Matrix] = []
    test, matrix = NVBANDWIDTH, None
    for number, line in lines(text):
        if found := _RUNNING.match(line):
            test, matrix = found["test"], None
        elif _TITLE.match(line):
            matrix = _Matrix(test=test, line=number)
            matrices.append(matrix)
        elif found := _SUM.match(line):
            if matrices and matrices[-1].test == NVBANDWIDTH:  # the lines above it were cut off
                matrices[-1].test = found["test"]
        elif line.startswith("Device ") and (found := _DEVICE.match(line.rstrip())):
            _add(gpus, found)
        elif matrix is not None and is_digits(line.strip()[:1]):
            problem = _read_row(matrix, number, line)
            if problem is not None:
                problems.append(problem)
        elif matrix is not None and matrix.rows and not line.strip():
            matrix = None
        elif (problem := trouble(number, line)) is not None:
            problems.append(problem)
    return _log(NVBANDWIDTH, matrices, gpus, problems)


def read_p2p_test(text: str) -> Log:
    """Return the figures of *text* with peer access: of each pair the slower direction.

    Raises:
        InputError: it holds too many devices.
    """
    gpus: dict[int, LoggedGpu] = {}
    problems: list[Problem] = []
    matrices: list[_Matrix] = []
    matrix = None
    for number, line in lines(text):
        if found := _P2P_TITLE.match(line):
            name = f"{found['ways'].lower()}directional_p2p_{found['p2p'].lower()}"
            matrix = _Matrix(test=name, line=number)
            matrices.append(matrix)
        elif _OTHER_TITLE.match(line.strip()):
            matrix = None
        elif found := _P2P_DEVICE.match(line):
            _add(gpus, found)
        elif matrix is not None and (words := line.split()):
            if words[0] == "D\\D":
                line = line.replace("D\\D", "", 1)  # noqa: PLW2901 - the corner of the table
            elif not is_digits(words[0]):
                continue
            problem = _read_row(matrix, number, line)
            if problem is not None:
                problems.append(problem)
        elif (problem := trouble(number, line)) is not None:
            problems.append(problem)
    return _log(P2P_TEST, matrices, gpus, problems)


def _add(gpus: dict[int, LoggedGpu], found: re.Match[str]) -> None:
    number = int(found["number"])
    domain, bus, device = found["domain"], found["bus"], found["device"]
    if len(gpus) >= MOST_GPUS:
        raise InputError(f"more than {MOST_GPUS} devices", "split the log")
    gpus[number] = LoggedGpu(
        place=number,
        domain=None if domain is None else int(domain, 16),
        bus=None if bus is None else int(bus, 16),
        device=None if device is None else int(device, 16),
    )


def _read_row(matrix: _Matrix, number: int, line: str) -> Problem | None:
    """Read a line of digits into *matrix*: the first is the numbers of the columns."""
    words = line.split()
    if not matrix.columns:
        columns = [whole_in(word) for word in words[: MOST_GPUS + 1]]
        if None in columns or len(columns) > MOST_GPUS or len(set(columns)) < len(columns):
            text = f"cannot be read: {shortened(line)}"
            return Problem(line=number, text=text, is_error=False)
        matrix.columns = tuple(one for one in columns if one is not None)
        return None
    row, cells = whole_in(words[0]), words[1:]
    values = [None if cell in _NAMES else number_in(cell) for cell in cells]
    is_bad = any(
        value is None and cell not in _NAMES for value, cell in zip(values, cells, strict=True)
    )
    if row is None or len(cells) != len(matrix.columns) or is_bad or row in matrix.rows:
        text = f"cannot be read: {shortened(line)}"
        return Problem(line=number, text=text, is_error=False)
    matrix.rows[row] = tuple(values)
    if len(matrix.rows) * len(matrix.columns) > MOST_FIGURES:
        raise InputError(f"line {number}: more than {MOST_FIGURES} figures", "split the log")
    return None


def _log(
    tool: str,
    matrices: Sequence[_Matrix],
    gpus: Mapping[int, LoggedGpu],
    problems: list[Problem],
) -> Log:
    figures: list[Figure] = []
    others = []
    for matrix in matrices:
        is_pairs = _PAIRS.fullmatch(matrix.test) or matrix.test == "unidirectional_p2p_enabled"
        if is_pairs:
            figures += _pairs(matrix, gpus)
        elif _HOST.fullmatch(matrix.test):
            figures += _hosts(matrix, gpus)
        else:
            others.append(matrix.test)
        if len(figures) > MOST_FIGURES:
            raise InputError(f"more than {MOST_FIGURES} figures", "split the log")
    return Log(
        tool=tool,
        figures=tuple(figures),
        problems=tuple(problems[:MOST_PROBLEMS]),
        others=tuple(dict.fromkeys(others)),
    )


def _pairs(matrix: _Matrix, gpus: Mapping[int, LoggedGpu]) -> Iterator[Figure]:
    """Yield each pair with the slower of the directions that were measured."""
    column = {number: at for at, number in enumerate(matrix.columns)}
    for a, b in combinations(sorted(column), 2):
        ways = ((a, b), (b, a))
        cells = [matrix.rows[row][column[to]] for row, to in ways if row in matrix.rows]
        known = [cell for cell in cells if cell is not None and cell >= _MIN]
        if known:
            ends = tuple(gpus.get(number, LoggedGpu(place=number)) for number in (a, b))
            yield Figure(
                test=matrix.test,
                kind=Kind.PAIR,
                gpus=ends,
                gb_per_s=min(known),
                line=matrix.line,
            )


def _hosts(matrix: _Matrix, gpus: Mapping[int, LoggedGpu]) -> Iterator[Figure]:
    for row in matrix.rows.values():
        for number, cell in zip(matrix.columns, row, strict=True):
            if cell is not None and cell >= _MIN:
                yield Figure(
                    test=matrix.test,
                    kind=Kind.HOST,
                    gpus=(gpus.get(number, LoggedGpu(place=number)),),
                    gb_per_s=cell,
                    line=matrix.line,
                )


def _read_json(text: str) -> Log:
    document = load_json(text)
    report = document.get("nvbandwidth") if isinstance(document, Mapping) else None
    if not isinstance(report, Mapping):
        raise DecodeError("nvbandwidth", "not an object", "give what `nvbandwidth --json` wrote")
    gpus: dict[int, LoggedGpu] = {}
    listed = report.get("GPU Device list") or report.get("GPU Device info")
    for entry in listed if isinstance(listed, list) else ():
        if found := _DEVICE.match(str(entry)[:600]):
            _add(gpus, found)
    problems = [
        Problem(line=1, text=shortened(f"{kind}: {report[kind]}"), is_error=kind == "error")
        for kind in ("error", "warning")
        if report.get(kind)
    ]
    matrices = []
    cases = report.get("testcases")
    for position, case in enumerate(cases if isinstance(cases, list) else ()):
        where = f"testcases[{position}]"
        if not isinstance(case, Mapping) or not isinstance(case.get("name"), str):
            problems.append(Problem(line=1, text=f"{where} cannot be read", is_error=False))
            continue
        name = case["name"][:100]
        if case.get("error") or case.get("status") == "Error":
            said = shortened(f"{name}: {case.get('error') or 'failed'}")
            problems.append(Problem(line=1, text=said, is_error=True))
            continue
        rows = case.get("bandwidth_matrix")
        if rows is None:  # waived: the machine lacks what it needs
            continue
        matrix = _json_matrix(name, rows)
        if matrix is None:
            said = f"{where}.bandwidth_matrix cannot be read"
            problems.append(Problem(line=1, text=said, is_error=False))
        else:
            matrices.append(matrix)
    return _log(NVBANDWIDTH, matrices, gpus, problems)


def _json_matrix(name: str, rows: object) -> _Matrix | None:
    if not isinstance(rows, list) or not all(isinstance(row, list) for row in rows):
        return None
    widths = {len(row) for row in rows}
    if len(widths) != 1 or len(rows) * max(widths) > MOST_FIGURES:
        return None
    matrix = _Matrix(test=name, line=1, columns=tuple(range(max(widths))))
    for number, row in enumerate(rows):
        values = [None if str(cell) in _NAMES else number_in(str(cell)) for cell in row]
        if any(v is None and str(c) not in _NAMES for v, c in zip(values, row, strict=True)):
            return None
        matrix.rows[number] = tuple(values)
    return matrix
