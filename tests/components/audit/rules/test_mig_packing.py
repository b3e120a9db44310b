"""What fits on a divided GPU, against every placement tried one by one."""

from itertools import combinations

import pytest

from nodetopo.components.audit.rules.mig_packing import (
    Counts,
    Geometry,
    Profile,
    fullest,
    impossible,
    profile,
    together,
)

H100 = Geometry("NVIDIA H100 80GB HBM3", 8, 81559 / 1024)
A30 = Geometry("NVIDIA A30", 4, 24.0)
NAMES = ("1g.10gb", "1g.10gb.me", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb")
CHOICES = [names for size in (1, 2, 3) for names in combinations(NAMES, size)]


def _found(names: tuple[str, ...]) -> list[Profile]:
    found = [profile(name, H100) for name in names]
    return [one for one in found if one is not None]


def _tried(profiles: list[Profile]) -> set[Counts]:
    """Place instances anywhere in any order until nothing fits."""
    seen: set[tuple[int, Counts]] = set()
    left = [(0, (0,) * len(profiles))]
    while left:
        state = left.pop()
        if state in seen:
            continue
        seen.add(state)
        used, counts = state
        for position, one in enumerate(profiles):
            if one.most is not None and counts[position] >= one.most:
                continue
            for start in one.shape.starts:
                place = ((1 << one.shape.slices) - 1) << start
                if not used & place:
                    more = (*counts[:position], counts[position] + 1, *counts[position + 1 :])
                    left.append((used | place, more))
    every = {counts for _, counts in seen}
    return {one for one in every if not any(_exceeds(other, one) for other in every)}


def _exceeds(more: Counts, less: Counts) -> bool:
    return more != less and all(a >= b for a, b in zip(more, less, strict=True))


@pytest.mark.parametrize("names", CHOICES, ids="+".join)
def test_the_full_gpus_are_those_that_trying_every_place_finds(names: tuple[str, ...]) -> None:
    profiles = _found(names)
    assert len(profiles) == len(names)
    assert fullest(profiles, H100) == _tried(profiles)


@pytest.mark.parametrize(
    ("gpus", "wanted", "fits"),
    [
        (1, {"1g.10gb": 7}, True),
        (1, {"1g.10gb": 8}, False),
        (2, {"1g.10gb": 8}, True),
        (1, {"3g.40gb": 1, "2g.20gb": 1, "1g.10gb": 2}, True),
        (1, {"4g.40gb": 1, "3g.40gb": 1}, True),
        (1, {"4g.40gb": 1, "2g.20gb": 2}, False),
        (2, {"4g.40gb": 1, "2g.20gb": 2}, True),
        (8, {"7g.80gb": 9}, False),
        (1, {"1g.10gb.me": 2}, False),
        (1, {"1g.5gb": 1}, False),
        (1, {}, True),
    ],
)
def test_gpus_hold_devices_together(gpus: int, wanted: dict[str, int], fits: bool) -> None:
    assert together([H100] * gpus, wanted) is fits


def test_gpus_of_two_kinds_share_what_is_asked() -> None:
    assert together([H100, A30], {"1g.10gb": 7, "1g.6gb": 4}) is True
    assert together([H100, A30], {"1g.10gb": 7, "1g.6gb": 5}) is False


def test_nothing_is_said_of_a_demand_that_takes_too_long_to_judge() -> None:
    many = {"1g.10gb": 20, "1g.20gb": 19, "2g.20gb": 18, "3g.40gb": 7}
    assert together([H100] * 16, many) is None
    five = dict.fromkeys(NAMES[:5], 1)
    assert together([H100] * 8, five) is None


def test_an_absurd_number_is_refused_by_its_sum() -> None:
    assert together([H100] * 8, {"1g.10gb": 10**18, "2g.20gb": 10**18}) is False


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        (
            {"2g.20gb": 7},
            (
                "at most 6 of 2g.20gb on 2 GPUs: 3 on each, as one takes 2 of 8 memory slices, "
                "from 0, 2, 4 on"
            ),
        ),
        (
            {"1g.10gb.me": 3},
            (
                "at most 2 of 1g.10gb.me on 2 GPUs: 1 on each, as one takes 1 of 8 memory slices, "
                "from 0, 1, 2, 3, 4, 5, 6 on, and the GPU's only media engines"
            ),
        ),
        (
            {"3g.40gb": 3, "2g.20gb": 3},
            "what 2 GPUs can hold together: this is 3 * 4 + 3 * 2 = 18 of 16 memory slices",
        ),
        (
            {"4g.40gb": 2, "2g.20gb": 3},
            (
                "what 2 GPUs can hold together: this is 14 of 16 memory slices, but 4g.40gb begins "
                "at slice 0; 2g.20gb begins at slice 0, 2, 4"
            ),
        ),
        (
            {"1g.5gb": 1},
            "profiles of NVIDIA H100 80GB HBM3, of which 1g.5gb is none",
        ),
        ({"1g.10gb": 14}, None),
    ],
)
def test_the_reason_shows_the_sum(wanted: dict[str, int], reason: str | None) -> None:
    assert impossible([H100, H100], wanted) == reason


def test_gpus_that_cannot_be_divided_are_the_reason_themselves() -> None:
    assert impossible([], {"1g.10gb": 1}) == "GPUs that can be divided"
