"""The merge of hints, on their own."""

import math
from functools import reduce
from itertools import product
from operator import and_
from random import Random

import pytest

from nodetopo.admission.hints import Choices, Hint, Hints
from nodetopo.admission.merge import TopologyManager
from nodetopo.model.numa import CpuSet, NumaNode
from nodetopo.topology.node_sets import mask_of, nodes_of, these_sets

_ANY = Hint(None, preferred=True)


def _merger(policy: str, count: int = 2, *, closest: bool = False, far: int = 3) -> TopologyManager:
    """Return a machine whose nodes are the nearer the closer their numbers, but for *far*."""
    nodes = tuple(
        NumaNode(
            id=one,
            cpus=CpuSet(),
            distances=tuple(
                10
                if one == other
                else 90
                if {one, other} == {0, far}
                else 10 + 5 * abs(one - other)
                for other in range(count)
            ),
        )
        for one in range(count)
    )
    return TopologyManager(policy=policy, nodes=nodes, prefer_closest=closest)


def _hints(*pairs: tuple[int, bool]) -> Choices:
    fitting = these_sets(mask for mask, _ in pairs)
    return Choices(fitting, these_sets(mask for mask, is_preferred in pairs if is_preferred))


def test_sets_of_nodes_are_bits() -> None:
    assert (mask_of((0, 3)), nodes_of(9)) == (9, (0, 3))
    assert mask_of((-1,)) == mask_of((64,)) == 1 << 64


def test_without_hints_everything_is_preferred_everywhere() -> None:
    assert _merger("restricted").merge([{}, {"x": None}]) == (Hint(3, preferred=True), True)
    assert _merger("single-numa-node").merge([{}]) == (_ANY, True)


def test_a_resource_that_nothing_can_serve_is_preferred_nowhere() -> None:
    told: list[Hints] = [{"x": _hints()}, {"y": _hints((1, True))}]

    assert _merger("restricted").merge(told) == (Hint(1, preferred=False), False)
    assert _merger("best-effort").merge(told) == (Hint(1, preferred=False), True)
    assert _merger("single-numa-node").merge(told) == (Hint(None, preferred=False), False)


def test_preferred_sets_must_be_equal_and_not_only_meet() -> None:
    told: list[Hints] = [{"x": _hints((3, True))}, {"y": _hints((1, True))}]

    assert _merger("restricted").merge(told) == (Hint(1, preferred=False), False)


def test_of_preferred_sets_the_narrowest_with_the_lowest_nodes_is_taken() -> None:
    told: list[Hints] = [{"x": _hints((2, True), (1, True), (3, True))}]

    assert _merger("restricted").merge(told) == (Hint(1, preferred=True), True)


def test_of_others_the_width_that_the_neediest_needs_is_taken() -> None:
    told: list[Hints] = [
        {"x": _hints((3, False), (5, False), (7, False))},
        {"y": _hints((1, True), (2, True), (3, False), (7, False))},
    ]

    assert _merger("best-effort", 3).merge(told)[0] == Hint(3, preferred=False)


def test_what_no_combination_has_in_common_is_not_taken() -> None:
    """One node would be as narrow as the neediest asks for, but only three nodes can be had."""
    told: list[Hints] = [
        {"x": _hints((0b00001, False), (0b01110, False))},
        {"y": _hints((0b10000, False), (0b01110, False))},
    ]

    assert _merger("best-effort", 5).merge(told)[0] == Hint(0b01110, preferred=False)


def test_disjoint_sets_leave_the_whole_machine() -> None:
    told: list[Hints] = [{"x": _hints((1, True))}, {"y": _hints((2, True))}]

    assert _merger("best-effort").merge(told) == (Hint(3, preferred=False), True)


def test_single_numa_node_takes_one_node_or_none() -> None:
    told: list[Hints] = [{"x": _hints((1, True), (2, True))}, {"y": _hints((2, True))}]

    assert _merger("single-numa-node").merge(told) == (Hint(2, preferred=True), True)


