"""The imitation of NVIDIA's policy against the library itself: answers, order and crashes."""

from collections.abc import Iterator, Sequence
from itertools import combinations
from random import Random

import pytest

from nodetopo.allocation.best_effort import BestEffort, PeerPanics
from nodetopo.model.snapshot import Snapshot
from tests.bench.machines import bench_machine, half_down
from tests.bench.peer import Answer, Peer, Request
from tests.budget import cases

EIGHT = ("dgx-1v", "dgx-1p", "bridged-4numa", "issue-546", "dgx-a100", "hgx-h100")
Outcome = tuple[int | None, ...] | str


def states(count: int) -> Iterator[Request]:
    """Every free set and size."""
    for free_count in range(1, count + 1):
        for free in combinations(range(count), free_count):
            for size in range(1, free_count + 1):
                yield Request(free, size)


def drawn(count: int, number: int, random: Random) -> Iterator[Request]:
    """Requests with shuffled lists, a third of them with required GPUs."""
    for _ in range(number):
        free = random.sample(range(count), random.randint(1, count))
        size = random.randint(1, len(free))
        some = random.randint(0, size) if random.random() < 1 / 3 else 0
        yield Request(tuple(free), size, tuple(random.sample(free, some)))


def imitated(snapshot: Snapshot, requests: Sequence[Request]) -> list[Outcome]:
    policy = BestEffort(snapshot)
    return [_imitated(policy, request) for request in requests]


def _imitated(policy: BestEffort, request: Request) -> Outcome:
    try:
        return policy.choose(request.free, request.required, request.size)
    except PeerPanics:
        return "panic"


def _real(answer: Answer) -> Outcome:
    return answer.chosen if answer.panic is None else "panic"


def differences(snapshot: Snapshot, requests: Sequence[Request]) -> list[object]:
    with Peer(snapshot) as peer:
        real = [_real(answer) for answer in peer.ask_all(requests)]
    ours = imitated(snapshot, requests)
    triples = zip(requests, real, ours, strict=True)
    return [(request, theirs, own) for request, theirs, own in triples if theirs != own]


@pytest.mark.parametrize("name", EIGHT)
def test_it_answers_as_the_library_in_every_state_of_a_machine_of_eight(name: str) -> None:
    snapshot = bench_machine(name)
    requests = list(states(len(snapshot.gpus)))
    assert len(requests) == 1024
    requests = Random(name).sample(requests, cases(120, 1024))
    assert differences(snapshot, requests) == []


@pytest.mark.parametrize("name", EIGHT)
def test_it_answers_as_the_library_to_lists_in_any_order_and_required_gpus(name: str) -> None:
    requests = list(drawn(8, cases(100, 600), Random(name)))
    assert differences(bench_machine(name), requests) == []


def test_it_answers_as_the_library_on_ten_gpus() -> None:
    requests = list(drawn(10, cases(100, 400), Random(10)))
    assert differences(bench_machine("pcie-10"), requests) == []


def test_it_answers_as_the_library_on_twelve_of_sixteen_gpus() -> None:
    random = Random(12)
    requests = [Request(tuple(random.sample(range(16), 12)), size) for size in range(1, 13)]
    assert differences(bench_machine("dgx-2"), requests) == []


@pytest.mark.parametrize(("gpu", "links"), [(0, 12), (2, 6), (5, 12), (7, 1)])
def test_it_panics_and_counts_as_the_library_where_links_are_half_down(
    gpu: int, links: int
) -> None:
    snapshot = half_down(bench_machine("issue-546"), gpu, links)
    requests = list(drawn(8, cases(100, 300), Random(links)))
    assert differences(snapshot, requests) == []
    panics = imitated(snapshot, requests).count("panic")
    assert bool(panics) == (links == 12)


def test_the_library_hands_out_padding_on_two_of_the_machines() -> None:
    requests = list(states(8))
    padded = {
        name: sum(None in answer for answer in imitated(bench_machine(name), requests))
        for name in EIGHT
    }
    assert padded == dict.fromkeys(EIGHT, 0) | {"issue-546": 16, "dgx-a100": 16}
