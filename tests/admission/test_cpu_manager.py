"""Which CPUs the CPU Manager gives, with each of its options."""

import pytest
from msgspec.structs import replace

from nodetopo.admission.cpu_assignment import (
    CpuLayout,
    CpuPlace,
    NotEnoughCpusError,
    cpu_layout,
    take_packed,
    take_spread,
)
from nodetopo.admission.cpu_manager import CpuManager, CpuOptions, take
from nodetopo.model.kubernetes import Release
from nodetopo.model.numa import CpuSet, CpuTopology, NumaNode, Socket


def _layout(
    nodes: int, *, cores: int = 4, sockets: int | None = None, caches: int = 1
) -> CpuLayout:
    """Return a machine with two threads a core, those of core C being CPUs 2C and 2C+1."""
    sockets = sockets or nodes
    places = {
        cpu: CpuPlace(
            numa=cpu // (2 * cores),
            socket=cpu // (2 * cores) * sockets // nodes,
            core=cpu // 2 * 2,
            cache=cpu // (2 * cores // caches),
        )
        for cpu in range(nodes * cores * 2)
    }
    return CpuLayout(places=places, sockets=sockets)


def _free(text: str) -> frozenset[int]:
    return CpuSet.parse(text).cpus


def _text(cpus: frozenset[int]) -> str:
    return str(CpuSet(cpus))


def test_whole_cores_come_before_single_threads() -> None:
    assert _text(take_packed(_layout(2), _free("1-15"), 4)) == "2-5"


def test_a_request_of_a_whole_node_takes_the_node_that_is_free() -> None:
    assert _text(take_packed(_layout(2), _free("1-15"), 8)) == "8-15"


def test_the_node_with_the_fewest_free_cpus_is_filled_first() -> None:
    assert _text(take_packed(_layout(2), _free("0-7,12-15"), 2)) == "12-13"


def test_a_socket_of_several_nodes_is_taken_whole() -> None:
    layout = _layout(4, sockets=2)

    assert _text(take_packed(layout, layout.cpus - {0}, 16)) == "16-31"


def test_a_rest_is_taken_of_cores_that_are_broken_already() -> None:
    assert _text(take_packed(_layout(1), _free("1-7"), 3)) == "1-3"


def test_threads_are_spread_over_cores_on_request() -> None:
    """They are taken by number, and of a machine that numbers cores first that spreads them."""
    assert _text(take_packed(_layout(1), _free("1-7"), 2)) == "2-3"
    assert _text(take_packed(_layout(1), _free("1-7"), 2, spread_cores=True)) == "1-2"


def test_one_cache_is_preferred_on_request() -> None:
    layout = _layout(1, cores=8, caches=4)

    assert _text(take_packed(layout, _free("2-15"), 4)) == "2-5"
    assert _text(take_packed(layout, _free("2-15"), 4, by_cache=True)) == "4-7"


def test_too_few_are_an_error_in_the_words_of_the_kubelet() -> None:
    words = "not enough cpus available to satisfy request: requested=5, available=4"
    with pytest.raises(NotEnoughCpusError, match=words):
        take_packed(_layout(1), _free("0-3"), 5)


def test_a_request_that_fits_one_node_is_not_spread() -> None:
    assert _text(take_spread(_layout(2), _free("0-15"), 6, 1)) == "0-5"


def test_a_wider_request_is_spread_evenly() -> None:
    assert _text(take_spread(_layout(2), _free("0-15"), 10, 1)) == "0-4,8-12"
    assert _text(take_spread(_layout(2), _free("0-15"), 12, 2)) == "0-5,8-13"


def test_a_remainder_goes_where_it_leaves_the_most_even_rest() -> None:
    assert _text(take_spread(_layout(2), _free("0-6,8-15"), 11, 1)) == "0-3,6,8-13"


def test_what_cannot_be_grouped_is_packed() -> None:
    assert _text(take_spread(_layout(2), _free("0-15"), 9, 2)) == "0-8"


def test_the_best_of_many_nodes_is_taken_with_the_mistake_that_the_kubelet_makes() -> None:
    """Nodes 0 to 3 are the best; it remembers the last of them as the last that it tried, 5."""
    layout = _layout(6, cores=1)

    assert _text(take_spread(layout, layout.cpus, 8, 1)) == "0-5,10-11"


def test_nodes_of_one_socket_come_before_an_evener_spread_on_request() -> None:
    layout, free = _layout(4, cores=2, sockets=2), _free("0-3,5-7,9-12,15")

    assert _text(take_spread(layout, free, 6, 1)) == "0-2,9-11"
    assert _text(take_spread(layout, free, 6, 1, by_socket=True)) == "0-2,5-7"


