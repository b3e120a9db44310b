"""What is written to the API server, and what is left as it is."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from nodetopo.components.dra.choice import chain_sizes
from nodetopo.components.dra.devices import Conditions
from nodetopo.components.dra.form import Form
from nodetopo.components.dra.pool import Pool
from nodetopo.components.dra.slices import Changes, Group, changes, slice_name
from nodetopo.machines.bundled import machine
from nodetopo.model.gpu_health import GpuHealth
from tests.components.dra.test_pool import with_mig

DGX = machine("dgx-h100")
POOL = Pool.of(DGX, DGX.gpus)
GPUS = Pool.of(DGX, DGX.gpus, form=Form(has_sets=False))
BARE = Pool.of(DGX, DGX.gpus, form=Form(has_sets=False, has_taints=False))
MESH = machine("dgx-1v")
IDS = tuple(gpu.id for gpu in DGX.gpus)
SINCE = "2026-01-01T00:00:00Z"
DEVICES, COUNTERS = slice_name("n", "1-devices-0"), slice_name("n", "0-counters-0")

Slices = Mapping[str, Any]


def written(
    used: Collection[str] = (),
    observed: Slices | None = None,
    pool: Pool = POOL,
    now: Conditions = Conditions(),  # noqa: B008 (frozen)
) -> Changes:
    groups = pool.groups(used, now)
    return changes("n", None, pool.counter_sets, groups, observed or {})


def stored(found: Changes, before: Slices | None = None) -> dict[str, Any]:
    kept = {name: it for name, it in (before or {}).items() if name not in found.deleted}
    return {**kept, **{it["metadata"]["name"]: it for it in found.applied}}


def order(observed: Slices) -> list[str]:
    return [
        device["name"]
        for name in sorted(observed)
        for device in observed[name]["spec"].get("devices", ())
    ]


def marks(observed: Slices) -> list[set[str]]:
    """Return the sizes for which devices are marked as the best, in their order."""
    devices = (it for each in observed.values() for it in each["spec"].get("devices", ()))
    return [{name for name in it["attributes"] if name.startswith("best")} for it in devices]


def leads(observed: Slices, groups: Sequence[Group], sizes: Collection[int]) -> None:
    """Check that each claim gets from *observed* what it would get from *groups*."""
    names = order(observed)
    assert sorted(names) == sorted(it["name"] for group in groups for it in group.devices)
    for group in groups:
        met = [name for name in names if name in set(group.able)]
        if group.name == "001-gpus":
            for size in sizes:
                assert set(met[:size]) == set(group.able[:size]), (group.name, size)
        elif group.name.endswith("-gpus"):
            assert met[:1] == [*group.able[:1]], group.name


def test_what_is_as_it_should_be_is_not_written() -> None:
    observed = stored(written())
    assert sorted(observed) == [COUNTERS, DEVICES]
    assert not written(observed=observed)


def test_the_best_device_of_each_kind_is_in_front() -> None:
    assert order(stored(written()))[:14] == [
        "gpu-1b",
        "gpus-1b-43",
        "gpus-1b-43-52-61",
        "gpus-1b-43-52-61-9d-c3-d1-df",
        *("gpu-43", "gpu-52", "gpu-61", "gpu-9d", "gpu-c3", "gpu-d1", "gpu-df"),
        *("gpus-52-61", "gpus-9d-c3", "gpus-d1-df"),
    ]


def test_another_order_is_one_write_without_a_new_generation() -> None:
    before = stored(written())
    found = written(IDS[:1], before)
    assert [it["metadata"]["name"] for it in found.applied] == [DEVICES]
    assert not found.deleted
    assert {it["spec"]["pool"]["generation"] for it in stored(found, before).values()} == {1}


def test_nothing_is_written_where_the_next_claims_get_the_same() -> None:
    before = stored(written(IDS[:2]))
    assert not written(IDS[:2] + IDS[4:], before)  # of the free, all are in use but two


def test_where_nothing_is_free_the_order_stays() -> None:
    before = stored(written())
    assert order(stored(written(IDS, before), before)) == order(before)


def test_devices_that_cannot_be_allocated_keep_their_order() -> None:
    before = stored(written())
    after = stored(written(IDS[:1], before), before)
    unable = [name for name in order(before) if "-1b" in name and not name.startswith("admin")]
    assert [name for name in order(after) if name in unable] == unable


def unhealthy(gpus: Collection[str]) -> Mapping[str, GpuHealth]:
    return {gpu: GpuHealth(is_healthy=False, reason="Xid79") for gpu in gpus}


subsets = st.sets(st.integers(0, 7))
steps = st.lists(st.tuples(subsets, subsets, subsets), min_size=1, max_size=6)


@pytest.mark.parametrize("form", [Form(), Form(has_sets=False), Form(sizes=(2, 3))])
@pytest.mark.parametrize("name", ["dgx-h100", "dgx-1v", "rtxpro6000-pcie-8"])
@given(steps=steps)
@settings(max_examples=40, deadline=None)
def test_any_state_is_reached_from_any_other(
    steps: list[tuple[set[int], set[int], set[int]]], name: str, form: Form
) -> None:
    pool = POOLS[name, form.has_sets, form.sizes]
    ids = [gpu.id for gpu in pool.snapshot.gpus]
    observed: dict[str, Any] = {}
    taints: object = None
    for used, unsound, held in steps:
        bad, kept = {ids[at] for at in unsound}, frozenset(ids[at] for at in held)
        now = Conditions(health=unhealthy(bad), held=kept)
        now = replace(now, since=dict.fromkeys(now.tainted, SINCE))
        gpus = {ids[at] for at in used}
        found = written(gpus, observed, pool, now)
        before, observed = observed, stored(found, observed)
        groups = pool.groups(gpus, now)
        leads(observed, groups, chain_sizes(len(ids), form.sizes))
        assert not written(gpus, observed, pool, now)  # as after a restart
        assert {it["spec"]["pool"]["generation"] for it in observed.values()} == {1}
        if before:
            assert len(found.applied) <= 1
            able = {name for group in groups for name in group.able}
            was, now_is = ([it for it in order(s) if it not in able] for s in (before, observed))
            assert was == now_is
            if taints == (bad, kept):
                is_other = (order(before), marks(before)) != (order(observed), marks(observed))
                assert bool(found) == is_other
        taints = bad, kept


POOLS = {
    (name, form.has_sets, form.sizes): Pool.of(machine(name), machine(name).gpus, form=form)
    for name in ("dgx-h100", "dgx-1v", "rtxpro6000-pcie-8")
    for form in (Form(), Form(has_sets=False), Form(sizes=(2, 3)))
}


@pytest.mark.parametrize("name", ["dgx-h100", "dgx-1v", "rtxpro6000-pcie-8"])
@given(choices=st.lists(st.integers(0, 99), min_size=1, max_size=12))
@settings(max_examples=40, deadline=None)
def test_devices_in_the_way_of_claims_come_and_go_by_one_write(
    choices: list[int], name: str
) -> None:
    """Each number allocates a device that is able, or ends a claim; claims keep their counters."""
    pool = POOLS[name, True, ()]
    claims: dict[str, tuple[str, ...]] = {}
    observed: dict[str, Any] = {}
    for number in choices:
        used = {gpu for gpus in claims.values() for gpu in gpus}
        groups = pool.groups(used, Conditions(), claims)
        found = changes("n", None, pool.counter_sets, groups, observed)
        assert len(found.applied) <= (1 if observed else 2)
        observed = stored(found, observed)
        assert {it["spec"]["pool"]["generation"] for it in observed.values()} == {1}
        assert not changes("n", None, pool.counter_sets, groups, observed)
        leads(observed, groups, chain_sizes(len(pool.snapshot.gpus)))
        shown = [it for it in order(observed) if not it.startswith("admin-")]
        assert claims.keys() <= set(shown)
        able = [it for it in shown if used.isdisjoint(pool.backings[it].gpus)]
        assert sorted(able) == sorted(
            it.name for it in pool.sets if used.isdisjoint(pool.backings[it.name].gpus)
        )
        assert len(shown) == len(able) + len(claims)
        if able and number % 3:
            claims[able[number % len(able)]] = pool.backings[able[number % len(able)]].gpus
        elif claims:
            del claims[[*claims][number % len(claims)]]


@given(states=st.lists(subsets, min_size=1, max_size=6))
@settings(max_examples=50, deadline=None)
def test_without_taints_there_is_one_slice_at_most_whatever_is_left_out(
    states: list[set[int]],
) -> None:
    observed: dict[str, Any] = {}
    for unsound in states:
        now = Conditions(health=unhealthy({IDS[at] for at in unsound}))
        found = written((), observed, BARE, now)
        assert len(found.applied) <= 1
        observed = stored(found, observed)
        assert list(observed) == ([] if len(unsound) == len(IDS) else [DEVICES])
        assert not written((), observed, BARE, now)
        leads(observed, BARE.groups((), now), (1, 2, 4, 8))


def test_a_change_of_the_form_is_a_new_generation_of_all_slices() -> None:
    before = stored(written())
    found = written(observed=before, pool=GPUS)
    assert found.deleted == (COUNTERS,)
    assert [it["metadata"]["name"] for it in found.applied] == [DEVICES]
    (only,) = stored(found, before).values()
    assert only["spec"]["pool"] == {"name": "n", "generation": 2, "resourceSliceCount": 1}
    again = written(observed=stored(found, before))
    assert {it["spec"]["pool"]["generation"] for it in again.applied} == {3}


def test_the_slices_of_an_earlier_release_are_replaced() -> None:
    body = {"spec": {"pool": {"generation": 4}, "devices": []}}
    old = {slice_name("n", part): body for part in ("0-counters-0", "000-single-0", "002-gpus-0")}
    found = written(observed=old)
    assert len(found.deleted) == 2
    assert {it["spec"]["pool"]["generation"] for it in found.applied} == {5}


def many_parts() -> Pool:
    """Return a pool of 112 MIG devices, which take two slices."""
    snapshot = with_mig(DGX)
    mig = snapshot.gpus[0].mig
    assert mig is not None
    parts = tuple(replace(mig.instances[0], uuid=f"MIG-{at}", gpu_instance=at) for at in range(112))
    gpu = replace(snapshot.gpus[0], mig=replace(mig, instances=parts))
    return Pool.of(replace(snapshot, gpus=(gpu, *snapshot.gpus[1:])), (gpu, *snapshot.gpus[1:]))


def test_a_device_that_comes_back_changes_one_of_several_slices() -> None:
    pool = many_parts()
    before = stored(written(pool=pool))
    used, claimed = IDS[1:8], ["gpus-43-52-61-9d-c3-d1-df"]
    groups = pool.groups(used, Conditions(), claimed)
    fewer = changes("n", None, pool.counter_sets, groups, before)
    assert not fewer.deleted
    less = stored(fewer, before)
    again = written((), less, pool)
    assert sorted(order(stored(again, less))) == sorted(order(before))
    assert {it["metadata"]["name"] for it in again.applied} == {DEVICES}


def test_devices_stay_in_their_slices_where_there_are_several() -> None:
    pool = many_parts()
    before = stored(written(pool=pool))
    assert len(before) == 4
    assert [len(it["spec"].get("devices", ())) for it in before.values()] == [0, 64, 64, 2]
    used = IDS[4:5]  # of the best four
    found = written(used, before, pool)
    assert [it["metadata"]["name"] for it in found.applied] == [DEVICES]
    assert {it["spec"]["pool"]["generation"] for it in found.applied} == {1}
    assert not written(used, stored(found, before), pool)


def test_a_device_that_has_to_move_takes_a_new_generation_of_all_slices() -> None:
    pool = many_parts()
    before = stored(written(pool=pool))
    moved = pool.groups((), Conditions())[0].devices[0]
    swapped = {}
    for name, it in before.items():  # the best single GPU comes last
        devices = [each for each in it["spec"].get("devices", ()) if each["name"] != moved["name"]]
        if name == max(before):
            devices.append(moved)
        swapped[name] = {**it, "spec": {**it["spec"], "devices": devices}}
    found = written((), swapped, pool)
    assert {it["spec"]["pool"]["generation"] for it in found.applied} == {2}
    assert len(found.applied) == len(before)


def test_a_slice_that_is_gone_or_foreign_is_put_right() -> None:
    before = stored(written())
    lacking = {name: it for name, it in before.items() if name != COUNTERS}
    found = written(observed=lacking)
    assert len(found.applied) == len(before)
    extra = {**before, "n-other": {"spec": {"pool": {"generation": 9}}}}
    found = written(observed=extra)
    assert found.deleted == ("n-other",)
    assert {it["spec"]["pool"]["generation"] for it in found.applied} == {10}


def test_a_long_node_name_has_short_slice_names() -> None:
    names = [slice_name("n" * 200 + end, "0") for end in ("", ".a" * 20, ".b" * 20)]
    assert len(set(names)) == 3
    assert all(len(name) <= 253 for name in names)


def test_slices_go_with_their_node() -> None:
    owner = {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "1"}
    found = changes("n", owner, POOL.counter_sets, POOL.groups((), Conditions()), {})
    assert all(it["metadata"]["ownerReferences"] == [owner] for it in found.applied)
