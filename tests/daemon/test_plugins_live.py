"""Settings and health that change while resources are served, as a kubelet sees it."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from structlog.testing import capture_logs

from agent.config.policies import TimeSlicing, placement
from agent.config.settings import Settings
from agent.daemon.placement import Placement, Placements
from agent.deviceplugin.resources import Resource
from agent.errors import InputError, UnreadableError
from agent.health.status import GpuHealth, HealthClass
from tests.daemon.plugin_sets import WAIT_S, Played, playing
from tests.deviceplugin.eventually import eventually
from tests.deviceplugin.machines import node

MIG = node("h100x8-nvswitch-2numa-mig")
WHOLE = node("h100x8-nvswitch-2numa-8cx7")
GPU, ONE, THREE = "nvidia.com/gpu", "nvidia.com/mig-1g.10gb", "nvidia.com/mig-3g.40gb"
SHARED = "nvidia.com/gpu.shared"
FELL_OFF = GpuHealth(is_healthy=False, reason="Xid79", said="it fell off", kind=HealthClass.REBOOT)


def shared(count: int = 4, **how: Any) -> TimeSlicing:
    return TimeSlicing(replicas=MappingProxyType({GPU: count}), **how)


def endpoint(played: Played, resource: str = GPU) -> tuple[str | None, int]:
    """Return the socket of a resource, and how often the kubelet has accepted it."""
    assert eventually(lambda: played.offering.states[resource].is_registered)
    state = played.offering.states[resource]
    return state.endpoint, state.registrations


def unhealthy(played: Played, resource: str = GPU) -> set[str]:
    devices = played.kubelet.wait_registered(WAIT_S, resource).devices
    return {device.id for device in devices if not device.is_healthy}


def ids(played: Played, resource: str = GPU) -> list[str]:
    return [device.id for device in played.kubelet.wait_registered(WAIT_S, resource).devices]


@contextmanager
def sockets_counted(directory: Path) -> Iterator[list[int]]:
    """Yield how many sockets a resource has, most of them first seen, looked at all the time."""
    seen, stop = [0], threading.Event()

    def look() -> None:
        while not stop.is_set():
            names = [path.name for path in directory.glob("nodetopo-*.sock")]
            counts = Counter(name.rsplit("-", 2)[0] for name in names)
            seen.append(max(counts.values(), default=0))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        stop.set()
        thread.join()


def test_settings_that_change_nothing_leave_the_plugin_and_its_stream() -> None:
    with playing() as played:
        played.offering.take(WHOLE)
        played.listed(GPU)
        before = endpoint(played)
        played.reconfigure()
        assert endpoint(played) == before
        assert ids(played) == [gpu.id for gpu in WHOLE.gpus]


@pytest.mark.parametrize("count", [2, 8])
def test_another_number_of_replicas_is_another_list_of_the_same_plugin(count: int) -> None:
    with playing(time_slicing=shared()) as played:
        played.offering.take(WHOLE)
        played.listed(GPU)
        before = endpoint(played)
        played.reconfigure(time_slicing=shared(count))
        expected = [f"{gpu.id}::{number}" for gpu in WHOLE.gpus for number in range(count)]
        assert eventually(lambda: ids(played) == expected)
        assert endpoint(played) == before
        assert len({one.partition("::")[0] for one in played.kubelet.preferred(4)}) == 4


def test_a_strategy_that_changes_takes_back_what_it_no_longer_offers() -> None:
    with playing(mig_strategy="mixed") as played:
        played.offering.take(MIG)
        played.listed(GPU, ONE, THREE)
        before = endpoint(played)
        played.reconfigure(mig_strategy="none")
        assert played.lacks(ONE)
        assert played.lacks(THREE)
        assert eventually(lambda: played.listed(GPU) == {GPU: 8})
        assert endpoint(played) == before
        played.reconfigure(mig_strategy="mixed")
        assert played.listed(ONE, THREE) == {ONE: 7, THREE: 2}


def test_a_resource_that_is_renamed_is_retired_under_its_old_name() -> None:
    with playing() as played:
        played.offering.take(WHOLE)
        played.listed(GPU)
        played.reconfigure(time_slicing=shared(is_renamed=True))
        assert played.listed(SHARED) == {SHARED: 32}
        assert played.lacks(GPU)
        assert list(played.offering.states) == [SHARED]


def test_what_containers_are_given_changes_with_a_new_plugin_and_never_with_two() -> None:
    with playing() as played, sockets_counted(played.directory) as seen:
        played.offering.take(WHOLE)
        assert eventually(lambda: max(seen) == 1)
        old, _count = endpoint(played)
        played.reconfigure(device_list_strategy=("envvar",))
        assert eventually(lambda: played.is_followed(GPU))
        assert endpoint(played)[0] != old
        given = played.kubelet.allocate(played.kubelet.preferred(1))
        assert (given.cdi_devices, list(given.envs)) == ((), ["NVIDIA_VISIBLE_DEVICES"])
    assert max(seen) == 1


def test_devices_of_pods_keep_their_ids_over_a_new_plugin() -> None:
    with playing(time_slicing=shared()) as played:
        played.offering.take(WHOLE)
        before = ids(played)
        played.reconfigure(time_slicing=shared(fails_requests_greater_than_one=True))
        assert eventually(lambda: played.offering.states[GPU].is_registered)
        assert ids(played) == before


def test_another_placement_is_followed_by_the_plugin_that_is() -> None:
    settings = {"time_slicing": shared(), "placement_policy": placement("distributed")}
    with playing(**settings) as played:
        played.offering.take(WHOLE)
        played.listed(GPU)
        before = endpoint(played)
        spread = played.kubelet.preferred(4)
        played.reconfigure(**{**settings, "placement_policy": placement("packed")})
        packed = played.kubelet.preferred(4)
        assert endpoint(played) == before
    assert [len({one.partition("::")[0] for one in found}) for found in (spread, packed)] == [4, 1]


def test_a_placement_that_stays_keeps_what_it_has_worked_out() -> None:
    with playing() as played:
        played.offering.take(WHOLE)
        (before,) = played.offering.served
        kept = before.placement
        played.reconfigure(exclude_gpus=("GPU7",))
        assert played.offering.served[0].placement is kept
        played.reconfigure(bandwidth_model="relay")
        assert played.offering.served[0].placement is not kept


def test_settings_that_do_not_do_change_nothing(tmp_path: Path) -> None:
    with playing() as played:
        played.offering.take(WHOLE)
        played.listed(GPU)
        before = endpoint(played)
        with pytest.raises(InputError):
            played.reconfigure(mig_strategy="mixed", cdi_kind="no kind")
        with pytest.raises(InputError, match="a unix socket may have 107"):
            played.reconfigure(resource_name=f"nvidia.com/{'x' * 90}")
        with pytest.raises(UnreadableError, match="imex-required is set"):
            played.reconfigure(imex_channels=(0,), imex_required=True, host_root=tmp_path)
        assert endpoint(played) == before
        played.offering.take(replace(WHOLE, node="again"))
        assert played.listed(GPU) == {GPU: 8}


def test_settings_before_the_first_snapshot_count_from_then_on() -> None:
    with playing() as played:
        played.reconfigure(mig_strategy="mixed")
        assert played.offering.served == ()
        played.offering.take(MIG)
        assert played.listed(GPU, ONE, THREE) == {GPU: 5, ONE: 7, THREE: 2}


def test_a_layout_that_breaks_the_new_strategy_serves_nothing_until_settings_are_back() -> None:
    with playing(mig_strategy="mixed") as played:
        played.offering.take(MIG)
        played.listed(GPU, ONE, THREE)
        played.reconfigure(mig_strategy="single")
        assert not played.offering.served
        assert all(map(played.lacks, (GPU, ONE, THREE)))
        played.reconfigure(mig_strategy="mixed")
        assert played.listed(GPU, ONE, THREE) == {GPU: 5, ONE: 7, THREE: 2}


def test_gpus_are_excluded_and_given_back_while_the_plugin_goes_on() -> None:
    with capture_logs() as lines, playing() as played:
        played.offering.take(WHOLE)
        played.listed(GPU)
        before = endpoint(played)
        spared = WHOLE.gpus[3].id
        for _twice in range(2):
            played.reconfigure(exclude_gpus=(spared, "*T4*"))
            assert eventually(lambda: spared not in ids(played))
        chosen = played.kubelet.preferred(7)
        assert (len(chosen), spared in chosen) == (7, False)
        played.reconfigure()
        assert eventually(lambda: ids(played) == [gpu.id for gpu in WHOLE.gpus])
        assert endpoint(played) == before
    told = [line for line in lines if line["event"] == "exclusion names no GPU"]
    assert [(line["name"], line["log_level"]) for line in told] == [("*T4*", "warning")]


def test_all_replicas_follow_a_gpu_with_xid_79_and_come_back_with_it() -> None:
    gpu = WHOLE.gpus[2].id
    with playing(time_slicing=shared()) as played:
        played.offering.take(WHOLE)
        played.listed(GPU)
        before = endpoint(played)
        played.offering.take(WHOLE, {gpu: FELL_OFF})
        assert eventually(lambda: unhealthy(played) == {f"{gpu}::{n}" for n in range(4)})
        assert len(ids(played)) == 32
        played.offering.take(WHOLE, {})
        assert eventually(lambda: unhealthy(played) == set())
        assert endpoint(played) == before


def test_health_stays_over_a_change_of_settings() -> None:
    gpu = WHOLE.gpus[2].id
    with playing() as played:
        played.offering.take(WHOLE, {gpu: FELL_OFF})
        assert eventually(lambda: unhealthy(played) == {gpu})
        played.reconfigure(time_slicing=shared(2))
        assert eventually(lambda: unhealthy(played) == {f"{gpu}::0", f"{gpu}::1"})


class SlowPlacements(Placements):
    """Takes its time over the first placement, until it may go on."""

    asked = threading.Event()
    go = threading.Event()

    def placement(self, resource: Resource) -> Placement:
        """Return a placement, when it may."""
        if not self.asked.is_set():
            self.asked.set()
            assert self.go.wait(WAIT_S)
        return super().placement(resource)


def test_a_snapshot_waits_for_settings_that_are_being_put_in_force() -> None:
    slow = SlowPlacements(settings=Settings(node_name="n", mig_strategy="mixed"))
    with playing() as played:
        played.offering.take(MIG)
        changing = threading.Thread(target=played.offering.reconfigure, args=(slow.settings, slow))
        taking = threading.Thread(
            target=played.offering.take,
            args=(replace(MIG, node="again"), {MIG.gpus[7].id: FELL_OFF}),
        )
        changing.start()
        assert slow.asked.wait(WAIT_S)
        taking.start()
        taking.join(1.0)
        assert taking.is_alive()
        slow.go.set()
        changing.join(WAIT_S)
        taking.join(WAIT_S)
        assert eventually(lambda: played.listed(GPU, ONE, THREE) == {GPU: 5, ONE: 7, THREE: 2})
        assert eventually(lambda: unhealthy(played) == {MIG.gpus[7].id})


def test_neither_a_verdict_nor_a_stop_waits_for_answers_that_are_being_worked_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    preparing, go = threading.Event(), threading.Event()

    def prepare(_placement: Placement) -> None:
        preparing.set()
        assert go.wait(WAIT_S)

    monkeypatch.setattr(Placement, "prepare", prepare)
    with playing() as played:
        played.offering.take(WHOLE)
        worker = threading.Thread(target=played.offering.prepare)
        worker.start()
        try:
            assert preparing.wait(WAIT_S)
            played.offering.take(WHOLE, {WHOLE.gpus[7].id: FELL_OFF})
            assert eventually(lambda: unhealthy(played) == {WHOLE.gpus[7].id})
            played.offering.stop()
            assert worker.is_alive()
        finally:
            go.set()
            worker.join(WAIT_S)
