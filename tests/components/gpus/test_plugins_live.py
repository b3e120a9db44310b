"""Settings and health that change while resources are served, as a kubelet sees it."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from nodetopo.components.gpus.plan import PluginPlan
from nodetopo.deviceplugin.resources import Resource
from nodetopo.errors import InputError, UnreadableError
from nodetopo.kernel.settings.declare import Settings
from nodetopo.kernel.settings.policies import TimeSlicing, placement
from nodetopo.model.gpu_health import GpuHealth, HealthClass
from tests.components.gpus.plugin_sets import WAIT_S, ServedNode, serving_node
from tests.deviceplugin.eventually import eventually
from tests.deviceplugin.machines import node

MIG = node("h100x8-nvswitch-2numa-mig")
WHOLE = node("h100x8-nvswitch-2numa-8cx7")
GPU, ONE, THREE = "nvidia.com/gpu", "nvidia.com/mig-1g.10gb", "nvidia.com/mig-3g.40gb"
SHARED = "nvidia.com/gpu.shared"
FELL_OFF = GpuHealth(is_healthy=False, reason="Xid79", said="it fell off", kind=HealthClass.REBOOT)


def shared(count: int = 4, **how: Any) -> TimeSlicing:
    return TimeSlicing(replicas=MappingProxyType({GPU: count}), **how)


def endpoint(served: ServedNode, resource: str = GPU) -> tuple[str | None, int]:
    """Return the socket of a resource, and how often the kubelet has accepted it."""
    assert eventually(lambda: served.plugins.states[resource].is_registered)
    state = served.plugins.states[resource]
    return state.endpoint, state.registrations


def unhealthy(served: ServedNode, resource: str = GPU) -> set[str]:
    devices = served.kubelet.wait_registered(WAIT_S, resource).devices
    return {device.id for device in devices if not device.is_healthy}


def ids(served: ServedNode, resource: str = GPU) -> list[str]:
    return [device.id for device in served.kubelet.wait_registered(WAIT_S, resource).devices]


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
    with serving_node() as served:
        served.plugins.take(WHOLE)
        served.listed(GPU)
        before = endpoint(served)
        served.reconfigure()
        assert endpoint(served) == before
        assert ids(served) == [gpu.id for gpu in WHOLE.gpus]


@pytest.mark.parametrize("count", [2, 8])
def test_another_number_of_replicas_is_another_list_of_the_same_plugin(count: int) -> None:
    with serving_node(time_slicing=shared()) as served:
        served.plugins.take(WHOLE)
        served.listed(GPU)
        before = endpoint(served)
        served.reconfigure(time_slicing=shared(count))
        expected = [f"{gpu.id}::{number}" for gpu in WHOLE.gpus for number in range(count)]
        assert eventually(lambda: ids(served) == expected)
        assert endpoint(served) == before
        assert len({one.partition("::")[0] for one in served.kubelet.preferred(4)}) == 4


def test_replicas_that_no_kubelet_reads_leave_the_last_list() -> None:
    with serving_node(time_slicing=shared()) as served:
        served.plugins.take(WHOLE)
        served.listed(GPU)
        before = ids(served), endpoint(served)
        served.reconfigure(time_slicing=shared(50_000))
        assert [refusal.resource for refusal in served.plugins.refusals] == [GPU]
        served.plugins.take(WHOLE)  # and the next snapshot leaves it, too
        assert (ids(served), endpoint(served)) == before
        served.reconfigure(time_slicing=shared(2))
        assert eventually(lambda: len(ids(served)) == 16)
        assert served.plugins.refusals == ()


def test_a_strategy_that_changes_takes_back_what_it_no_longer_offers() -> None:
    with serving_node(mig_strategy="mixed") as served:
        served.plugins.take(MIG)
        served.listed(GPU, ONE, THREE)
        before = endpoint(served)
        served.reconfigure(mig_strategy="none")
        assert served.lacks(ONE)
        assert served.lacks(THREE)
        assert eventually(lambda: served.listed(GPU) == {GPU: 8})
        assert endpoint(served) == before
        served.reconfigure(mig_strategy="mixed")
        assert served.listed(ONE, THREE) == {ONE: 7, THREE: 2}


def test_a_resource_that_is_renamed_is_retired_under_its_old_name() -> None:
    with serving_node() as served:
        served.plugins.take(WHOLE)
        served.listed(GPU)
        served.reconfigure(time_slicing=shared(is_renamed=True))
        assert served.listed(SHARED) == {SHARED: 32}
        assert served.lacks(GPU)
        assert list(served.plugins.states) == [SHARED]


def test_what_containers_are_given_changes_with_a_new_plugin_and_never_with_two() -> None:
    with serving_node() as served, sockets_counted(served.directory) as seen:
        served.plugins.take(WHOLE)
        assert eventually(lambda: max(seen) == 1)
        old, _count = endpoint(served)
        served.reconfigure(device_list_strategy=("envvar",))
        assert eventually(lambda: served.is_followed(GPU))
        assert endpoint(served)[0] != old
        given = served.kubelet.allocate(served.kubelet.preferred(1))
        assert (given.cdi_devices, list(given.envs)) == ((), ["NVIDIA_VISIBLE_DEVICES"])
    assert max(seen) == 1


def test_devices_of_pods_keep_their_ids_over_a_new_plugin() -> None:
    with serving_node(time_slicing=shared()) as served:
        served.plugins.take(WHOLE)
        before = ids(served)
        served.reconfigure(time_slicing=shared(fails_requests_greater_than_one=True))
        assert eventually(lambda: served.plugins.states[GPU].is_registered)
        assert ids(served) == before


def test_another_placement_is_followed_by_the_plugin_that_is() -> None:
    settings = {"time_slicing": shared(), "placement_policy": placement("distributed")}
    with serving_node(**settings) as served:
        served.plugins.take(WHOLE)
        served.listed(GPU)
        before = endpoint(served)
        spread = served.kubelet.preferred(4)
        served.reconfigure(**{**settings, "placement_policy": placement("packed")})
        packed = served.kubelet.preferred(4)
        assert endpoint(served) == before
    assert [len({one.partition("::")[0] for one in found}) for found in (spread, packed)] == [4, 1]


def test_an_allocator_is_kept_until_the_settings_of_placement_change() -> None:
    def allocator() -> object:
        (resource,) = served.plugins.served
        assert resource.placement._current is not None
        return resource.placement._current.allocator

    with serving_node() as served:
        served.plugins.take(WHOLE)
        before = allocator()
        served.reconfigure(mig_strategy="mixed")
        assert allocator() is before
        served.reconfigure(mig_strategy="mixed", bandwidth_model="relay")
        assert allocator() is not before


def test_invalid_settings_change_nothing(tmp_path: Path) -> None:
    with serving_node() as served:
        served.plugins.take(WHOLE)
        served.listed(GPU)
        before = endpoint(served)
        with pytest.raises(InputError):
            served.reconfigure(mig_strategy="mixed", cdi_kind="no kind")
        with pytest.raises(UnreadableError, match="imex-required is set"):
            served.reconfigure(imex_channels=(0,), imex_required=True, host_root=tmp_path)
        assert endpoint(served) == before
        served.plugins.take(replace(WHOLE, node="again"))
        assert served.listed(GPU) == {GPU: 8}


def test_settings_before_the_first_snapshot_count_from_then_on() -> None:
    with serving_node() as served:
        served.reconfigure(mig_strategy="mixed")
        assert served.plugins.served == ()
        served.plugins.take(MIG)
        assert served.listed(GPU, ONE, THREE) == {GPU: 5, ONE: 7, THREE: 2}


def test_a_layout_that_breaks_the_strategy_serves_nothing_meanwhile() -> None:
    with serving_node(mig_strategy="mixed") as served:
        served.plugins.take(MIG)
        served.listed(GPU, ONE, THREE)
        served.reconfigure(mig_strategy="single")
        assert not served.plugins.served
        assert all(map(served.lacks, (GPU, ONE, THREE)))
        served.reconfigure(mig_strategy="mixed")
        assert served.listed(GPU, ONE, THREE) == {GPU: 5, ONE: 7, THREE: 2}


def test_gpus_are_excluded_and_given_back_while_the_plugin_goes_on() -> None:
    with capture_logs() as lines, serving_node() as served:
        served.plugins.take(WHOLE)
        served.listed(GPU)
        before = endpoint(served)
        spared = WHOLE.gpus[3].id
        for _twice in range(2):
            served.reconfigure(exclude_gpus=(spared, "*T4*"))
            assert eventually(lambda: spared not in ids(served))
        chosen = served.kubelet.preferred(7)
        assert (len(chosen), spared in chosen) == (7, False)
        served.reconfigure()
        assert eventually(lambda: ids(served) == [gpu.id for gpu in WHOLE.gpus])
        assert endpoint(served) == before
    told = [line for line in lines if line["event"] == "exclusion matches no GPU"]
    assert [(line["name"], line["log_level"]) for line in told] == [("*T4*", "warning")]


def test_all_replicas_follow_a_gpu_with_xid_79_and_come_back_with_it() -> None:
    gpu = WHOLE.gpus[2].id
    with serving_node(time_slicing=shared()) as served:
        served.plugins.take(WHOLE)
        served.listed(GPU)
        before = endpoint(served)
        served.plugins.take(WHOLE, {gpu: FELL_OFF})
        assert eventually(lambda: unhealthy(served) == {f"{gpu}::{n}" for n in range(4)})
        assert len(ids(served)) == 32
        served.plugins.take(WHOLE, {})
        assert eventually(lambda: unhealthy(served) == set())
        assert endpoint(served) == before


def test_health_stays_over_a_change_of_settings() -> None:
    gpu = WHOLE.gpus[2].id
    with serving_node() as served:
        served.plugins.take(WHOLE, {gpu: FELL_OFF})
        assert eventually(lambda: unhealthy(served) == {gpu})
        served.reconfigure(time_slicing=shared(2))
        assert eventually(lambda: unhealthy(served) == {f"{gpu}::0", f"{gpu}::1"})


def test_a_snapshot_waits_for_settings_that_are_being_put_in_force(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked, go, placement = threading.Event(), threading.Event(), PluginPlan.placement

    def slow(plan: PluginPlan, resource: Resource) -> Any:
        if plan.settings is settings and not asked.is_set():
            asked.set()
            assert go.wait(WAIT_S)
        return placement(plan, resource)

    monkeypatch.setattr(PluginPlan, "placement", slow)
    settings = Settings(node_name="n", mig_strategy="mixed")
    with serving_node() as served:
        served.plugins.take(MIG)
        changing = threading.Thread(target=served.plugins.reconfigured(settings, None))
        taking = threading.Thread(
            target=served.plugins.take,
            args=(replace(MIG, node="again"), {MIG.gpus[7].id: FELL_OFF}),
        )
        changing.start()
        assert asked.wait(WAIT_S)
        taking.start()
        taking.join(1.0)
        assert taking.is_alive()
        go.set()
        changing.join(WAIT_S)
        taking.join(WAIT_S)
        assert eventually(lambda: served.listed(GPU, ONE, THREE) == {GPU: 5, ONE: 7, THREE: 2})
        assert eventually(lambda: unhealthy(served) == {MIG.gpus[7].id})
