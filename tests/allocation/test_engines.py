from collections.abc import Iterator
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from nodetopo.allocation.allocator import Allocator
from nodetopo.allocation.rules import Policy, terms_for
from nodetopo.machines.bundled import machine
from nodetopo.model.nvlink import ReportedPair
from nodetopo.model.snapshot import Snapshot
from tests.allocation.brute_force import BruteForce
from tests.budget import cases
from tests.strategies import machines, node, requests

Request = tuple[tuple[int, ...], tuple[int, ...], int]


def all_requests(count: int) -> Iterator[Request]:
    """Every free set and size, without required GPUs and with one or two of them."""
    for free_count in range(1, count + 1):
        for free in combinations(range(count), free_count):
            for size in range(1, free_count + 1):
                yield free, (), size
                picked = (free[(size * 3) % free_count],)
                yield free, picked, size
                if size > 1:
                    yield free, tuple(sorted({free[0], free[-1]})), size


@pytest.mark.parametrize("name", ["dgx-h100", "dgx-1v", "l40s-pcie-4"])
def test_the_answer_is_the_best_set_for_every_request_to_a_bundled_machine(name: str) -> None:
    snapshot = machine(name)
    allocator, truth = Allocator(snapshot), BruteForce(snapshot)
    wrong = []
    for free, required, size in all_requests(len(snapshot.gpus)):
        answer = allocator.allocate(
            available=[snapshot.gpus[i].id for i in free],
            required=[snapshot.gpus[i].id for i in required],
            size=size,
        )
        found = [answer.indices, *(other.indices for other in answer.alternatives)]
        if found != truth.first(truth.mask(free), truth.mask(required), size, 4):
            wrong.append((free, required, size))
    assert wrong == []


@settings(max_examples=cases(60, 150), deadline=None)
@given(data=st.data())
def test_the_answer_is_the_best_set_on_any_small_machine(data: st.DataObject) -> None:
    snapshot = data.draw(machines(max_gpus=6))
    available, required, size = data.draw(requests(snapshot))
    answer = Allocator(snapshot).allocate(available=available, required=required, size=size)
    index = {gpu.id: gpu.index for gpu in snapshot.gpus}
    truth = BruteForce(snapshot)
    free, kept = (truth.mask(index[i] for i in ids) for ids in (available, required))
    found = [answer.indices, *(other.indices for other in answer.alternatives)]
    assert found == truth.first(free, kept, size, 4)


@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_the_answer_is_the_best_set_on_any_machine_of_up_to_eight(data: st.DataObject) -> None:
    snapshot = data.draw(machines(max_gpus=8).filter(lambda s: len(s.gpus) > 6))
    available, required, size = data.draw(requests(snapshot))
    answer = Allocator(snapshot).allocate(available=available, required=required, size=size)
    index = {gpu.id: gpu.index for gpu in snapshot.gpus}
    best = BruteForce(snapshot).answer(
        [index[i] for i in available], [index[i] for i in required], size
    )
    assert answer.indices == best


@given(data=st.data())
@settings(max_examples=50, deadline=None)
def test_the_order_of_the_request_does_not_matter(data: st.DataObject) -> None:
    snapshot = data.draw(machines(max_gpus=7))
    available, required, size = data.draw(requests(snapshot))
    allocator = Allocator(snapshot)
    shuffled = allocator.allocate(
        available=data.draw(st.permutations(available)),
        required=data.draw(st.permutations(required)),
        size=size,
    )
    straight = Allocator(snapshot).allocate(
        available=sorted(available), required=sorted(required), size=size
    )
    assert shuffled == straight


def renumbered(snapshot: Snapshot, number: list[int]) -> Snapshot:
    """The same machine with GPU i called ``number[i]``."""
    gpus = [replace(gpu, index=number[gpu.index]) for gpu in snapshot.gpus]
    links = [replace(link, gpu=number[link.gpu]) for link in snapshot.nvlinks or ()]

    def name(row: str) -> str:
        return f"GPU{number[int(row[3:])]}" if row.startswith("GPU") else row

    return replace(
        snapshot,
        gpus=tuple(sorted(gpus, key=lambda gpu: gpu.index)),
        nvlinks=tuple(sorted(links, key=lambda link: (link.gpu, link.link))),
        pairs=tuple(
            ReportedPair(a=name(pair.a), b=name(pair.b), closeness=pair.closeness)
            for pair in snapshot.pairs
        ),
    )


@given(data=st.data())
@settings(max_examples=50, deadline=None)
def test_the_score_does_not_depend_on_how_gpus_are_numbered(data: st.DataObject) -> None:
    snapshot = data.draw(machines(max_gpus=7))
    available, required, size = data.draw(requests(snapshot))
    number = data.draw(st.permutations(range(len(snapshot.gpus))))
    one = Allocator(snapshot).allocate(available=available, required=required, size=size)
    other = Allocator(renumbered(snapshot, number)).allocate(
        available=available, required=required, size=size
    )
    # Index pairs are about numbers, and so is what is decided after them; the rest is not.
    terms = terms_for(Policy.BEST, size)
    terms = terms[: terms.index("broken_partitions")]
    assert one.score.lost_at(other.score, terms) is None


def test_sixteen_switched_gpus_are_placed_on_one_numa_node_and_proven() -> None:
    snapshot = node(numa=[0] * 8 + [1] * 8, switch_links=6, sockets={0: 0, 1: 1}, nvlink_version=2)
    ids = [gpu.id for gpu in snapshot.gpus]
    answer = Allocator(snapshot).allocate(available=ids, required=[ids[9]], size=6)
    assert (answer.indices, answer.score.numa_nodes, answer.is_optimal) == (
        (8, 9, 10, 11, 12, 13),
        1,
        True,
    )


def test_twenty_gpus_on_pcie_are_placed_on_one_numa_node_and_proven() -> None:
    snapshot = node(numa=[0] * 10 + [1] * 10)
    ids = [gpu.id for gpu in snapshot.gpus]
    answer = Allocator(snapshot).allocate(available=ids[3:], size=8)
    assert (answer.indices, answer.is_optimal) == (tuple(range(10, 18)), True)


def test_on_a_large_irregular_machine_the_answer_does_not_claim_to_be_proven() -> None:
    bridges = {(0, 10): 4, (9, 19): 4, (10, 11): 4}
    snapshot = node(numa=[0] * 10 + [1] * 10, links=bridges)
    ids = [gpu.id for gpu in snapshot.gpus]
    answer = Allocator(snapshot).allocate(available=ids, size=2)
    assert (answer.score.bandwidth_gb_s, answer.is_optimal) == (100.0, False)


def test_on_a_large_irregular_machine_no_alternative_is_better_than_the_answer() -> None:
    mesh = dict.fromkeys(combinations(range(4), 2), 2) | {(4, 9): 2, (9, 14): 2, (14, 19): 2}
    snapshot = node(numa=[0] * 10 + [1] * 10, links=mesh)
    ids = [gpu.id for gpu in snapshot.gpus]
    answer = Allocator(snapshot).allocate(available=ids, size=4)
    assert answer.score.bandwidth_gb_s == max(
        score.bandwidth_gb_s or 0
        for score in (answer.score, *(o.score for o in answer.alternatives))
    )
    assert answer.alternatives
