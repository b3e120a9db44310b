"""Which form the release, the settings and the server's answers lead to."""

import pytest

from nodetopo.components.dra.form import Form, form

NOTHING: frozenset[str] = frozenset()


@pytest.mark.parametrize(
    ("release", "wanted", "dropped", "expected"),
    [
        ((1, 37), "auto", NOTHING, (True, True)),
        ((1, 36), "auto", NOTHING, (False, True)),
        ((1, 36), "sets", NOTHING, (True, True)),
        ((1, 37), "gpus", NOTHING, (False, True)),
        (None, "auto", NOTHING, (False, True)),
        (None, "sets", NOTHING, (True, True)),
        ((1, 37), "auto", frozenset(["lists"]), (True, True)),
        ((1, 37), "auto", frozenset(["sharedCounters"]), (False, True)),
        ((1, 35), "sets", frozenset(["consumesCounters"]), (False, True)),
        ((1, 37), "sets", frozenset(["taints"]), (False, False)),
    ],
)
def test_sets_and_taints_follow_the_cluster(
    release: tuple[int, int] | None,
    wanted: str,
    dropped: frozenset[str],
    expected: tuple[bool, bool],
) -> None:
    found = form(release, wanted, (), dropped)
    assert (found.has_sets, found.has_taints) == expected


@pytest.mark.parametrize(
    ("release", "dropped", "expected"),
    [
        ((1, 37), NOTHING, True),
        ((1, 35), NOTHING, False),
        (None, NOTHING, False),
        ((1, 37), frozenset(["lists"]), False),
    ],
)
def test_lists_need_a_release_that_keeps_them(
    release: tuple[int, int] | None, dropped: frozenset[str], expected: bool
) -> None:
    assert form(release, "auto", (), dropped).has_lists is expected


def test_the_sizes_that_are_asked_for_are_kept() -> None:
    assert form((1, 37), "auto", (2, 8), NOTHING) == Form(has_lists=True, sizes=(2, 8))