def test_a_machine_of_one_node_is_any_node_to_single_numa_node() -> None:
    assert _merger("single-numa-node", 1).merge([{"x": _hints((1, True))}]) == (_ANY, True)


def test_the_closest_of_equally_wide_sets_is_taken_on_request() -> None:
    far_first: list[Hints] = [{"x": _hints((0b1001, True), (0b0110, True))}]

    assert _merger("restricted", 4, closest=True).merge(far_first)[0].mask == 0b0110
    assert _merger("restricted", 4).merge(far_first)[0].mask == 0b0110
    low_is_far: list[Hints] = [{"x": _hints((0b0011, True), (0b1100, True))}]
    assert _merger("restricted", 4, closest=True, far=1).merge(low_is_far)[0].mask == 0b1100
    assert _merger("restricted", 4, far=1).merge(low_is_far)[0].mask == 0b0011


@pytest.mark.parametrize("seed", range(300))
def test_the_outcome_is_that_of_the_whole_product(seed: int) -> None:
    """What is taken together is taken one by one here, in the kubelet's words and order."""
    random = Random(seed)
    policy = random.choice(("best-effort", "restricted", "single-numa-node"))
    count = random.randint(1, 5)
    merger = _merger(policy, count, closest=random.random() < 0.5, far=random.randrange(1, 5))
    told = [_drawn(random, count) for _ in range(random.randint(1, 3))]
    hints: list[Hints] = [{str(number): one} for number, one in enumerate(told)]

    assert merger.merge(hints)[0] == _one_by_one(merger, told)
    assert merger.combinations(hints) == math.prod(len(_listed(policy, one)) or 1 for one in told)


def _drawn(random: Random, count: int) -> Choices:
    width = random.randint(1, count)
    chosen = random.sample(range(1, 1 << count), random.randint(0, (1 << count) - 1))
    return _hints(*((mask, mask.bit_count() == width) for mask in chosen))


def _listed(policy: str, choices: Choices) -> list[Hint]:
    hints = list(choices) or [Hint(None, preferred=False)]
    if policy != "single-numa-node":
        return hints
    return [it for it in hints if it.preferred and it.mask is not None and it.mask.bit_count() == 1]


def _one_by_one(merger: TopologyManager, told: list[Choices]) -> Hint:
    """Return the best of the product, compared in turn as the kubelet compares."""
    whole = mask_of(node.id for node in merger.nodes)
    lists = [_listed(merger.policy, choices) for choices in told]
    narrowest = [[it.mask.bit_count() for it in one if it.mask is not None] for one in lists]
    needed = max((min(widths) for widths in narrowest if widths), default=0)
    best: Hint | None = None
    for chosen in product(*lists):
        masks = [it.mask for it in chosen if it.mask is not None]
        merged = reduce(and_, masks, whole)
        if merged:
            found = Hint(merged, all(it.preferred for it in chosen) and len({*masks}) < 2)
            best = found if best is None else _better(merger, best, found, needed)
    best = best or Hint(whole, preferred=False)
    is_any = merger.policy == "single-numa-node" and best.mask == whole
    return Hint(None, best.preferred) if is_any else best


def _better(merger: TopologyManager, current: Hint, other: Hint, needed: int) -> Hint:
    if current.preferred != other.preferred:
        return current if current.preferred else other
    assert current.mask is not None
    assert other.mask is not None
    now, then = current.mask.bit_count(), other.mask.bit_count()
    if not current.preferred and now <= needed and now != then:
        return other if now < then <= needed else current
    return min(current, other, key=lambda hint: _fitness(merger, hint.mask or 0))


def _fitness(merger: TopologyManager, mask: int) -> tuple[float, ...]:
    nodes = nodes_of(mask)
    if not merger.prefer_closest or merger.policy == "single-numa-node":
        return len(nodes), mask
    rows = [merger.nodes[one].distances or () for one in nodes]
    return len(nodes), sum(row[other] for row in rows for other in nodes) / len(nodes) ** 2, mask
