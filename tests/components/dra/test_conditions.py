"""When the conditions of GPUs began, as their taints say."""

from itertools import permutations
from typing import Any

import pytest

from nodetopo.components.dra import conditions
from nodetopo.components.dra.conditions import ConditionsKeeper
from nodetopo.components.dra.devices import FOREIGN, HELD, UNHEALTHY, Conditions, tainted
from nodetopo.components.dra.form import Form
from nodetopo.components.dra.pool import Pool
from nodetopo.components.dra.slices import changes
from nodetopo.machines.bundled import machine
from nodetopo.model.gpu_health import GpuHealth

DGX = machine("dgx-h100")
FIRST, SECOND = (gpu.id for gpu in DGX.gpus[:2])
POOL = Pool.of(DGX, DGX.gpus, form=Form(has_admin=True))
BAD = GpuHealth(is_healthy=False, reason="Xid79")
THURSDAY, SATURDAY, SUNDAY = (f"2026-01-0{day}T10:00:00Z" for day in (1, 3, 4))

KINDS: dict[str, dict[str, Any]] = {
    UNHEALTHY: {"health": {FIRST: BAD}},
    HELD: {"held": (FIRST,)},
    FOREIGN: {"foreign": {FIRST: "gpu.example.com"}},
}
"""How a GPU comes to each taint."""


class Days:
    """A keeper, and the day."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = THURSDAY
        monkeypatch.setattr(conditions, "_now", lambda: self.now)
        self.keeper = ConditionsKeeper()
        self.slices: dict[str, Any] = {}

    def at(self, day: str, *kinds: str) -> dict[str, str]:
        """Return the time of each taint of the GPU with these conditions on that day."""
        self.now = day
        given: dict[str, Any] = {"health": {}, "held": (), "foreign": {}}
        for kind in kinds:
            given |= KINDS[kind]
        found = self.keeper.conditions(POOL, self.slices, evicts=True, **given)
        written = changes("node", None, POOL.counter_sets, POOL.groups((), found), {}).applied
        self.slices = {body["metadata"]["name"]: body for body in written}
        return {it["key"]: it["timeAdded"] for it in tainted({}, (FIRST,), found)["taints"]}


@pytest.fixture
def days(monkeypatch: pytest.MonkeyPatch) -> Days:
    return Days(monkeypatch)


@pytest.mark.parametrize(("before", "later"), [*permutations(KINDS, 2)])
def test_each_condition_of_a_gpu_has_its_own_start(days: Days, before: str, later: str) -> None:
    assert days.at(THURSDAY, before) == {before: THURSDAY}
    assert days.at(SATURDAY, before, later) == {before: THURSDAY, later: SATURDAY}
    assert days.at(SUNDAY, later) == {later: SATURDAY}
    assert days.at(SUNDAY, before, later) == {before: SUNDAY, later: SATURDAY}


@pytest.mark.parametrize(("before", "later"), [*permutations(KINDS, 2)])
def test_a_new_process_takes_each_start_from_its_own_taint(
    days: Days, before: str, later: str
) -> None:
    days.at(THURSDAY, before)
    days.at(SATURDAY, before, later)
    days.keeper = ConditionsKeeper()
    assert days.at(SUNDAY, before, later) == {before: THURSDAY, later: SATURDAY}


@pytest.mark.parametrize("order", [(FIRST, SECOND), (SECOND, FIRST)])
@pytest.mark.parametrize("key", KINDS)
def test_a_set_is_tainted_since_its_first_gpu_was(order: tuple[str, str], key: str) -> None:
    times = {(FIRST, key): SATURDAY, (SECOND, key): THURSDAY}
    now = Conditions(
        health={FIRST: BAD, SECOND: GpuHealth(is_healthy=False, reason="GpuLost")},
        held=frozenset(order),
        foreign=dict.fromkeys(order, "gpu.example.com"),
        since=times,
    )
    (taint,) = (it for it in tainted({}, order, now)["taints"] if it["key"] == key)
    assert taint["timeAdded"] == THURSDAY
    if key == UNHEALTHY:
        assert taint["value"] == "GpuLost"
