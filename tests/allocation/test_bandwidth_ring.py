from itertools import combinations, pairwise, permutations

from hypothesis import given
from hypothesis import strategies as st

from nodetopo.allocation.bandwidth import closes, disjoint_rings, widest_ring


@given(
    width=st.integers(3, 12),
    groups=st.lists(st.integers(0, 2), min_size=12, max_size=12),
)
def test_on_a_tree_the_widest_ring_is_as_narrow_as_the_worst_pair(
    width: int,
    groups: list[int],
) -> None:
    hops = [
        [(groups[a] == groups[b]) + (groups[a] // 2 == groups[b] // 2) for b in range(width)]
        for a in range(width)
    ]
    assert widest_ring(hops, range(width)) == min(
        hops[a][b] for a, b in combinations(range(width), 2)
    )


@given(
    edges=st.lists(st.booleans(), min_size=15, max_size=15),
    count=st.integers(3, 6),
)
def test_a_ring_closes_where_some_order_of_the_vertices_does(edges: list[bool], count: int) -> None:
    joined = dict(zip(combinations(range(6), 2), edges, strict=True))
    hops = [
        [int(joined.get((min(a, b), max(a, b)), 0)) for b in range(count)] for a in range(count)
    ]
    rings = (pairwise((0, *order, 0)) for order in permutations(range(1, count)))
    assert closes(hops, range(len(hops)), 1) == any(
        all(hops[a][b] for a, b in ring) for ring in rings
    )


def test_two_gpus_that_alone_join_three_others_close_no_ring() -> None:
    hops = [[int((a < 2) != (b < 2)) for b in range(5)] for a in range(5)]
    assert not closes(hops, range(len(hops)), 1)


def test_a_complete_graph_of_odd_order_splits_into_rings() -> None:
    assert disjoint_rings([[1] * 7] * 7) == 3
