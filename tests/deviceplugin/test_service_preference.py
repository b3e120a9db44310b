from hypothesis import given
from hypothesis import strategies as st

from nodetopo.deviceplugin.service import complete

IDS = st.lists(st.sampled_from("abcdefgh"), max_size=12)


def test_a_good_choice_stays_as_it_is() -> None:
    assert complete(["c", "a"], available=["a", "b", "c"], required=[], size=2) == ("c", "a")


def test_a_required_device_comes_before_a_chosen_one() -> None:
    assert complete(["a", "b"], available=["a", "b", "c"], required=["c"], size=2) == ("c", "a")


def test_a_choice_that_is_too_short_is_filled_in_the_order_offered() -> None:
    assert complete(["c"], available=["a", "b", "c"], required=[], size=3) == ("c", "a", "b")


@given(chosen=IDS, available=IDS, required=IDS, size=st.integers(-3, 15))
def test_the_answer_has_the_size_asked_or_all_there_are(
    chosen: list[str], available: list[str], required: list[str], size: int
) -> None:
    answer = complete(chosen, available=available, required=required, size=size)
    assert len(answer) == max(0, min(size, len(set(available))))
    assert len(set(answer)) == len(answer)
    assert set(answer) <= set(available)
