"""One policy on one schedule, worked out by hand."""

import pytest
from msgspec.structs import asdict

from nodetopo.machines.bundled import machine
from tests.bench.traces.jobs import Job, schedule
from tests.bench.traces.replay import replay
from tests.bench.traces.yardstick import Yardstick

YARDSTICK = Yardstick(machine("dgx-1v"))


class Scripted:
    """Hands out the sets it was given, in turn."""

    crashes = 3

    def __init__(self, *sets: tuple[int, ...]) -> None:
        self._sets = [sum(1 << gpu for gpu in one) for one in sets]

    def place(self, free: int, size: int) -> int:
        """Return the next set."""
        assert free.bit_count() >= size
        return self._sets.pop(0)


def test_the_figures_of_three_jobs() -> None:
    jobs = [
        Job(0, 10, 2),  # 0 1: 25 of the best 50 GB/s
        Job(0, 10, 1),  # alone: not measured
        # 2 7: no link, 7 GB/s. Then 3 4 6 are free, and their best pair is half of the best.
        Job(0, 10, 2),
        Job(20, 10, 8),  # the whole machine: not measured
    ]
    steps = schedule(jobs, YARDSTICK.gpus)
    found = replay(steps, Scripted((0, 1), (5,), (2, 7), tuple(range(8))), YARDSTICK)
    assert asdict(found) == {
        "decisions": 4,
        "measured": 2,
        "mean_gb_s": pytest.approx((25 + 7) / 2),
        "harmonic_gb_s": pytest.approx(2 / (1 / 25 + 1 / 7)),
        "mean_of_best": pytest.approx((0.5 + 0.14) / 2),
        "harmonic_of_best": pytest.approx(2 / (2 + 50 / 7)),
        "offline_of_best": pytest.approx(1.0),
        "reached": pytest.approx((0.5 + 0.14) / 2),
        "numa_split": 0.5,
        "nvlink_split": 0.5,
        "rejected": 0.0,
        "fragmentation": pytest.approx((10 * 0.5 + 10 * 0) / 20),
        "crashes": 3,
    }


def test_a_job_for_which_no_node_has_room_counts_as_rejected() -> None:
    steps = schedule([Job(0, 9, 2), Job(0, 9, 2), Job(1, 9, 4)], YARDSTICK.gpus)
    found = replay(steps, Scripted((0, 1), (4, 5), (2, 3, 6, 7)), YARDSTICK)
    assert found.rejected == pytest.approx(1 / 3)


def test_a_job_that_fits_no_node_is_not_among_the_rejected() -> None:
    found = replay(schedule([Job(0, 9, 6)], 8), Scripted((0, 1, 2, 3, 4, 5)), YARDSTICK)
    assert (found.measured, found.rejected) == (1, None)


def test_figures_of_no_job_are_not_known() -> None:
    found = replay(schedule([Job(0, 9, 1)], 8), Scripted((0,)), YARDSTICK)
    assert (found.measured, found.mean_gb_s, found.reached, found.numa_split) == (0, *[None] * 3)


@pytest.mark.parametrize("second", [(0, 1), (2,), (2, 3, 4), (2, 9)])
def test_a_set_that_is_not_free_or_not_of_the_size_is_an_error(second: tuple[int, ...]) -> None:
    steps = schedule([Job(0, 9, 2), Job(1, 9, 2)], 8)
    with pytest.raises(ValueError, match="chose"):
        replay(steps, Scripted((0, 1), second), YARDSTICK)
