"""Which tool wrote a log, and what is no log."""

import pytest

from nodetopo.errors import InputError
from nodetopo.machines.bundled import machine
from nodetopo.model.codec import encode
from nodetopo.tools.bandwidth.log import LONGEST_LINE, MOST_PROBLEMS
from nodetopo.tools.bandwidth.read import read
from tests.tools.bandwidth import logs

H100 = machine("dgx-h100")


@pytest.mark.parametrize(
    ("text", "tool", "figures"),
    [
        (logs.nccl_tests(H100, range(8), 478.0), "nccl-tests", 1),
        (logs.nccl_tests(H100, range(8), 478.0, layout="middle"), "nccl-tests", 1),
        (logs.nccl_tests(H100, range(8), 478.0, layout="old"), "nccl-tests", 1),
        (logs.nccl_json(H100, range(8), 478.0), "nccl-tests", 1),
        (logs.perftest("mlx5_0", 390.0), "perftest", 1),
        (logs.nvbandwidth(H100, {}, 390.0, host=55.0), "nvbandwidth", 28 + 8),
        (logs.nvbandwidth_json(H100, 390.0), "nvbandwidth", 28),
        (logs.p2p_test(H100, 371.0), "p2pBandwidthLatencyTest", 28),
    ],
)
def test_a_log_is_recognised(text: str, tool: str, figures: int) -> None:
    log = read(text)
    assert (log.tool, len(log.figures), log.problems) == (tool, figures, ())


@pytest.mark.parametrize("tag", ["[1,0]<stdout>:", "[1,3]<stdout>: ", "0: ", "[0] "])
def test_what_a_launcher_puts_before_lines_is_left_out(tag: str) -> None:
    plain = logs.nccl_tests(H100, range(8), 478.0)
    tagged = "".join(f"{tag}{line}\n" for line in plain.splitlines())
    assert read(tagged) == read(plain)


@pytest.mark.parametrize("text", ["", "  \n", "hello\n", "{}", "[1, 2]", encode(H100)])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(InputError) as caught:
        read(text)
    assert "nccl-tests, perftest" in caught.value.cure


def test_problems_and_long_lines_are_bounded() -> None:
    log = logs.nccl_tests(H100, range(8), 478.0)
    log += "host:1:2 [0] NCCL WARN something\n" * (3 * MOST_PROBLEMS)
    log += "x" * (3 * LONGEST_LINE)
    found = read(log)
    assert len(found.problems) == MOST_PROBLEMS
    assert not any(problem.is_error for problem in found.problems)


@pytest.mark.parametrize(
    ("line", "is_error"),
    [
        ("h: Test NCCL failure common.cu:1279 'unhandled system error / '", True),
        (" .. h pid 38: Test failure common.cu:1104", True),
        ("h: Test CUDA failure common.cu:892 'out of memory'", True),
        ("h:38:38 [0] misc/socket.cc:50 NCCL WARN socketProgress: Connection closed", False),
    ],
)
def test_an_error_in_the_log_is_a_problem(line: str, *, is_error: bool) -> None:
    log = read(logs.nccl_tests(H100, range(8), 478.0, tail=f"{line}\n"))
    assert [(one.text, one.is_error) for one in log.problems] == [(line.strip(), is_error)]


def test_what_nccl_only_informs_about_is_no_problem() -> None:
    tail = "h:1:1 [0] NCCL INFO NET/Plugin: Failed to find ncclNetPlugin_v8 symbol.\n"
    assert read(logs.nccl_tests(H100, range(8), 478.0, tail=tail)).problems == ()
