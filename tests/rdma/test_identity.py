import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from nodetopo.model.hca import Hca, HcaKind, HcaPort
from nodetopo.model.limits import MAX_HCAS
from nodetopo.model.numa import CpuSet, NumaNode
from nodetopo.model.pci import PciAddress
from nodetopo.model.snapshot import Snapshot
from nodetopo.rdma.identity import MAX_KEY, KnownHca, hca_key, hca_keys, remembered_hcas

FUNCTION = PciAddress(0, 0x17, 0, 0)
OTHER = PciAddress(0, 0x2A, 0, 0)


def hca(
    name: str,
    pci: PciAddress | None = FUNCTION,
    subfunction: int | None = None,
    guid: str | None = None,
    kind: HcaKind | None = HcaKind.PHYSICAL,
) -> Hca:
    return Hca(name=name, kind=kind, pci=pci, subfunction=subfunction, node_guid=guid)


def after(*lists: tuple[Hca, ...] | None) -> tuple[KnownHca, ...]:
    """Return what is remembered after snapshots with these HCAs, in turn."""
    known: tuple[KnownHca, ...] = ()
    for hcas in lists:
        known = remembered_hcas(known, Snapshot(hcas=hcas))
    return known


def keys(*lists: tuple[Hca, ...] | None) -> dict[str, str | None]:
    """Return key → name after these lists, ``None`` for a lost HCA."""
    return {it.key: None if it.is_lost else it.hca.name for it in after(*lists)}


def test_the_key_is_the_function_and_of_a_subfunction_its_number_too() -> None:
    assert hca_key(hca("rocep23s0")) == "0000:17:00.0"
    assert hca_key(hca("rocep23s0S88", subfunction=88)) == "0000:17:00.0/sf88"
    assert hca_key(hca("rxe0", pci=None)) == "rxe0"


def test_devices_on_one_function_have_different_keys_and_the_physical_one_the_plain() -> None:
    representor = hca("a_rep", kind=HcaKind.VIRTUAL)
    expected = {"mlx5_0": "0000:17:00.0", "a_rep": "0000:17:00.0/a_rep"}
    assert hca_keys((representor, hca("mlx5_0"))) == expected
    assert hca_keys((hca("mlx5_0"), representor)) == expected


def test_a_long_or_unusual_name_gives_a_key_that_fits_a_label_and_names_it_alone() -> None:
    first, second = hca("x" * 60 + "1", pci=None), hca("x" * 60 + "2", pci=None)
    odd = hca("a::b", pci=None)
    made = hca_keys((first, second, odd, hca("a__b", pci=None)))
    assert len(set(made.values())) == 4
    assert all(len(key) <= MAX_KEY and "::" not in key for key in made.values())


def test_a_renamed_hca_keeps_its_key() -> None:
    assert keys((hca("mlx5_0"),), (hca("rocep23s0"),)) == {"0000:17:00.0": "rocep23s0"}


def test_a_bond_has_the_key_of_the_function_that_keeps_its_device() -> None:
    before = (hca("mlx5_0"), hca("mlx5_1", pci=OTHER))
    bond = hca("mlx5_bond_0", kind=HcaKind.BOND)
    assert keys(before, (bond,)) == {"0000:17:00.0": "mlx5_bond_0", "0000:2a:00.0": None}


def test_an_hca_that_vanished_stays_as_lost_in_its_place_and_comes_back() -> None:
    both = (hca("mlx5_0"), hca("mlx5_1", pci=OTHER))
    assert keys(both, both[1:]) == {"0000:17:00.0": None, "0000:2a:00.0": "mlx5_1"}
    assert keys(both, both[1:], both) == {"0000:17:00.0": "mlx5_0", "0000:2a:00.0": "mlx5_1"}
    assert [it.key for it in after(both, (), both[::-1])] == ["0000:17:00.0", "0000:2a:00.0"]


def test_names_that_two_hcas_exchange_do_not_exchange_their_keys() -> None:
    before = (hca("mlx5_0"), hca("mlx5_1", pci=OTHER))
    now = (hca("mlx5_1"), hca("mlx5_0", pci=OTHER))
    assert keys(before, now) == {"0000:17:00.0": "mlx5_1", "0000:2a:00.0": "mlx5_0"}


