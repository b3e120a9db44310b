"""Logs of p2pBandwidthLatencyTest.

Facts: NVIDIA/cuda-samples ``p2pBandwidthLatencyTest.cu``.
"""

import re
from collections.abc import Iterator

from nodetopo.model.digits import is_digits
from nodetopo.tools.bandwidth.log import Log, LoggedGpu, Problem, of_each_source, trouble
from nodetopo.tools.bandwidth.matrix import Matrix, add_gpu, log_of_matrices

TOOL = "p2pBandwidthLatencyTest"

_DEVICE = re.compile(
    r"Device: (?P<number>[0-9]{1,4}), .{1,200}, pciBusID: (?P<bus>[0-9a-f]{1,2}), "
    r"pciDeviceID: (?P<device>[0-9a-f]{1,2}), pciDomainID: ?(?P<domain>[0-9a-f]{1,8})"
)
_TITLE = re.compile(
    r"\s*(?P<ways>Uni|Bi)directional P2P=(?P<p2p>Enabled|Disabled) Bandwidth"
    r"(?: \(P2P (?P<by>Reads|Writes)\))?"
)
_OTHER_TITLE = re.compile(r"^(?:P2P=\w+ Latency|P2P Connectivity Matrix|.*latency.*\(ns\))")
_ANCHOR = re.compile(
    r"\[P2P \(Peer-to-Peer\) GPU|(?:Uni|Bi)directional P2P=|Device: [0-9]{1,4}, NVIDIA |D\\D\s"
)
_CORNER = "D\\D"


def read(text: str) -> Log:
    """Return the figures of *text* with peer access: of each pair the slower direction."""
    return of_each_source(TOOL, text, _ANCHOR, _read)


def _read(lines: Iterator[tuple[int, str]]) -> Log:
    gpus: dict[int, LoggedGpu] = {}
    problems: list[Problem] = []
    matrices: list[Matrix] = []
    matrix = None
    for number, line in lines:
        if title := _TITLE.match(line):
            name = f"{title['ways'].lower()}directional_p2p_{title['p2p'].lower()}"
            if title["by"] == "Reads":  # `--p2p_read`; without it the sample writes
                name += "_reads"
            matrix = Matrix(test=name, line=number)
            matrices.append(matrix)
        elif _OTHER_TITLE.match(line.strip()):
            matrix = None
        elif device := _DEVICE.match(line.lstrip()):
            add_gpu(gpus, device)
        elif matrix is not None and (words := line.split()):
            if words[0] == _CORNER or is_digits(words[0]):
                problems += matrix.read(number, line.lstrip().removeprefix(_CORNER))
        elif (problem := trouble(number, line)) is not None:
            problems.append(problem)
    return log_of_matrices(TOOL, matrices, gpus, problems)
