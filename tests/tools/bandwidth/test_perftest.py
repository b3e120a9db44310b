"""perftest: units, memory of a GPU, both directions, and tests that are no bandwidth."""

import pytest

from nodetopo.tools.bandwidth.log import Kind, LoggedGpu
from nodetopo.tools.bandwidth.perftest import read
from tests.tools.bandwidth import logs


@pytest.mark.parametrize(
    ("unit", "average", "gb_per_s"),
    [("Gb", 392.0, 49.0), ("MiB", 46000.0, 48.234), ("MB", 46000.0, 48.234)],
)
def test_the_average_is_gb_per_s_whatever_the_unit(
    unit: str, average: float, gb_per_s: float
) -> None:
    (figure,) = read(logs.perftest("mlx5_3", average, unit=unit)).figures
    assert figure.gb_per_s == pytest.approx(gb_per_s, abs=0.001)
    assert (figure.kind, figure.hca, figure.gpus) == (Kind.HCA, "mlx5_3", ())


def test_the_gpu_is_the_one_that_was_picked() -> None:
    (figure,) = read(logs.perftest("mlx5_3", 392.0, gpu="1B:00")).figures
    assert figure.kind is Kind.GPU_HCA
    assert figure.gpus == (LoggedGpu(place=1, bus=0x1B, device=0),)


def test_the_gpu_is_the_one_of_a_bus_id() -> None:
    text = "initializing CUDA\nFinding PCIe BUS 0000:1b:00.0\nPicking GPU number 3\n"
    (figure,) = read(text + logs.perftest("mlx5_3", 392.0)).figures
    assert figure.gpus == (LoggedGpu(place=0, domain=0, bus=0x1B, device=0),)


def test_both_directions_at_once_are_one_sum() -> None:
    text = logs.perftest("mlx5_3", 780.0, test="RDMA_Write Bidirectional BW")
    (figure,) = read(text).figures
    assert figure.gb_per_s == pytest.approx(97.5)
    assert figure.is_both_ways
    assert not read(logs.perftest("mlx5_3", 390.0)).figures[0].is_both_ways


def test_the_largest_message_counts() -> None:
    text = logs.perftest("mlx5_3", 392.0)
    small = " 2          5000             0.10               0.09  \t     0.7\n"
    at = text.index(" 65536")
    assert read(text[:at] + small + text[at:]).figures[0].size == 65536


def test_columns_of_other_options_are_told_apart() -> None:
    text = logs.perftest("mlx5_3", 392.0)
    text = text.replace("#iterations", "#sl      #iterations")
    text = text.replace(" 65536  ", " 65536    0  ")
    assert read(text).figures[0].gb_per_s == pytest.approx(49.0)


def test_each_run_of_a_log_is_a_figure_with_its_own_gpu() -> None:
    text = logs.perftest("mlx5_0", 392.0, gpu="1B:00") + logs.perftest("mlx5_1", 390.0)
    found = [(one.hca, one.kind, len(one.gpus)) for one in read(text).figures]
    assert found == [("mlx5_0", Kind.GPU_HCA, 1), ("mlx5_1", Kind.HCA, 0)]


def test_a_latency_is_no_bandwidth() -> None:
    text = logs.perftest("mlx5_0", 3.0, test="RDMA_Write Latency")
    log = read(text)
    assert (log.figures, log.others) == ((), ("RDMA_Write Latency",))


def test_a_run_without_a_result_and_its_error_are_problems() -> None:
    text = logs.perftest("mlx5_0", 392.0)
    cut = text[: text.index(" local address")] + " Couldn't connect to 10.0.0.2:18515\n"
    log = read(cut)
    assert log.figures == ()
    assert [problem.is_error for problem in log.problems] == [True, True]


def test_a_row_that_cannot_be_read_is_named() -> None:
    text = logs.perftest("mlx5_0", 392.0).replace("392.00", "x")
    log = read(text)
    assert "cannot be read" in " ".join(problem.text for problem in log.problems)
