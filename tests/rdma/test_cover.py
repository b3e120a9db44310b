"""Which HCAs cover more GPUs than there are HCAs, against a search of all possibilities."""

import random
from collections import Counter
from collections.abc import Sequence
from functools import cache
from itertools import combinations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from nodetopo.machines.bundled import machine, names
from nodetopo.model.hca import Hca
from nodetopo.model.nvlink import Closeness
from nodetopo.model.pci import PciAddress
from nodetopo.model.snapshot import Snapshot
from nodetopo.rdma.pairing import LEVELS, Pairing
from nodetopo.topology.matrix import word

FAR = 1000
"""A pair weighs this many of the next nearer level."""

MACHINES = [
    name for name in names() if len(machine(name).gpus) > 2 and len(machine(name).hcas or ()) > 1
]


def level(node: Pairing, gpu: int, hca: int) -> int:
    known = node.closeness.get((gpu, hca))
    return len(LEVELS) if known is None else LEVELS.index(known)


def least(node: Pairing, gpus: Sequence[int], hcas: Sequence[int], size: int) -> int:
    """Return what the best *size* of *hcas* cost, each with an even share of *gpus*."""
    shares, larger = divmod(len(gpus), size)

    @cache
    def rest(at: int, open_gpus: frozenset[int], taken: int, extra: int) -> float:
        if taken == size:
            return 0 if not open_gpus else float("inf")
        if at == len(hcas):
            return float("inf")
        best = rest(at + 1, open_gpus, taken, extra)
        for more in (0, 1) if extra else (0,):
            for own in combinations(sorted(open_gpus), shares + more):
                cost = sum(FAR ** level(node, gpu, hcas[at]) for gpu in own)
                after = rest(at + 1, open_gpus - set(own), taken + 1, extra - more)
                best = min(best, cost + after)
        return best

    found = rest(0, frozenset(gpus), 0, larger)
    assert found < float("inf")
    return int(found)


def cost(node: Pairing, gpus: Sequence[int], hcas: Sequence[int]) -> int:
    pairs = node.matched(gpus, hcas)
    served = Counter(pair.hca for pair in pairs)
    shares, larger = divmod(len(gpus), len(hcas))
    assert sorted(served.values()) == [shares] * (len(hcas) - larger) + [shares + 1] * larger
    assert [pair.gpu for pair in pairs] == list(gpus)
    return sum(FAR ** level(node, pair.gpu, pair.hca) for pair in pairs)


@pytest.mark.parametrize("name", MACHINES)
def test_no_other_hcas_cover_the_gpus_as_near(name: str) -> None:
    node = Pairing(snapshot=machine(name))
    every = range(len(node.snapshot.gpus))
    hcas = range(len(node.snapshot.hcas or ()))
    draw = random.Random(name)
    for asked in range(2, min(len(every), 8) + 1):
        for size in range(1, min(asked - 1, len(hcas)) + 1):
            for _ in range(3):
                gpus = sorted(draw.sample(every, asked))
                free = sorted(draw.sample(hcas, draw.randint(size, len(hcas))))
                chosen = node.hcas_for(gpus, free, size)
                assert len(set(chosen)) == size
                assert set(chosen) <= set(free)
                case = (gpus, free, chosen)
                assert cost(node, gpus, chosen) == least(node, gpus, free, size), case


@pytest.mark.parametrize("name", MACHINES)
def test_given_hcas_are_matched_evenly_and_as_near_as_can_be(name: str) -> None:
    node = Pairing(snapshot=machine(name))
    draw = random.Random(name)
    every, hcas = range(len(node.snapshot.gpus)), range(len(node.snapshot.hcas or ()))
    for asked in range(2, min(len(every), 8) + 1):
        for size in range(1, min(asked - 1, len(hcas)) + 1):
            gpus, given = draw.sample(every, asked), draw.sample(hcas, size)
            assert cost(node, gpus, given) == least(node, gpus, given, size), (gpus, given)


