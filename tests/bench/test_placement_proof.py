"""A part of the proof of placement: a few requests to every kind of machine; more by night."""

from tests.bench.placement_proof import VARIANTS, wrong
from tests.budget import cases

REQUESTS = cases(2_000, 20_000)


def test_every_answer_is_the_best_set_by_definition() -> None:
    found = list(wrong(seed=3, requests=REQUESTS, each=20))
    assert [one for _, _, differing in found for one in differing] == []
    assert sum(number for _, number, _ in found) == REQUESTS
    assert {where.split(", ", 1)[1].rsplit(", ", 2)[0] for where, _, _ in found} == {*VARIANTS}
