"""What other allocators answer in their own tests, and what we do: see peer_vectors.py."""

from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

import pytest

from nodetopo.allocation.best_effort import BestEffort
from nodetopo.errors import InputError
from scripts.generators.placement import allocator, bandwidth
from tests.allocation.peer_vectors import VECTORS, Gpus, Step, Vector, counted, deviations, vectors
from tests.allocation.vector_machines import machine

KUBELET = Path(__file__).parents[1] / "deviceplugin" / "call_shapes.yaml"
"""Vectors 49 to 53: not answers of an allocator but what the kubelet asks one."""

STEPS = [step for vector in vectors() for step in vector.steps]


def answer(name: str, free: Iterable[int], required: Iterable[int], size: int) -> Gpus:
    ids = [gpu.id for gpu in machine(name).gpus]
    return (
        allocator(name)
        .allocate(available=[ids[i] for i in free], required=[ids[i] for i in required], size=size)
        .indices
    )


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name)
def test_a_peers_request_gets_the_answer_on_file(step: Step) -> None:
    wanted = (step.ours,) if step.ours is not None else step.accepted
    if wanted == ((),):
        with pytest.raises(InputError):
            answer(step.machine, step.free, step.required, step.size)
    else:
        assert answer(step.machine, step.free, step.required, step.size) in wanted


@pytest.mark.parametrize("step", [step for _, step in deviations()], ids=lambda step: step.name)
def test_a_deviation_has_a_reason_and_no_less_bandwidth(step: Step) -> None:
    assert step.ours is not None
    assert step.ours not in step.accepted
    assert step.why
    assert bandwidth(step.machine, step.ours) >= bandwidth(step.machine, step.peers)


def test_only_a_deviation_gives_a_reason() -> None:
    assert [step.name for step in STEPS if step.why and step.ours is None] == []


NVIDIAS = [
    step
    for vector in vectors()
    if vector.peer == "NVIDIA go-gpuallocator, best-effort"
    for step in vector.steps
]


@pytest.mark.parametrize("step", NVIDIAS, ids=lambda step: step.name)
def test_our_imitation_of_nvidias_policy_gives_nvidias_answer(step: Step) -> None:
    ids = [gpu.id for gpu in machine(step.machine).gpus]
    chosen = BestEffort(machine(step.machine)).allocate(
        [ids[i] for i in step.free],
        [ids[i] for i in step.required],
        step.size,
    )
    assert {*chosen} == {ids[i] for i in step.peers}


def runs() -> Iterator[tuple[Step, ...]]:
    """Yield requests that follow on each other, each served from what the last one left."""
    for vector in vectors():
        starts = [n for n, step in enumerate(vector.steps) if step.is_first]
        for start, end in zip(starts, [*starts[1:], len(vector.steps)], strict=True):
            run = tuple(step for step in vector.steps[start:end] if step.peers)
            if len(run) > 1:
                yield run


@pytest.mark.parametrize("run", list(runs()), ids=lambda run: run[0].name)
def test_a_sequence_of_our_own_answers_adds_up_to_no_less_bandwidth(run: tuple[Step, ...]) -> None:
    free, ours = set(run[0].free), 0.0
    for step in run:
        chosen = answer(step.machine, free, (), step.size)
        free -= set(chosen)
        ours += bandwidth(step.machine, chosen)
    assert ours >= sum(bandwidth(step.machine, step.peers) for step in run)


def test_each_of_the_86_vectors_is_on_file_once() -> None:
    files = [*sorted(VECTORS.glob("*.yaml")), KUBELET]
    assert sorted(chain.from_iterable(map(counted, files))) == list(range(1, 87))


def short(vector: Vector) -> str:
    return f"{vector.name} on {vector.machine}"


def test_these_vectors_and_no_others_deviate() -> None:
    assert list(dict.fromkeys(short(vector) for vector, _ in deviations())) == [
        "1 on dgx-1v",
        "12-16 on rtx8000-x4",
        "20-23 on dgx-1p",
        "TestBestEffortDGX1PascalGPUAllocTwo-dgx-1p-hcas on dgx-1p-hcas",
        "42 on dgx-1v",
        "43 on dgx-1v",
        "44 on dgx-1v",
        "45 on dgx-1p",
        "46 on dgx-1v",
        "48 on dgx-2",
        "66 on tkestack-x6",
    ]