@settings(max_examples=80)
@given(
    st.lists(st.lists(st.sampled_from(LEVELS), min_size=4, max_size=4), min_size=3, max_size=6),
    st.integers(1, 4),
)
def test_distances_that_are_no_trees_are_searched_too(
    rows: list[list[Closeness]], size: int
) -> None:
    node = Pairing(snapshot=Snapshot())
    known = {(gpu, hca): far for gpu, row in enumerate(rows) for hca, far in enumerate(row)}
    vars(node)["closeness"] = known  # in place of what the snapshot says
    gpus, size = range(len(rows)), min(size, len(rows) - 1)
    chosen = node.hcas_for(gpus, range(4), size)
    assert cost(node, gpus, chosen) == least(node, gpus, range(4), size)


def test_a_socket_with_more_of_the_gpus_gets_more_of_the_hcas() -> None:
    node = Pairing(snapshot=machine("dgx-h100"))
    hcas = node.snapshot.hcas or ()
    chosen = {hcas[at].name for at in node.hcas_for([2, 5, 6, 7], range(8), 3)}
    assert "mlx5_0" not in chosen
    assert len(chosen) == 3


def test_three_hcas_of_which_each_could_serve_two_leave_none_idle() -> None:
    node = Pairing(snapshot=machine("ac922"))
    served = Counter(pair.hca for pair in node.matched([0, 1, 2, 3], [3, 4, 5]))
    assert sorted(served.values()) == [1, 1, 2]


def test_of_hcas_that_cover_as_near_those_on_the_rails_are_taken_then_the_least_used() -> None:
    node = Pairing(snapshot=machine("h100-vm-8"))
    assert set(node.hcas_for([0, 1, 2, 3], range(8), 2)) == {0, 2}
    assert set(node.hcas_for([0, 1, 2, 3], range(8), 2, {0: 1})) == {1, 2}


def with_functions(name: str, functions: int) -> Snapshot:
    """Return the machine *name* with *functions* HCAs in the place of each of its HCAs."""
    snapshot = machine(name)
    hcas = [
        replace(hca, name=f"{hca.name}_{number}", pci=_function(hca, number))
        for hca, number in product(snapshot.hcas or (), range(functions))
    ]
    return replace(snapshot, hcas=tuple(hcas))


def _function(hca: Hca, number: int) -> PciAddress:
    assert hca.pci is not None
    return replace(hca.pci, device=number // 8, function=number % 8)


@pytest.mark.parametrize("functions", [16, 128])
@pytest.mark.parametrize(
    ("gpus", "size", "levels"),
    [
        ([7], 1, "PXB"),
        ([7], 16, "PXB"),
        ([4, 5, 6, 7], 4, "PXB PXB PXB PXB"),
        ([4, 5, 6, 7], 2, "PXB PXB NODE NODE"),
        ([0, 5, 6, 7], 3, "PXB PXB PXB NODE"),
    ],
)
def test_of_many_hcas_the_nearest_of_each_gpu_are_found(
    functions: int, gpus: list[int], size: int, levels: str
) -> None:
    node = Pairing(snapshot=with_functions("dgx-h100", functions))
    chosen = node.hcas_for(gpus, range(8 * functions), size)
    assert len(set(chosen)) == size
    found = [pair.closeness for pair in node.matched(gpus, chosen)]
    assert sorted(word(one) for one in found if one is not None) == sorted(levels.split())


def test_an_own_hca_is_found_among_more_than_can_be_matched_at_once() -> None:
    node = Pairing(snapshot=with_functions("dgx-h100", 16))
    every = range(128)
    most = node.hcas_for(range(8), every, 100)
    assert len(set(most)) == 100
    nearest = {gpu: min(level(node, gpu, hca) for hca in every) for gpu in range(8)}
    near = [hca for hca in most if any(level(node, gpu, hca) == nearest[gpu] for gpu in range(8))]
    assert len(near) == 100
    assert node.gpus_for(range(112, 128), range(8), 1) == (7,)
    assert {pair.hca // 16 for pair in node.matched(range(8), every)} == set(range(8))
