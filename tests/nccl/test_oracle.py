"""Random machines: NCCL's types against a second, much smaller way to find them."""

from collections.abc import Mapping
from itertools import combinations, permutations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from nodetopo.model.gpu import Gpu
from nodetopo.model.hca import Hca
from nodetopo.model.nvlink import NvLink, PeerKind
from nodetopo.model.pci import PciAddress
from nodetopo.model.snapshot import Snapshot
from nodetopo.nccl.affinity import nccl_nearest_hcas
from nodetopo.nccl.paths import NcclPath
from nodetopo.nccl.routes import nccl_paths
from nodetopo.topology.affinity import nearest_hcas, rails
from nodetopo.topology.matrix import matrix
from tests.strategies import machines, snapshots
from tests.topology.trees import gpu, hca

Links = Mapping[tuple[int, int], int]

SWITCHES = ("", "a", "aa", "ab", "b", "ba")
"""By name, "" is none: "aa" and "ab" hang below "a"."""


def buses(numa: int, switch: str) -> list[int]:
    """Root port, then for each switch its upstream and downstream port; nodes share no bus."""
    above = [1 + numa]
    for depth in range(1, len(switch) + 1):
        number = sum((ord(letter) - 96) * 3**at for at, letter in enumerate(switch[:depth]))
        above += [port + 20 * depth + number + 80 * numa for port in (0, 10)]
    return above


@st.composite
def trees(draw: st.DrawFn) -> tuple[Snapshot, Links, Mapping[str, tuple[int, str]]]:
    """A machine, its NVLinks, and for each device its NUMA node and switch."""
    numas = st.integers(0, 1)
    switches = st.sampled_from(SWITCHES)
    where: dict[str, tuple[int, str]] = {}
    gpus: list[Gpu] = []
    hcas: list[Hca] = []
    for index in range(draw(st.integers(1, 4))):
        numa, switch = draw(numas), draw(switches)
        where[f"GPU{index}"] = (numa, switch)
        gpus.append(gpu(index, *buses(numa, switch), 200 + index, numa=numa))
    for index in range(draw(st.integers(0, 3))):
        numa, switch = draw(numas), draw(switches)
        where[f"NIC{index}"] = (numa, switch)
        hcas.append(hca(f"mlx5_{index}", *buses(numa, switch), 220 + index, numa=numa))
    pairs = list(combinations(range(len(gpus)), 2))
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    links = {pair: draw(st.integers(1, 2)) for pair in chosen}
    ends = [(a, b) for pair, count in links.items() for a, b in (pair, pair[::-1])] if links else []
    told = tuple(
        NvLink(gpu=a, link=at, is_active=True, peer=gpus[b].pci, peer_kind=PeerKind.GPU)
        for at, (a, b) in enumerate(
            (a, b) for a, b in sorted(ends) for _ in range(links[min(a, b), max(a, b)])
        )
    )
    return Snapshot(gpus=tuple(gpus), hcas=tuple(hcas), nvlinks=told), links, where


def by_pcie(a: tuple[int, str], b: tuple[int, str]) -> NcclPath:
    """The type by place alone."""
    if a[0] != b[0]:
        return NcclPath.SYS
    if a[1][:1] != b[1][:1] or not a[1]:
        return NcclPath.PHB
    return NcclPath.PIX if a[1] == b[1] else NcclPath.PXB


def expected(a: int, b: int, links: Links, where: Mapping[str, tuple[int, str]]) -> NcclPath:
    """The type from one GPU to another."""
    joined = {frozenset(pair) for pair in links}
    if frozenset((a, b)) in joined:
        return NcclPath.NVL
    others = {gpu for pair in joined for gpu in pair} - {a, b}
    if any({frozenset((a, c)), frozenset((b, c))} <= joined for c in others):
        return NcclPath.NVB
    here, there = where[f"GPU{a}"], where[f"GPU{b}"]
    beside = {gpu for pair in joined if a in pair for gpu in pair}
    if here[0] != there[0] and (there[0], "") in {where[f"GPU{gpu}"] for gpu in beside}:
        return NcclPath.PHB  # to the far CPU by NVLink and another GPU's PCIe link
    return by_pcie(here, there)


@given(trees())
def test_types_are_those_of_the_small_implementation(
    drawn: tuple[Snapshot, Links, Mapping[str, tuple[int, str]]],
) -> None:
    snapshot, links, where = drawn
    found = nccl_paths(snapshot)
    for a, b in permutations(range(len(snapshot.gpus)), 2):
        assert found[f"GPU{a}", f"GPU{b}"].type is expected(a, b, links, where)
    for name, place in where.items():
        for one in range(len(snapshot.gpus)) if name.startswith("NIC") else ():
            kind = by_pcie(where[f"GPU{one}"], place)
            assert found[name, f"GPU{one}"].type is kind
            sending = found[f"GPU{one}", name].type
            assert sending is kind or (sending is NcclPath.PXN and links)


@given(trees())
def test_routes_are_walks_between_their_ends_of_equal_width_both_ways(
    drawn: tuple[Snapshot, Links, Mapping[str, tuple[int, str]]],
) -> None:
    found = nccl_paths(drawn[0])
    for (a, b), route in found.items():
        assert (route.hops[0], route.hops[-1]) == (a, b)
        back = found[b, a]
        if back.type is route.type:
            assert back.bandwidth_gbs == route.bandwidth_gbs


@given(trees())
def test_addresses_carry_no_meaning_but_order(
    drawn: tuple[Snapshot, Links, Mapping[str, tuple[int, str]]],
) -> None:
    """All functions moved to another domain: types, levels and choices stay."""
    snapshot = drawn[0]
    moved = _moved(snapshot)
    assert matrix(moved).cells == matrix(snapshot).cells
    assert {way: route.type for way, route in nccl_paths(moved).items()} == {
        way: route.type for way, route in nccl_paths(snapshot).items()
    }
    assert _choices(moved) == _choices(snapshot)


def _choices(snapshot: Snapshot) -> dict[int, list[str]]:
    return {
        index: [hca.name for net in near.nets for hca in net.hcas]
        for index, near in nccl_nearest_hcas(snapshot).items()
    }


def _moved(snapshot: Snapshot) -> Snapshot:
    def other(address: PciAddress | None) -> PciAddress | None:
        return address and replace(address, domain=7)

    def place(device: Gpu | Hca) -> dict[str, object]:
        path = device.path
        hops = tuple(replace(hop, domain=7) for hop in path.hops) if path else ()
        return {"pci": other(device.pci), "path": path and replace(path, hops=hops)}

    return replace(
        snapshot,
        gpus=tuple(replace(one, **place(one)) for one in snapshot.gpus),
        hcas=tuple(replace(one, **place(one)) for one in snapshot.hcas or ()),
        nvlinks=tuple(replace(link, peer=other(link.peer)) for link in snapshot.nvlinks or ()),
    )


@given(st.one_of(machines(), snapshots()))
def test_matrices_are_symmetric_and_nothing_crashes(snapshot: Snapshot) -> None:
    cells = matrix(snapshot).cells
    assert cells == tuple(zip(*cells, strict=True)) or not cells
    nccl_paths(snapshot)
    nccl_nearest_hcas(snapshot)
    nearest_hcas(snapshot)
    hcas = [hca for rail in rails(snapshot) for hca in rail.hcas]
    gpus = [gpu for rail in rails(snapshot) for gpu in rail.gpus]
    assert len(gpus) == len(set(gpus))
    assert len(hcas) <= len(snapshot.hcas or ())
