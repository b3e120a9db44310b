"""Degraded devices are chosen last, and no more of them than must be."""

from hypothesis import given
from hypothesis import strategies as st

from nodetopo.allocation.requests import sound_first

IDS = [f"GPU-{number}" for number in range(8)]


@st.composite
def _requests(draw: st.DrawFn) -> tuple[list[str], list[str], int, set[str]]:
    available = draw(st.lists(st.sampled_from(IDS), min_size=1, unique=True))
    required = draw(st.lists(st.sampled_from(available), unique=True))
    size = draw(st.integers(len(required), len(available)))
    return available, required, size, draw(st.sets(st.sampled_from(IDS)))


@given(_requests())
def test_any_answer_to_the_narrowed_request_has_the_fewest_degraded_devices(
    request: tuple[list[str], list[str], int, set[str]],
) -> None:
    available, required, size, degraded = request
    pool, kept = sound_first(available, required, size, degraded)

    assert set(required) <= set(kept) <= set(pool) <= set(available)
    assert len(kept) <= size <= len(pool)
    free = [name for name in available if name not in degraded and name not in required]
    unavoidable = max(0, size - len(required) - len(free))
    choice = [*kept, *(name for name in pool if name not in kept)][:size]  # any would do
    worst = [*kept, *sorted(set(pool) - set(kept), key=lambda name: name not in degraded)][:size]
    for chosen in (choice, worst):
        assert len((set(chosen) - set(required)) & degraded) == unavoidable


def test_without_degraded_devices_a_request_stays_as_it_is() -> None:
    available, required = ["b", "a", "a"], ["a"]
    assert sound_first(available, required, 2, ()) == (available, required)


def test_an_id_that_is_listed_twice_counts_once() -> None:
    assert sound_first(["a", "a", "b"], [], 2, {"b"}) == (["a", "a", "b"], ("a",))
