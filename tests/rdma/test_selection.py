"""Which HCAs a pool takes, and why others are left out."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from nodetopo.model.codec import decode
from nodetopo.model.hca import Hca, HcaKind
from nodetopo.model.snapshot import Snapshot
from nodetopo.rdma.pools import Pool, Selectors, SharingMode
from nodetopo.rdma.rails import nearest_cards
from nodetopo.rdma.selection import matches, select

NODES = Path(__file__).parents[1] / "nodes"
HGX = "h100x8-nvswitch-2numa-8cx7"
STORAGE = "a100x8-nvswitch-8numa-10cx6"
PARTS = "a100x8-nvswitch-2numa-sfvf"


def node(shape: str) -> Snapshot:
    return decode((NODES / shape / "snapshot.json").read_text("utf-8")).snapshot


def pool(name: str = "a", mode: SharingMode = SharingMode.SHARED, **selectors: str) -> Pool:
    lists = {key: tuple(text.split(",")) for key, text in selectors.items()}
    return Pool(resource=f"rdma/{name}", most=10, selectors=Selectors(**lists), mode=mode)


def taken(snapshot: Snapshot, *pools: Pool) -> dict[str, list[str]]:
    selection = select(snapshot, pools)
    hcas = snapshot.hcas or ()
    return {name: [hcas[at].name for at in own] for name, own in selection.hcas.items()}


def reasons(snapshot: Snapshot, *pools: Pool) -> dict[str, str]:
    return {one.hca: one.reason for one in select(snapshot, pools).exclusions}


def test_a_pool_without_selectors_takes_the_cards_of_the_gpus() -> None:
    assert taken(node(HGX), pool())["rdma/a"] == [f"mlx5_{n}" for n in range(8)]


def test_storage_cards_are_left_out_with_the_reason() -> None:
    snapshot = node(STORAGE)
    assert len(taken(snapshot, pool(vendors="15b3"))["rdma/a"]) == 8
    left_out = reasons(snapshot, pool(vendors="15b3"))
    assert set(left_out) == {"mlx5_4", "mlx5_5", "mlx5_10", "mlx5_11"}
    assert all("no GPU has it nearest" in text for text in left_out.values())


def test_a_card_that_is_named_is_offered_whatever_it_is_for() -> None:
    snapshot = node(STORAGE)
    assert taken(snapshot, pool(hcas="mlx5_4"))["rdma/a"] == ["mlx5_4"]
    interface = next(hca for hca in snapshot.hcas or () if hca.name == "mlx5_5").netdevs
    if interface:
        names = interface[0].name
        assert taken(snapshot, pool(if_names=names))["rdma/a"] == ["mlx5_5"]


@pytest.mark.parametrize("mode", SharingMode)
def test_cards_that_are_left_out_are_offered_where_the_selectors_match_nothing_else(
    mode: SharingMode,
) -> None:
    snapshot = node(STORAGE)
    left_out = ("mlx5_4", "mlx5_5", "mlx5_10", "mlx5_11")
    hcas = tuple(
        replace(hca, function=replace(hca.function, device="a2dc"))
        if hca.function is not None and hca.name in left_out
        else hca
        for hca in snapshot.hcas or ()
    )
    changed = replace(snapshot, hcas=hcas)
    storage = pool("storage", mode, device_ids="a2dc")
    assert sorted(taken(changed, storage)["rdma/storage"]) == sorted(left_out)
    selection = select(changed, [storage])
    assert not selection.exclusions
    assert selection.exceptions.keys() == {"rdma/storage"}
    for name in left_out:
        assert f"{name}: no GPU has it nearest" in selection.exceptions["rdma/storage"]

    every = pool("every", mode, vendors="15b3")
    assert not set(left_out) & set(taken(changed, every)["rdma/every"])
    assert not select(changed, [every]).exceptions


def test_virtual_functions_are_offered_where_the_selectors_match_nothing_else() -> None:
    snapshot = node(PARTS)
    virtual = [hca for hca in snapshot.hcas or () if hca.kind is HcaKind.VIRTUAL]
    assert virtual
    ids = {hca.function.device for hca in virtual if hca.function is not None}
    (device,) = ids
    assert device is not None
    names = [hca.name for hca in virtual]
    assert taken(snapshot, pool(device_ids=device))["rdma/a"] == names
    (text,) = select(snapshot, [pool(device_ids=device)]).exceptions.values()
    assert "which is offered whole" in text


def test_software_devices_are_not_cards_of_any_pool() -> None:
    snapshot = node(HGX)
    hcas = tuple(replace(hca, kind=HcaKind.SOFTWARE) for hca in snapshot.hcas or ())
    changed = replace(snapshot, hcas=hcas)
    assert taken(changed, pool(vendors="15b3"), pool("b")) == {"rdma/a": [], "rdma/b": []}
    assert reasons(changed, pool(vendors="15b3"))["mlx5_0"].startswith("it is made of software")


def test_on_a_node_without_gpus_every_card_is_offered() -> None:
    snapshot = replace(node(STORAGE), gpus=())
    assert len(taken(snapshot, pool())["rdma/a"]) == 12


def test_parts_of_a_card_are_left_out_unless_named() -> None:
    snapshot = node(PARTS)
    parts = [
        hca for hca in snapshot.hcas or () if hca.kind in (HcaKind.VIRTUAL, HcaKind.SUBFUNCTION)
    ]
    assert parts
    offered = taken(snapshot, pool())["rdma/a"]
    whole = [hca for hca in parts if hca.parent in {one.pci for one in snapshot.hcas or ()}]
    assert not set(offered) & {hca.name for hca in whole}
    for hca in whole:
        assert "is offered whole" in reasons(snapshot, pool())[hca.name]
        assert taken(snapshot, pool(hcas=hca.name))["rdma/a"] == [hca.name]


def test_software_devices_and_those_without_uverbs_are_left_out() -> None:
    snapshot = node(HGX)
    hcas = list(snapshot.hcas or ())
    hcas[0] = replace(hcas[0], kind=HcaKind.SOFTWARE)
    hcas[1] = replace(hcas[1], char_devices=("umad1",))
    changed = replace(snapshot, hcas=tuple(hcas))
    assert reasons(changed, pool())["mlx5_0"].startswith("it is made of software")
    assert "load ib_uverbs" in reasons(changed, pool(hcas="mlx5_1"))["mlx5_1"]
    assert taken(changed, pool())["rdma/a"] == [f"mlx5_{n}" for n in range(2, 8)]


def test_hcas_of_the_nvlink_fabric_are_never_offered() -> None:
    snapshot = node("b200x8-nvswitch-2numa-8cx7")
    fabric = {hca.name for hca in snapshot.management_hcas or ()}
    assert fabric
    assert not fabric & set(taken(snapshot, pool())["rdma/a"])
    assert {reasons(snapshot, pool())[name] for name in fabric} == {
        "it belongs to the NVLink fabric"
    }


def test_shared_pools_may_overlap_and_exclusive_ones_take_first() -> None:
    snapshot = node(HGX)
    both = taken(snapshot, pool("a"), pool("b", vendors="15b3"))
    assert both["rdma/a"] == both["rdma/b"]
    assert list(both) == ["rdma/a", "rdma/b"]
    exclusive = pool("b", SharingMode.EXCLUSIVE, hcas="mlx5_0,mlx5_1")
    split = taken(snapshot, pool("a"), exclusive)
    assert split["rdma/b"] == ["mlx5_0", "mlx5_1"]
    assert not set(split["rdma/a"]) & set(split["rdma/b"])
    assert reasons(snapshot, pool("a"), exclusive)["mlx5_0"] == "rdma/b has it exclusively"


@pytest.mark.parametrize(
    ("selectors", "expected"),
    [
        (Selectors(), True),
        (Selectors(vendors=("15B3",), device_ids=("1021",), drivers=("mlx5_core",)), True),
        (Selectors(vendors=("8086", "15b3")), True),
        (Selectors(vendors=("8086",)), False),
        (Selectors(vendors=("15b3",), device_ids=("101b",)), False),
        (Selectors(drivers=("ice",)), False),
        (Selectors(link_types=("infiniband",)), True),
        (Selectors(link_types=("ether",)), False),
        (Selectors(if_names=("eth0",)), False),
        (Selectors(hcas=("mlx5_0",)), True),
        (Selectors(hcas=("mlx5",)), False),
    ],
)
def test_selectors_are_any_of_a_list_and_all_of_the_lists(
    selectors: Selectors, expected: bool
) -> None:
    hca = (node(HGX).hcas or ())[0]
    assert matches(hca, selectors) is expected


def test_an_hca_of_unknown_facts_matches_no_list() -> None:
    hca = Hca(name="x")
    assert not matches(hca, Selectors(vendors=("15b3",)))
    assert matches(hca, Selectors())


def test_a_lost_gpu_of_unknown_place_leaves_open_which_cards_count() -> None:
    snapshot = node(STORAGE)
    lost = replace(snapshot.gpus[0], path=None, pci=None, is_lost=True)
    assert nearest_cards(replace(snapshot, gpus=(lost, *snapshot.gpus[1:]))) is None


@pytest.mark.parametrize(
    ("name", "kind", "vendor"),
    [
        ("efa_0", HcaKind.PHYSICAL, "1d0f"),
        ("mlx5_bond_0", HcaKind.BOND, "15b3"),
        ("rocep24s0v1", HcaKind.VIRTUAL, "15b3"),
        ("bnxt_re0", HcaKind.PHYSICAL, "14e4"),
    ],
)
def test_hcas_of_every_vendor_and_kind_are_taken_without_umad(
    name: str, kind: HcaKind, vendor: str
) -> None:
    """A virtual function whose card is in the host of this virtual machine is a card here."""
    snapshot = node(HGX)
    first, *others = snapshot.hcas or ()
    assert first.function is not None
    other = replace(
        first,
        name=name,
        kind=kind,
        parent=None,
        function=replace(first.function, vendor=vendor),
        char_devices=("uverbs0",),
    )
    changed = replace(snapshot, hcas=(other, *others))
    assert taken(changed, pool(vendors=vendor))["rdma/a"][0] == name
