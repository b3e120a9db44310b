"""Logs of nvbandwidth, as text or JSON.

Facts: NVIDIA/nvbandwidth 0.8 ``output.cpp``, ``json_output.cpp``, ``inline_common.h`` (the matrix)
and ``testcase.h``.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from nodetopo.errors import DecodeError
from nodetopo.model.codec import load_json
from nodetopo.model.digits import is_digits
from nodetopo.tools.bandwidth.log import (
    MOST_FIGURES,
    Log,
    LoggedGpu,
    Problem,
    failure,
    of_each_source,
    shortened,
    trouble,
)
from nodetopo.tools.bandwidth.matrix import Matrix, add_gpu, cells, log_of_matrices

TOOL = "nvbandwidth"

_ADDRESS = r"(?P<domain>[0-9a-f]{4,8}):(?P<bus>[0-9a-f]{2}):(?P<device>[0-9a-f]{2})"
_DEVICE = re.compile(
    r"(?:Device )?(?P<number>[0-9]{1,4}): (?P<name>.{1,200}?)"
    rf"(?: \({_ADDRESS}\))?(?:: \(.*\))?$"
)
_RUNNING = re.compile(r"Running (?P<test>\w{1,100})\.")
_SUM = re.compile(r"(?:SUM|&&&& PERF) (?P<test>\w{1,100}) ")
_TITLE = re.compile(r"^memcpy .*\((?:GB/s)\)\s*$")
_ANCHOR = re.compile(
    r"nvbandwidth Version|\bmemcpy (?:CE|SM) [CG]PU\(row\)|Running \w{1,100}_(?:ce|sm)\.|"
    r"Device [0-9]{1,4}: NVIDIA "
)


def read(text: str) -> Log:
    """Return the figures of *text*: of each pair the slower direction, of each GPU to its host."""
    if text.lstrip()[:1] == "{":
        return _read_json(text)
    return of_each_source(TOOL, text, _ANCHOR, _read)


def _read(lines: Iterator[tuple[int, str]]) -> Log:
    gpus: dict[int, LoggedGpu] = {}
    problems: list[Problem] = []
    matrices: list[Matrix] = []
    test, matrix = TOOL, None
    for number, indented in lines:
        line = indented.strip()
        if running := _RUNNING.match(line):
            test, matrix = running["test"], None
        elif _TITLE.match(line):
            matrix = Matrix(test=test, line=number)
            matrices.append(matrix)
        elif total := _SUM.match(line):
            if matrices and matrices[-1].test == TOOL:  # the lines above it were cut off
                matrices[-1].test = total["test"]
        elif line.startswith("Device ") and (device := _DEVICE.match(line)):
            add_gpu(gpus, device)
        elif matrix is not None and is_digits(line[:1]):
            problems += matrix.read(number, line)
        elif matrix is not None and matrix.rows and not line:
            matrix = None
        elif (problem := trouble(number, line)) is not None:
            problems.append(problem)
    return log_of_matrices(TOOL, matrices, gpus, problems)


def _read_json(text: str) -> Log:
    document = load_json(text)
    report = document.get("nvbandwidth") if isinstance(document, Mapping) else None
    if not isinstance(report, Mapping):
        raise DecodeError("nvbandwidth", "not an object", "give what `nvbandwidth --json` wrote")
    gpus: dict[int, LoggedGpu] = {}
    listed = report.get("GPU Device list") or report.get("GPU Device info")
    for entry in listed if isinstance(listed, list) else ():
        if device := _DEVICE.match(str(entry)[:600]):
            add_gpu(gpus, device)
    problems = [
        Problem(line=1, text=shortened(f"{kind}: {report[kind]}"), is_error=kind == "error")
        for kind in ("error", "warning")
        if report.get(kind)
    ]
    matrices: list[Matrix] = []
    cases = report.get("testcases")
    for position, case in enumerate(cases if isinstance(cases, list) else ()):
        problems += _read_case(f"testcases[{position}]", case, matrices)
    return log_of_matrices(TOOL, matrices, gpus, problems)


def _read_case(where: str, case: Any, matrices: list[Matrix]) -> Iterator[Problem]:
    if not isinstance(case, Mapping) or not isinstance(case.get("name"), str):
        yield Problem(line=1, text=f"{where} cannot be read", is_error=False)
        return
    name = case["name"][:100]
    if case.get("error") or case.get("status") == "Error":
        yield failure(1, shortened(f"{name}: {case.get('error') or 'failed'}"))
        return
    rows = case.get("bandwidth_matrix")
    if rows is None:  # waived: the machine lacks a requirement
        return
    matrix = _json_matrix(name, rows)
    if matrix is None:
        yield Problem(line=1, text=f"{where}.bandwidth_matrix cannot be read", is_error=False)
    else:
        matrices.append(matrix)


def _json_matrix(name: str, rows: object) -> Matrix | None:
    if not isinstance(rows, list) or not all(isinstance(row, list) for row in rows):
        return None
    widths = {len(row) for row in rows}
    if len(widths) != 1 or len(rows) * max(widths) > MOST_FIGURES:
        return None
    matrix = Matrix(test=name, line=1, columns=tuple(range(max(widths))))
    for number, row in enumerate(rows):
        values = cells(str(cell) for cell in row)
        if values is None:
            return None
        matrix.rows[number] = values
    return matrix
