"""Logs as people paste them: wrapped, cut, without their beginning, of several nodes at once."""

from collections.abc import Callable
from itertools import zip_longest

import pytest

from nodetopo.machines.bundled import machine
from nodetopo.tools.bandwidth.read import read
from tests.tools.bandwidth import logs

H100, A100 = machine("dgx-h100"), machine("dgx-a100")
LOGS = {
    "nccl-tests": logs.nccl_tests(H100, range(8), 478.0),
    "perftest": logs.perftest("mlx5_0", 390.0),
    "nvbandwidth": logs.nvbandwidth(H100, {}, 390.0, host=55.0),
    "p2pBandwidthLatencyTest": logs.p2p_test(H100, 371.0),
}
OTHERS = {
    "nvbandwidth": logs.nvbandwidth(A100, {}, 99.0),
    "p2pBandwidthLatencyTest": logs.p2p_test(A100, 99.0),
}
"""Of a node with other addresses."""

WRAPPERS: dict[str, Callable[[str], str]] = {
    "kubectl --timestamps": lambda line: f"2025-03-11T08:22:31.123456789Z {line}",
    "kubectl --prefix": lambda line: f"[pod/launcher-x2x/main] {line}",
    "stern": lambda line: f"launcher-x2x main {line}",
    "pdsh": lambda line: f"node-a: {line}",
    "Ray": lambda line: f"(Task pid=7, ip=192.0.2.1) {line}",
    "PRRTE": lambda line: f"[prterun-node-a-9@1,0]<stdout>: {line}",
    "mpirun": lambda line: f"Tue Mar 11 08:22:31 2025<stdout>:{line}",
    "ANSI": lambda line: f"\x1b[0m{line}",
    "quote": lambda line: f"> {line}",
    "box": lambda line: f"| {line} |",
    "CRLF": lambda line: f"{line}\r",
    "flush left": str.strip,
}


def of_two_hosts(one: str, other: str, prefix: str) -> str:
    """Return the lines of two logs in turn, as two hosts print them at once."""
    both = zip_longest(one.splitlines(), other.splitlines(), fillvalue="")
    a, b = prefix.format("a"), prefix.format("b")
    return "".join(f"{a}{first}\n{b}{second}\n" for first, second in both)


@pytest.mark.parametrize(
    ("prefix", "origin"),
    [
        ("node-{0}: ", "node-{0}"),
        ("[pod/trainer-{0}/main] 2025-03-11T08:22:31Z ", "pod/trainer-{0}/main"),
        ("trainer-{0}  | ", "trainer-{0}"),
        ("(Worker pid=7, ip=192.0.2.{0}) ", "Worker , ip=192.0.2.{0}"),
    ],
)
@pytest.mark.parametrize("tool", ["p2pBandwidthLatencyTest", "nvbandwidth"])
def test_copies_of_two_hosts_are_read_apart(tool: str, prefix: str, origin: str) -> None:
    alone = [read(text) for text in (LOGS[tool], OTHERS[tool])]
    both = read(of_two_hosts(LOGS[tool], OTHERS[tool], prefix)).figures
    assert {it.hosts for log in alone for it in log.figures} == {()}
    for host, log in zip("ab", alone, strict=True):
        own = [it for it in both if it.hosts == (origin.format(host),)]
        assert [(it.gpus, it.gb_per_s) for it in own] == [
            (it.gpus, it.gb_per_s) for it in log.figures
        ]


@pytest.mark.parametrize("wrapper", WRAPPERS)
@pytest.mark.parametrize("tool", LOGS)
def test_a_wrapped_log_reads_as_the_log(tool: str, wrapper: str) -> None:
    text = LOGS[tool]
    wrapped = "\n".join(map(WRAPPERS[wrapper], text.splitlines()))
    assert read(wrapped) == read(text)


def test_the_logs_of_two_hosts_are_two_figures() -> None:
    ends = [LOGS["nccl-tests"].splitlines(), logs.nccl_tests(H100, range(8), 400.0).splitlines()]
    mixed = [
        f"node-{at}: {line}" for pair in zip(*ends, strict=True) for at, line in enumerate(pair)
    ]
    assert [figure.gb_per_s for figure in read("\n".join(mixed)).figures] == [478.0, 400.0]


def test_a_bare_table_is_a_log() -> None:
    text = LOGS["nccl-tests"]
    (figure,) = read(text[text.index("#       size") :]).figures
    assert (figure.gb_per_s, figure.gpus) == (478.0, ())


def test_results_that_are_missing_before_the_average_are_no_failure() -> None:
    lines = LOGS["nccl-tests"].splitlines()
    log = read("\n".join(line for line in lines if not line[:1].isspace()))
    (problem,) = log.problems
    assert (problem.is_missing, problem.is_error, log.figures) == (True, False, ())


def test_both_ends_of_a_loopback_in_one_terminal_are_one_run() -> None:
    lines = LOGS["perftest"].splitlines()
    head = lines[: next(at for at, line in enumerate(lines) if "#bytes" in line)]
    log = read("\n".join([*head, *lines]))
    assert (log.figures[0].gb_per_s, len(log.figures), log.problems) == (390.0 / 8, 1, ())


def test_an_end_that_failed_is_no_end_of_a_loopback() -> None:
    lines = LOGS["perftest"].splitlines()
    head = lines[: next(at for at, line in enumerate(lines) if "#bytes" in line)]
    log = read("\n".join([*head, "Couldn't connect to node-b:18515", *lines]))
    assert len(log.figures) == 1
    assert [problem.text for problem in log.problems if problem.is_error] == [
        "RDMA_Write BW ended before its first result",
        "Couldn't connect to node-b:18515",
    ]


def test_reads_and_writes_of_peers_are_two_tests() -> None:
    writes = LOGS["p2pBandwidthLatencyTest"]
    both = writes + logs.p2p_test(H100, 300.0).replace("P2P Writes", "P2P Reads")
    found = {figure.test: figure.gb_per_s for figure in read(both).figures}
    assert found == {"unidirectional_p2p_enabled": 371.0, "unidirectional_p2p_enabled_reads": 300.0}


@pytest.mark.parametrize(
    "line",
    [
        "Warning: Permanently added '[w-0]:222' (ED25519) to the list of known hosts.",
        "WARNING: Open MPI accepted a TCP connection from what appears to be another process",
        " WARNING: BW peak won't be measured in this run.",
    ],
)
def test_notices_of_launchers_are_no_warnings(line: str) -> None:
    for text in (LOGS["nccl-tests"], LOGS["perftest"]):
        assert read(f"{line}\n{text}{line}\n").problems == ()
