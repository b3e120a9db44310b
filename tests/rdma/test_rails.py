"""Which cards of a node are its rails, for whoever asks."""

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from nodetopo.allocation.allocator import Allocator
from nodetopo.allocation.facts import facts, usable_hcas
from nodetopo.allocation.rules import Policy, Rules
from nodetopo.machines.bundled import machine
from nodetopo.model.codec import decode
from nodetopo.model.hca import HcaKind, HcaPort, LinkLayer
from nodetopo.model.nvlink import Closeness
from nodetopo.model.pci import PciFunction
from nodetopo.model.snapshot import Snapshot
from nodetopo.nccl.advice import nearest_set
from nodetopo.rdma.pools import Pool
from nodetopo.rdma.rails import job_hcas, most_rates, network_cards, usable_cards
from nodetopo.rdma.selection import select
from tests.strategies import node

NODES = Path(__file__).parents[1] / "nodes"
WITH_HCAS = sorted(
    place.parent.name
    for place in NODES.glob("*/snapshot.json")
    if decode(place.read_text("utf-8")).snapshot.hcas
)


def shaped(name: str) -> Snapshot:
    return decode((NODES / name / "snapshot.json").read_text("utf-8")).snapshot


def changed(snapshot: Snapshot, names: set[str], change: Callable[[HcaPort], HcaPort]) -> Snapshot:
    """Return *snapshot* with the ports of the HCAs *names* changed."""
    assert names <= {hca.name for hca in snapshot.hcas or ()}
    hcas = [
        replace(hca, ports=tuple(map(change, hca.ports))) if hca.name in names else hca
        for hca in snapshot.hcas or ()
    ]
    return replace(snapshot, hcas=tuple(hcas))


def down(port: HcaPort) -> HcaPort:
    return replace(port, state="DOWN", physical_state="Disabled")


def slowed(port: HcaPort) -> HcaPort:
    assert port.rate_gbps is not None
    return replace(port, rate_gbps=port.rate_gbps / 2)


def named(snapshot: Snapshot, positions: tuple[int, ...] | None) -> list[str]:
    assert positions is not None
    return [(snapshot.hcas or ())[at].name for at in positions]


@pytest.mark.parametrize("name", WITH_HCAS)
def test_placement_advice_and_pools_mean_the_same_cards(name: str) -> None:
    snapshot = shaped(name)
    rails = set(named(snapshot, network_cards(snapshot)))
    usable = {hca.name for hca in usable_hcas(snapshot)}
    assert usable == rails - {hca.name for hca in snapshot.hcas or () if hca.is_down}
    assert {hca.name for hca in nearest_set(snapshot, snapshot.gpus)} <= usable
    pool = Pool(resource="rdma/all", most=1000)
    assert set(named(snapshot, select(snapshot, [pool]).hcas["rdma/all"])) == rails


@pytest.mark.parametrize("policy", [Policy.BEST, Policy.NIC_REQUIRED])
def test_cards_for_storage_do_not_stand_in_for_rails_that_are_down(policy: Policy) -> None:
    tray = machine("gb200-nvl72")
    broken = changed(tray, {"mlx5_0", "mlx5_1"}, down)
    assert network_cards(broken) == network_cards(tray)
    assert named(broken, usable_cards(broken)) == ["mlx5_4", "mlx5_5"]
    assert facts(broken).hca_steps == (5, 5, 4, 4)
    answer = Allocator(broken, Rules(policy=policy)).allocate(
        available=[gpu.id for gpu in broken.gpus], size=2
    )
    assert answer.indices == (2, 3)


def test_the_cards_of_a_whole_tray_stay_its_rails_when_all_are_down() -> None:
    tray = machine("gb200-nvl72")
    rails = {"mlx5_0", "mlx5_1", "mlx5_4", "mlx5_5"}
    broken = changed(tray, rails, down)
    assert set(named(broken, network_cards(broken))) == rails
    assert usable_cards(broken) == ()
    assert facts(broken).hca_steps == (0, 0, 0, 0)


