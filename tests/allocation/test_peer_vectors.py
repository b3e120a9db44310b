"""What NVIDIA's go-gpuallocator 0.6.0 answers on a DGX-1V in its own tests, and what we do.

Its besteffort_test.go, vectors 1-11 and 20-41 of our list. A vector is a sequence of
requests, each with what the ones before it left. Where we answer otherwise *why* says so.
"""

from dataclasses import dataclass

import pytest

from agent.allocation.policy import allocate
from agent.errors import InputError
from agent.machines.bundled import machine

ALL = (0, 1, 2, 3, 4, 5, 6, 7)


@dataclass(frozen=True, slots=True, kw_only=True)
class Vector:
    """*expected* is ours; *why* is given where the peer's differs."""

    number: str
    free: tuple[int, ...]
    size: int
    expected: tuple[tuple[int, ...], ...]
    required: tuple[int, ...] = ()
    why: str = ""


VECTORS = (
    Vector(
        number="1",
        free=(0, 2, 4, 5),
        size=2,
        expected=((0, 4),),
        why="the peer takes 4 and 5 with 25 GB/s, this pair has 50",
    ),
    Vector(number="2", free=(0, 4, 5, 6), size=2, expected=((5, 6),)),
    Vector(number="3", free=(0, 1, 3), size=2, expected=((0, 3),)),
    Vector(number="4", free=(0, 1, 4), size=2, expected=((0, 4),)),
    Vector(number="5", free=ALL, required=(4,), size=1, expected=((4,),)),
    Vector(number="6", free=ALL, required=(4,), size=2, expected=((4, 7),)),
    Vector(number="7", free=ALL, required=(4,), size=4, expected=((4, 5, 6, 7),)),
    Vector(number="8", free=ALL, required=(0, 2, 4, 6), size=4, expected=((0, 2, 4, 6),)),
    Vector(number="24-27", free=ALL, size=1, expected=tuple((gpu,) for gpu in ALL)),
    Vector(number="32-35", free=ALL, size=2, expected=((0, 3), (1, 2), (4, 7), (5, 6))),
    Vector(number="38-39", free=ALL, size=4, expected=((0, 1, 2, 3), (4, 5, 6, 7))),
    Vector(number="41", free=ALL, size=8, expected=(ALL,)),
)


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector.number)
def test_the_peers_requests_get_our_answers(vector: Vector) -> None:
    snapshot = machine("dgx-1v")
    free, answers = set(vector.free), []
    for _ in vector.expected:
        answer = allocate(
            snapshot,
            available=[snapshot.gpus[i].id for i in free],
            required=[snapshot.gpus[i].id for i in vector.required],
            size=vector.size,
        )
        answers.append(answer.indices)
        free -= set(answer.indices)
    assert tuple(answers) == vector.expected


@pytest.mark.parametrize(
    ("free", "required", "size"),
    [
        ((1, 2, 3, 4, 5, 6, 7), (0, 1, 2, 3), 4),
        (ALL, (0, 1, 2, 3, 4, 5), 4),
        ((1, 2, 3, 4, 5), (0, 1, 2, 3, 4, 5), 1),
    ],
)
def test_what_the_peer_answers_with_nothing_is_refused(
    free: tuple[int, ...],
    required: tuple[int, ...],
    size: int,
) -> None:
    snapshot = machine("dgx-1v")
    with pytest.raises(InputError):
        allocate(
            snapshot,
            available=[snapshot.gpus[i].id for i in free],
            required=[snapshot.gpus[i].id for i in required],
            size=size,
        )
