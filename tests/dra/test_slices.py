"""What is written to the API server, and what is left as it is."""

from collections.abc import Mapping
from typing import Any

from agent.dra.devices import Conditions
from agent.dra.pool import Pool
from agent.dra.slices import Changes, changes, slice_name
from agent.machines.bundled import machine

DGX = machine("dgx-h100")
POOL = Pool.of(DGX, DGX.gpus)
IDS = tuple(gpu.id for gpu in DGX.gpus)


def written(
    used: tuple[str, ...] = (), observed: Mapping[str, Any] | None = None, pool: Pool = POOL
) -> Changes:
    groups = pool.groups(used, Conditions())
    return changes("n", None, pool.counter_sets, groups, observed or {})


def stored(found: Changes, before: Mapping[str, Any] | None = None) -> dict[str, Any]:
    kept = {name: it for name, it in (before or {}).items() if name not in found.deleted}
    return {**kept, **{it["metadata"]["name"]: it for it in found.applied}}


def test_what_is_as_it_should_be_is_not_written() -> None:
    observed = stored(written())
    assert len(observed) == 7
    assert not written(observed=observed)


def test_another_order_is_written_without_a_new_generation() -> None:
    before = stored(written())
    found = written(IDS[:1], before)
    assert found.applied
    assert not found.deleted
    assert {it["spec"]["pool"]["generation"] for it in stored(found, before).values()} == {1}
    names = [it["metadata"]["name"] for it in found.applied]
    assert slice_name("n", "0-counters-0") not in names


def test_every_state_of_use_is_reached_from_every_other() -> None:
    states = [(), IDS[:1], IDS[4:5], IDS[:4], (IDS[0], IDS[5]), IDS[2:8], ()]
    observed: dict[str, Any] = {}
    for used in states:
        observed = stored(written(used, observed), observed)
        assert not written(used, observed)
        (generation,) = {it["spec"]["pool"]["generation"] for it in observed.values()}
        assert generation >= 1
        for size in (1, 2, 4, 8):
            (wanted,) = (
                it for it in POOL.groups(used, Conditions()) if it.name == f"{size:03d}-gpus"
            )
            tried = {it["name"] for it in wanted.devices[: wanted.tried]}
            found = [
                device["name"]
                for name in sorted(observed)
                if wanted.name in name
                for device in observed[name]["spec"]["devices"]
            ]
            assert len(found) == len(wanted.devices)
            met = next((name for name in found if name in tried), None)
            assert met == (wanted.devices[0]["name"] if tried else None)


def test_a_device_that_has_to_move_takes_a_new_generation_of_all_slices() -> None:
    before = stored(written())
    last = slice_name("n", "004-gpus-1")
    moved = before[last]["spec"]["devices"]
    used = tuple(gpu for gpu in IDS if gpu not in POOL.backing(moved[0]["name"]).gpus)  # type: ignore[union-attr]
    kept = written(used, before)  # the only free set is in the last slice, where it may stay
    assert {it["spec"]["pool"]["generation"] for it in kept.applied} <= {1}
    swapped = dict(before)
    first = slice_name("n", "004-gpus-0")
    for name, devices in (
        (first, [*before[first]["spec"]["devices"][1:], moved[0]]),
        (last, [before[first]["spec"]["devices"][0], *moved[1:]]),
    ):
        swapped[name] = {**before[name], "spec": {**before[name]["spec"], "devices": devices}}
    found = written(observed=swapped)
    assert len(found.applied) == len(before)
    assert {it["spec"]["pool"]["generation"] for it in found.applied} == {2}


def test_a_slice_that_is_gone_or_foreign_is_put_right() -> None:
    before = stored(written())
    lacking = {name: it for name, it in before.items() if not name.endswith("001-gpus-0")}
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
