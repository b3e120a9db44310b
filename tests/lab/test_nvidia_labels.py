"""GPU Feature Discovery and ours label the same machine alike, but for what is written down."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.lab.nvidia.gfd import Bench, Labels
from tests.lab.nvidia.gfd_cases import CASES
from tests.lab.nvidia.gfd_deviations import (
    DEVIATIONS,
    FLAPPINGS,
    OURS_ALONE,
    SILENCES,
    TIMESTAMP,
)

pytestmark = [pytest.mark.lab, pytest.mark.usefixtures("namespaces")]

_SOUND = "h100x8-nvswitch-2numa-8cx7"
_MOST_RUNS = 256
"""Go begins to walk a small map at one of eight places, so that of two values one is drawn once in
eight times. It stays out so often once in 10¹⁴ times."""

Differences = Mapping[str, tuple[str | None, str | None]]
Benches = Callable[[str], Bench]


@pytest.fixture
def bench(tmp_path: Path) -> Benches:
    """Return a function from a case to its machine."""
    return lambda name: Bench(tmp_path / name, CASES[name])


@pytest.mark.parametrize("name", [name for name in CASES if name not in SILENCES])
def test_each_label_is_the_same_but_for_the_written_deviations(name: str, bench: Benches) -> None:
    at = bench(name)
    flapping = {one.key for one in FLAPPINGS if one.case == name}
    found = _differences(at.gfd("--no-timestamp"), at.ours())
    assert {key: pair for key, pair in found.items() if key not in flapping} == _written(name)


@pytest.mark.parametrize("name", SILENCES)
def test_where_gfd_says_nothing_we_say_what_is_known(name: str, bench: Benches) -> None:
    at, sound = bench(name), bench(_SOUND)
    assert at.gfd() is None
    found = _differences(sound.ours(), at.ours())
    assert {key: ours for key, (_, ours) in found.items()} == SILENCES[name].ours


@pytest.mark.parametrize("name", sorted({one.case for one in FLAPPINGS}))
def test_what_gfd_draws_by_lot_is_always_the_same_with_us(name: str, bench: Benches) -> None:
    at = bench(name)
    written = {one.key: one for one in FLAPPINGS if one.case == name}
    assert _drawn(at, {key: one.gfd for key, one in written.items()}) == {
        key: one.gfd for key, one in written.items()
    }
    ours = [at.ours() for _ in range(2)]
    assert [{key: one[key] for key in written} for one in ours] == [
        {key: one.ours for key, one in written.items()}
    ] * 2


def test_only_the_timestamp_of_gfd_is_missing_and_only_our_own_labels_are_added(
    bench: Benches,
) -> None:
    at = bench(_SOUND)
    gfd, ours = at.gfd() or {}, at.ours()
    assert (gfd.keys() - ours.keys(), ours.keys() - gfd.keys()) == ({TIMESTAMP}, set(OURS_ALONE))


def test_a_deviation_is_written_of_a_case_that_there_is() -> None:
    deviating = {one.case for one in DEVIATIONS} | {one.case for one in FLAPPINGS}
    assert (deviating | SILENCES.keys()) - CASES.keys() == set()


def _differences(theirs: Labels | None, ours: Labels) -> Differences:
    """Return what differs, but for the labels that are ours alone."""
    assert theirs is not None, "GFD ended with an error"
    keys = (theirs.keys() | ours.keys()) - OURS_ALONE
    pairs = {key: (theirs.get(key), ours.get(key)) for key in sorted(keys)}
    return {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}


def _written(name: str) -> Differences:
    return {one.key: (one.gfd, one.ours) for one in DEVIATIONS if one.case == name}


def _drawn(at: Bench, wanted: Mapping[str, frozenset[str]]) -> Mapping[str, frozenset[str]]:
    """Return the values that GFD gives the keys of *wanted*, run until they are all seen."""
    seen: dict[str, frozenset[str]] = {key: frozenset() for key in wanted}
    for _ in range(_MOST_RUNS):
        found = at.gfd() or {}
        seen = {key: values | {found[key]} for key, values in seen.items()}
        if seen == wanted:
            break
    return seen
