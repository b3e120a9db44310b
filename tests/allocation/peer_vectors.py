"""Requests that other allocators answer in their own tests, from ``vectors/*.yaml``.

A file names the peer, its repository, commit and file; a vector the numbers it has in our
list of 86, the peer's test, and its steps. A step is one request:

    free: the GPUs, or ``all``; without it, what the peer's answers to the steps before left
    required, size: as the kubelet sends them
    expected: the peer's answer; empty where it gives none
    any_of: in place of *expected*, where the source is content with several
    ours: only where our answer differs; then *why* gives the reason

A vector of no number repeats another one on a machine that is known better.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from msgspec import Struct

from tests.allocation.vector_machines import machine

Gpus = tuple[int, ...]
"""GPU indices, ascending."""

VECTORS = Path(__file__).parent / "vectors"
COUNTED_LEAVES = "shared.yaml"
"""Vectors of MIG instances and replicas: their devices are no GPUs, test_shared.py plays them."""


class Step(Struct, frozen=True, kw_only=True):
    """One request and its answers; *ours* is ``None`` where we answer as the peer does."""

    name: str
    machine: str
    free: Gpus
    required: Gpus
    size: int
    accepted: tuple[Gpus, ...]
    ours: Gpus | None
    why: str | None
    is_first: bool

    @property
    def peers(self) -> Gpus:
        """The peer's answer; the first that the source accepts."""
        return self.accepted[0]


class Vector(Struct, frozen=True, kw_only=True):
    """The requests of one test of a peer."""

    numbers: tuple[int, ...]
    peer: str
    test: str
    machine: str
    steps: tuple[Step, ...]

    @property
    def name(self) -> str:
        """Its numbers as one word, or what it repeats them on."""
        if not self.numbers:
            return f"{self.test}-{self.machine}"
        first, last = self.numbers[0], self.numbers[-1]
        return str(first) if first == last else f"{first}-{last}"


@cache
def vectors() -> tuple[Vector, ...]:
    """Return all vectors of whole GPUs, in the order of the files' names."""
    return tuple(
        _vector(plain, document["peer"])
        for path in sorted(VECTORS.glob("*.yaml"))
        if path.name != COUNTED_LEAVES
        for document in [yaml.safe_load(path.read_text("utf-8"))]
        for plain in document["vectors"]
    )


def _vector(plain: Mapping[str, Any], peer: str) -> Vector:
    numbers = tuple(plain["numbers"])
    bare = Vector(
        numbers=numbers,
        peer=peer,
        test=plain["test"],
        machine=plain["machine"],
        steps=(),
    )
    steps = tuple(_steps(plain["steps"], bare))
    return Vector(numbers=numbers, peer=peer, test=bare.test, machine=bare.machine, steps=steps)


def _steps(plain: Sequence[Mapping[str, Any]], of: Vector) -> Iterator[Step]:
    whole = tuple(range(len(machine(of.machine).gpus)))
    free: Gpus = ()
    for position, step in enumerate(plain):
        is_first = "free" in step
        if is_first:
            free = whole if step["free"] == "all" else tuple(step["free"])
        found = Step(
            name=f"{of.name}/{position}",
            machine=of.machine,
            free=free,
            required=tuple(step.get("required", ())),
            size=step["size"],
            accepted=tuple(map(tuple, step.get("any_of") or [step["expected"]])),
            ours=tuple(step["ours"]) if "ours" in step else None,
            why=step.get("why"),
            is_first=is_first,
        )
        yield found
        free = tuple(gpu for gpu in free if gpu not in found.peers)


def deviations() -> tuple[tuple[Vector, Step], ...]:
    """Return every request to which our answer is another, with the vector it belongs to."""
    return tuple((one, step) for one in vectors() for step in one.steps if step.ours is not None)


def counted(path: Path) -> list[int]:
    """Return the numbers of the vectors in *path*, a file of any of our helpers' shapes."""
    document = yaml.safe_load(path.read_text("utf-8"))
    entries = document["vectors"] if isinstance(document, Mapping) else document
    return [number for entry in entries for number in entry["numbers"]]
