"""nvbandwidth and p2pBandwidthLatencyTest: matrices as text and JSON."""

import json

import pytest

from nodetopo.errors import InputError
from nodetopo.machines.bundled import machine
from nodetopo.tools.bandwidth.log import Kind, Log
from nodetopo.tools.bandwidth.nvbandwidth import read as read_nvbandwidth
from nodetopo.tools.bandwidth.p2p_test import read as read_p2p_test
from tests.tools.bandwidth import logs

H100 = machine("dgx-h100")


def of_pair(log: Log, a: int, b: int) -> float:
    (found,) = [
        one.gb_per_s
        for one in log.figures
        if one.kind is Kind.PAIR and tuple(gpu.place for gpu in one.gpus) == (a, b)
    ]
    return found


def test_a_pair_has_the_slower_of_its_directions() -> None:
    log = read_nvbandwidth(logs.nvbandwidth(H100, {(0, 3): 100.0, (3, 0): 90.5}, 390.0))
    assert of_pair(log, 0, 3) == 90.5
    assert of_pair(log, 1, 2) == 390.0


def test_devices_are_known_by_their_addresses_where_the_version_prints_them() -> None:
    with_ = read_nvbandwidth(logs.nvbandwidth(H100, {}, 390.0))
    without = read_nvbandwidth(logs.nvbandwidth(H100, {}, 390.0, has_addresses=False))
    pci = H100.gpus[0].pci
    assert pci is not None
    assert with_.figures[0].gpus[0].bus == pci.bus
    assert without.figures[0].gpus[0].bus is None


def test_copies_from_the_host_are_figures_of_each_gpu_and_latencies_are_none() -> None:
    log = read_nvbandwidth(logs.nvbandwidth(H100, {}, 390.0, host=55.0))
    assert sum(1 for one in log.figures if one.kind is Kind.HOST) == 8
    assert not any("latency" in one.test for one in log.figures)


def test_a_matrix_whose_head_was_cut_off_is_named_by_its_sum() -> None:
    text = logs.nvbandwidth(H100, {}, 390.0)
    cut = text[text.index("memcpy CE GPU") :]
    assert {one.test for one in read_nvbandwidth(cut).figures} == {
        "device_to_device_memcpy_write_ce"
    }


def test_copies_by_kernels_and_both_ways_are_not_compared() -> None:
    text = logs.nvbandwidth(H100, {}, 390.0)
    for other in (
        "device_to_device_memcpy_read_sm",
        "device_to_device_bidirectional_memcpy_read_ce",
    ):
        log = read_nvbandwidth(text.replace("device_to_device_memcpy_write_ce", other))
        assert (log.figures, log.others) == ((), (other,))


def test_the_json_reads_as_the_text() -> None:
    log = read_nvbandwidth(logs.nvbandwidth_json(H100, 390.0))
    assert of_pair(log, 0, 7) == 390.0
    pci = H100.gpus[7].pci
    assert pci is not None
    assert log.figures[6].gpus[1].bus == pci.bus


def test_errors_of_the_tool_are_problems() -> None:
    text = "nvbandwidth Version: v0.7\n\nRunning device_to_device_memcpy_read_ce.\n"
    text += " Invalid value when checking the pattern at 0x70a640000000\n"
    log = read_nvbandwidth(text)
    assert log.figures == ()
    assert [problem.is_error for problem in log.problems] == [True]
    report = {"nvbandwidth": {"error": "CUDA_ERROR: no device", "testcases": []}}
    assert read_nvbandwidth(json.dumps(report)).problems[0].is_error


@pytest.mark.parametrize("matrix", [3, [3], [[1], [1, 2]], [["x"]], [[]]])
def test_a_json_matrix_of_another_shape_is_named(matrix: object) -> None:
    case = {"name": "device_to_device_memcpy_read_ce", "bandwidth_matrix": matrix}
    log = read_nvbandwidth(json.dumps({"nvbandwidth": {"testcases": [case]}}))
    assert log.figures == ()
    assert matrix == [[]] or "cannot be read" in log.problems[0].text


def test_a_json_without_its_report_is_refused() -> None:
    with pytest.raises(InputError):
        read_nvbandwidth('{"nvbandwidth": 3}')


def test_a_row_that_cannot_be_read_is_named() -> None:
    text = logs.nvbandwidth(H100, {(2, 3): 123.4}, 390.0).replace("123.40", "12x.40")
    log = read_nvbandwidth(text)
    assert ["cannot be read" in problem.text for problem in log.problems] == [True]
    assert of_pair(log, 2, 3) == 390.0  # of the other direction


def test_the_samples_matrix_with_peer_access_counts() -> None:
    log = read_p2p_test(logs.p2p_test(H100, 371.0))
    assert of_pair(log, 0, 7) == 371.0
    assert {one.test for one in log.figures} == {"unidirectional_p2p_enabled"}
    assert log.others == ("unidirectional_p2p_disabled", "bidirectional_p2p_enabled")
    pci = H100.gpus[0].pci
    assert pci is not None
    assert log.figures[0].gpus[0].bus == pci.bus
