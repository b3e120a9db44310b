"""The merge of hints, on their own."""

from itertools import product

import pytest

from nodetopo.admission.hints import Hint, Hints, mask_of, masks, nodes_of
from nodetopo.admission.merge import TopologyManager
from nodetopo.model.numa import CpuSet, NumaNode

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


def _hints(*pairs: tuple[int, bool]) -> tuple[Hint, ...]:
    return tuple(Hint(mask, preferred) for mask, preferred in pairs)


def test_sets_of_nodes_are_bits() -> None:
    assert (mask_of((0, 3)), nodes_of(9)) == (9, (0, 3))
    assert sorted(masks((1, 2))) == [2, 4, 6]
    assert mask_of((-1,)) == mask_of((64,)) == 1 << 64


def test_without_hints_everything_is_preferred_everywhere() -> None:
    assert _merger("restricted").merge([{}, {"x": None}]) == (Hint(3, preferred=True), True)
    assert _merger("single-numa-node").merge([{}]) == (_ANY, True)


def test_a_resource_that_nothing_can_serve_is_preferred_nowhere() -> None:
    told: list[Hints] = [{"x": ()}, {"y": _hints((1, True))}]

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


@pytest.mark.parametrize("policy", ["best-effort", "restricted", "single-numa-node"])
def test_the_outcome_is_that_of_the_whole_product(policy: str) -> None:
    """What is taken together is taken one by one here, in the kubelet's words and order."""
    choices = [(), _hints((1, True), (2, True), (3, False)), _hints((3, True)), _hints((2, False))]
    for told in product(choices, repeat=3):
        lists: list[Hints] = [{str(number): one} for number, one in enumerate(told)]
        assert _merger(policy).merge(lists)[0].preferred == _is_preferred(policy, told)


def _is_preferred(policy: str, told: tuple[tuple[Hint, ...], ...]) -> bool:
    is_single = policy == "single-numa-node"
    return any(
        all(hint.preferred for hint in chosen)
        and len({hint.mask for hint in chosen}) == 1
        and (not is_single or (chosen[0].mask or 0).bit_count() == 1)
        for chosen in product(*told)
    )
