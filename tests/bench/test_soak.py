"""A short soak: what the daemon holds is counted, never timed."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.bench.soak import HEADER, LINES, Held, line, slopes, soak

CYCLES = 3_000

MOST_BLOCKS = 0.5
"""Of memory, for each cycle of the second half. Names that are remembered up to a limit take 0.02,
and what differs from time to time 0.1."""

MOST_MORE = 2
"""Threads and descriptors that gRPC and a scrape may just be using."""


def held(folder: Path, leak: list[bytes] | None = None) -> Sequence[Held]:
    """Return what is held in the course of a short soak, in which every step leaks an object."""
    with soak(folder) as it:
        if leak is not None:
            step = it.step

            def leaking(name: str) -> float | None:
                leak.append(bytes(40 + len(leak) % 7))
                return step(name)

            it.step = leaking  # type: ignore[method-assign]
        rows = list(it.run(CYCLES))
        assert set(it.events_of) == set(it._loops)
    return rows


def blocks_per_cycle(rows: Sequence[Held]) -> float:
    half = rows[len(rows) // 2 :]
    return (half[-1].blocks - half[0].blocks) / (half[-1].cycles - half[0].cycles)


@pytest.mark.timeout(300)
def test_nothing_adds_up(tmp_path: Path) -> None:
    rows = held(tmp_path)
    assert [row.cycles for row in rows] == [CYCLES // LINES * n for n in range(LINES + 1)]
    assert blocks_per_cycle(rows) < MOST_BLOCKS
    half = rows[len(rows) // 2 :]
    for name in ("threads", "descriptors"):
        counts = [getattr(row, name) for row in half]
        assert max(counts) - min(counts) <= MOST_MORE, (name, counts)
    assert all(len(line(row)) == 13 * len(HEADER) for row in rows)


@pytest.mark.timeout(300)
def test_an_object_that_every_step_leaves_behind_shows(tmp_path: Path) -> None:
    leak: list[bytes] = []
    assert blocks_per_cycle(held(tmp_path, leak)) > MOST_BLOCKS
    assert len(leak) > CYCLES


def test_the_slope_is_that_of_the_second_half() -> None:
    def row(cycles: int, blocks: int) -> Held:
        return Held(
            cycles=cycles, blocks=blocks, resident_kib=9, child_kib=9, threads=3, descriptors=4
        )

    rows = [row(0, 0), row(100_000, 900), row(200_000, 1000), row(300_000, 1100)]
    found = slopes(rows)
    assert found["blocks"] == pytest.approx(1000)
    assert found["threads"] == 0