def roce_board(fast: int, slow: int, *, stated: float, near: str = "a2dc") -> Snapshot:
    """Two sockets of two GPUs, each with ConnectX-7 that are down and state *stated*, and others.

    The others are up at 200 Gb/s, and have the PCI device *near*; all are at the same distance.
    """
    kinds = [("fast", "1021", "DOWN", stated)] * fast + [("slow", near, "ACTIVE", 200.0)] * slow
    near_to = [
        {gpu: Closeness.NODE if gpu // 2 == numa else Closeness.SYS for gpu in range(4)}
        for numa in (0, 1)
    ]
    cards = [(numa, at, *kind) for numa in (0, 1) for at, kind in enumerate(kinds)]
    board = node(
        numa=[0, 0, 1, 1],
        sockets={0: 0, 1: 1},
        hcas=[near_to[numa] for numa, *_ in cards],
        hca_numa=[numa for numa, *_ in cards],
    )
    hcas = tuple(
        replace(
            hca,
            name=f"{name}{numa}{at if name == 'fast' else at - fast}",
            kind=HcaKind.PHYSICAL,
            function=PciFunction(pci_class="020000", vendor="15b3", device=device),
            ports=(HcaPort(number=1, state=state, layer=LinkLayer.ETHERNET, rate_gbps=rate),),
        )
        for hca, (numa, at, name, device, state, rate) in zip(board.hcas or (), cards, strict=True)
    )
    return replace(board, hcas=hcas)


@pytest.mark.parametrize(
    ("fast", "slow", "stated", "near", "are_rails"),
    [
        (2, 1, 40.0, "a2dc", True),  # the rate that mlx5 states of a RoCE port that is down
        (2, 1, 400.0, "a2dc", True),
        (1, 1, 400.0, "a2dc", True),
        (1, 2, 400.0, "a2dc", True),
        (1, 1, 40.0, "a2dc", False),  # which one is for storage is unknown: all stay
        (1, 2, 40.0, "a2dc", False),
    ],
)
def test_rails_that_are_all_down_are_still_the_rails(
    fast: int, slow: int, stated: float, near: str, are_rails: bool
) -> None:
    board = roce_board(fast, slow, stated=stated, near=near)
    rails = named(board, network_cards(board))
    assert any(name.startswith("slow") for name in rails) is not are_rails
    assert all(f"fast{numa}{n}" in rails for numa in (0, 1) for n in range(fast))
    assert (usable_cards(board) == ()) is are_rails


def test_where_no_card_shows_a_rate_all_of_them_stay() -> None:
    board = roce_board(2, 1, stated=40.0)
    off = HcaPort(number=1, state="DOWN", layer=LinkLayer.ETHERNET)
    new = PciFunction(pci_class="020000", vendor="15b3", device="ffff")
    hcas = tuple(
        replace(hca, ports=(off,), function=new if hca.name.startswith("fast") else hca.function)
        for hca in board.hcas or ()
    )
    rails = named(replace(board, hcas=hcas), network_cards(replace(board, hcas=hcas)))
    assert len(rails) == 6


def test_unused_ports_of_a_chip_that_is_no_faster_take_no_rails_place() -> None:
    board = roce_board(4, 1, stated=40.0)
    idle = PciFunction(pci_class="020000", vendor="14e4", device="16d7")  # 25 Gb/s
    hcas = tuple(
        replace(hca, function=idle) if hca.name.startswith("fast") else hca
        for hca in board.hcas or ()
    )
    assert named(board, usable_cards(replace(board, hcas=hcas))) == ["slow00", "slow10"]


def test_a_bond_for_management_does_not_stand_in_for_a_rail_that_is_down() -> None:
    board = machine("hgx-h200")
    own = {hca.name for hca in nearest_set(board, board.gpus[:1])}
    broken = changed(board, own, down)
    others = {"mlx5_bond_0", "mlx5_2", *own}
    assert others.isdisjoint(hca.name for hca in usable_hcas(broken))
    (instead,) = nearest_set(broken, broken.gpus[:1])
    assert instead.name not in others
    hcas = broken.hcas or ()
    for mask in facts(broken).hcas:
        near = {hca.name for at, hca in enumerate(hcas) if mask >> at & 1}
        assert near
        assert near.isdisjoint(others)


@pytest.mark.parametrize(
    ("name", "slow", "count"),
    [("h100-vm-8", "mlx5_ib3", 8), ("gb200-nvl72", "mlx5_1", 4), ("dgx-1v", "mlx5_1", 4)],
)
def test_a_card_that_trains_at_half_rate_stays_a_rail(name: str, slow: str, count: int) -> None:
    snapshot = changed(machine(name), {slow}, slowed)
    rails = named(snapshot, network_cards(snapshot))
    assert slow in rails
    assert len(rails) == count


def test_cards_of_one_model_have_shown_the_same_rate_and_unknown_models_only_their_own() -> None:
    tray = changed(machine("gb200-nvl72"), {"mlx5_0"}, slowed)
    tray = changed(tray, {"mlx5_4"}, down)
    assert most_rates(tray.hcas or ()) == (400, 400, 200, 200, 400, 400, 200, 200)
    unknown = [replace(hca, function=None, hca_type=None, board_id=None) for hca in tray.hcas or ()]
    assert most_rates(unknown) == (200, 400, 200, 200, None, 400, 200, 200)


def test_two_boards_of_one_pci_id_are_two_models() -> None:
    board = machine("dgx-h100")
    hcas = board.hcas or ()
    other = replace(changed(board, {"mlx5_0"}, slowed).hcas[0], board_id="MT_0000000839")  # type: ignore[index]
    assert most_rates((other, *hcas[1:]))[:2] == (200, 400)


def test_where_no_gpu_is_known_every_card_counts() -> None:
    alone = replace(machine("hgx-h200"), gpus=())
    assert network_cards(alone) is None
    assert usable_cards(alone) == job_hcas(alone)