def test_the_second_device_of_a_function_never_inherits_the_key_of_the_first() -> None:
    first, second = hca("mlx5_0", guid="1"), hca("rep_1", guid="2", kind=None)
    assert keys((first, second), (second,)) == {
        "0000:17:00.0": None,
        "0000:17:00.0/rep_1": "rep_1",
    }


def test_devices_of_one_function_that_are_both_renamed_are_recognized_by_guid() -> None:
    before = (hca("mlx5_0", guid="1"), hca("mlx5_1", guid="2"))
    now = (hca("a", guid="2"), hca("b", guid="1"))
    assert keys(before, now) == {"0000:17:00.0": "b", "0000:17:00.0/mlx5_1": "a"}


def test_a_name_that_was_someone_elses_key_gets_another_key() -> None:
    before = (hca("rxe0", pci=None, guid="1"),)
    now = (hca("rxe1", pci=None, guid="1"), hca("rxe0", pci=None, guid="2"))
    assert keys(before, now) == {"rxe0": "rxe1", "rxe0-2": "rxe0"}


def test_a_list_that_could_not_be_read_changes_nothing() -> None:
    before = after((hca("mlx5_0"),))
    assert remembered_hcas(before, Snapshot(hcas=None)) == before


def test_facts_that_are_unknown_now_stay_as_last_known() -> None:
    port = HcaPort(number=1, state="ACTIVE")
    full = replace(hca("mlx5_0", guid="1"), numa_node=1, hca_type="MT4129", ports=(port,))
    poor = Hca(name="rocep23s0", pci=FUNCTION)
    (known,) = after((full,), (poor,))
    assert known.hca == replace(full, name="rocep23s0")


@pytest.mark.parametrize("node", [-1, 7])
def test_a_numa_node_that_the_kernel_does_not_list_is_an_unknown_one(node: int) -> None:
    numa = (NumaNode(id=0, cpus=CpuSet.parse("0-1")),)
    snapshot = Snapshot(hcas=(replace(hca("mlx5_0"), numa_node=node),), numa_nodes=numa)
    assert [it.hca.numa_node for it in remembered_hcas((), snapshot)] == [None]


def test_an_hca_of_the_nvlink_fabric_is_forgotten() -> None:
    before = after((hca("mlx5_0"),))
    snapshot = Snapshot(hcas=(), management_hcas=(hca("mlx5_0"),))
    assert remembered_hcas(before, snapshot) == ()


def test_subfunctions_that_come_and_go_for_ever_are_forgotten_oldest_first() -> None:
    known: tuple[KnownHca, ...] = ()
    lists = [
        tuple(hca(f"sf{n}", subfunction=n) for n in range(at, at + MAX_HCAS // 2))
        for at in (0, MAX_HCAS // 2, MAX_HCAS)
    ]
    for hcas in lists:
        known = remembered_hcas(known, Snapshot(hcas=hcas))
    assert len(known) == MAX_HCAS
    assert [it.hca for it in known] == [*lists[1], *lists[2]]


FEW_HCAS = st.lists(
    st.builds(
        hca,
        st.sampled_from(["mlx5_0", "mlx5_1", "rep_0", "x" * 63]),
        st.sampled_from([None, FUNCTION, OTHER]),
        st.sampled_from([None, None, 1]),
        st.sampled_from([None, "1", "2"]),
    ),
    max_size=4,
    unique_by=lambda it: it.name,
).map(tuple)


@given(st.lists(st.none() | FEW_HCAS, max_size=5))
def test_keys_are_unique_and_keep_their_function_whatever_comes_and_goes(
    lists: list[tuple[Hca, ...] | None],
) -> None:
    places: dict[str, str] = {}
    known: tuple[KnownHca, ...] = ()
    for hcas in lists:
        known = remembered_hcas(known, Snapshot(hcas=hcas))
        assert len({it.key for it in known}) == len(known)
        assert all(len(it.key) <= MAX_KEY for it in known)
        for it in known:
            if it.hca.pci is not None:
                assert places.setdefault(it.key, hca_key(it.hca)) == hca_key(it.hca)
        present = {it.hca.name for it in known if not it.is_lost}
        if hcas is not None:
            assert present == {each.name for each in hcas}