def test_by_socket_no_node_is_asked_for_a_greater_share_than_it_has() -> None:
    layout, free = _layout(4, cores=2, sockets=2), _free("0-4,6-10,13-15")

    assert _text(take_spread(layout, free, 7, 1)) == "0-3,8-10"
    assert _text(take_spread(layout, free, 7, 1, by_socket=True)) == "0-4,6-7"
    few = _free("0-3,7,9")  # one of the nodes of the first socket has one
    assert _text(take_spread(layout, few, 5, 1, by_socket=True)) == "0-3,7"


@pytest.mark.parametrize(
    ("kubelet", "options", "taken"),
    [
        ((1, 36), {"align_by_socket": True}, "0-2,9-11"),
        ((1, 37), {"align_by_socket": True}, "0-2,5-7"),
        ((1, 37), {}, "0-2,9-11"),
        (None, {}, "0-2,9-11"),
    ],
)
def test_from_1_37_spreading_takes_notice_of_sockets(
    kubelet: Release | None, options: dict[str, bool], taken: str
) -> None:
    chosen = CpuOptions(distribute_cpus_across_numa=True, **options)
    found = take(_layout(4, cores=2, sockets=2), chosen, _free("0-3,5-7,9-12,15"), 6, kubelet)
    assert _text(found) == taken


def test_nodes_of_one_socket_are_as_good_as_one_node_on_request() -> None:
    layout = _layout(4, sockets=2)
    plain = CpuManager(
        layout=layout, options=CpuOptions(), shared=layout.cpus, reserved=frozenset()
    )
    by_socket = replace(plain, options=CpuOptions(align_by_socket=True))

    assert _preferred(plain) == [0b0001, 0b0010, 0b0100, 0b1000]
    assert _preferred(by_socket) == [0b0001, 0b0010, 0b0100, 0b1000, 0b0011, 0b1100]


def test_by_socket_the_whole_socket_serves_before_others() -> None:
    layout = _layout(4, sockets=2)
    cpus = CpuManager(
        layout=layout,
        options=CpuOptions(align_by_socket=True),
        shared=layout.cpus - _free("0-5,16-27"),
        reserved=frozenset(),
    )

    plain = replace(cpus, options=CpuOptions())

    assert _text(plain.give("uid", "work", 6, 0b0001, is_init=False)) == "6-7,28-31"
    assert _text(cpus.give("uid", "work", 6, 0b0001, is_init=False)) == "6-11"


def _preferred(cpus: CpuManager) -> list[int]:
    choices = cpus.hints(4)["cpu"]
    assert choices is not None
    return list(choices.preferred)


def test_a_cache_that_is_a_whole_nodes_counts_as_the_sockets() -> None:
    halves = tuple(CpuSet.of(range(start, start + 4)) for start in (0, 4))
    nodes = tuple(NumaNode(id=it, cpus=half) for it, half in enumerate(halves))
    whole = CpuSet.of(range(8))
    cpu = CpuTopology(
        online=whole,
        sockets=(Socket(id=7, cpus=whole),),
        cores=tuple(CpuSet.of((it, it + 1)) for it in range(0, 8, 2)),
        l3_groups=halves,
    )
    split = replace(cpu, l3_groups=tuple(CpuSet.of((it, it + 1)) for it in range(0, 8, 2)))

    assert cpu_layout(nodes, cpu).members("cache") == {7: whole.cpus}
    assert len(cpu_layout(nodes, split).members("cache")) == 4
    numbered = replace(split, l3_ids=(3, 5, 7, 9))
    assert sorted(cpu_layout(nodes, numbered).members("cache")) == [3, 5, 7, 9]


def test_a_cache_with_the_number_of_a_socket_counts_as_one_with_the_cpus_without_a_cache() -> None:
    """A node whose cores share one cache is filed under its socket, as the kubelet does."""
    nodes = tuple(NumaNode(id=it, cpus=CpuSet.of(range(4 * it, 4 * it + 4))) for it in range(2))
    cpu = CpuTopology(
        online=CpuSet.of(range(8)),
        sockets=tuple(Socket(id=it, cpus=nodes[it].cpus) for it in range(2)),
        cores=tuple(CpuSet.of((it,)) for it in range(8)),
        l3_groups=(CpuSet.of((0, 1)), CpuSet.of((2, 3)), nodes[1].cpus),
        l3_ids=(0, 1, 2),
    )
    layout = cpu_layout(nodes, cpu)
    assert layout.members("cache") == {0: {0, 1}, 1: {2, 3, 4, 5, 6, 7}}
    assert layout.has_cache_ids
    unnumbered = cpu_layout(nodes, replace(cpu, l3_ids=()))
    assert sorted(map(len, unnumbered.members("cache").values())) == [2, 2, 4]
    assert not unnumbered.has_cache_ids
