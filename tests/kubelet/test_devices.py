from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from agent.kubelet.devices import PluginDevice, merge, plugin_devices
from agent.machines.bundled import machine
from agent.model.numa import CpuSet, NumaNode
from agent.model.snapshot import ProbeIssue, Snapshot

TWO_SOCKETS = machine("l40s-pcie-4")


def on_nodes(*nodes: int | None, snapshot: Snapshot = TWO_SOCKETS) -> Snapshot:
    gpus = zip(snapshot.gpus, nodes, strict=True)
    return replace(snapshot, gpus=tuple(replace(gpu, numa_node=node) for gpu, node in gpus))


def nodes_of(devices: tuple[PluginDevice, ...]) -> list[tuple[int, ...]]:
    return [device.numa_nodes for device in devices]


def test_each_gpu_is_offered_by_uuid_with_its_node_and_minor_number() -> None:
    expected = tuple(
        PluginDevice(
            id=f"GPU-0000d6c1-0000-4000-8000-00000000000{n}", numa_nodes=(n // 4,), minor=n
        )
        for n in range(8)
    )
    assert plugin_devices(machine("dgx-h100")) == expected


def test_a_gpu_whose_node_is_unknown_is_near_all_nodes() -> None:
    assert nodes_of(plugin_devices(on_nodes(0, None, 1, 1))) == [(0,), (0, 1), (1,), (1,)]


def test_a_negative_node_is_an_unknown_one() -> None:
    assert nodes_of(plugin_devices(on_nodes(0, -1, 1, 1))) == [(0,), (0, 1), (1,), (1,)]


def test_a_node_that_the_kernel_does_not_list_is_an_unknown_one() -> None:
    assert nodes_of(plugin_devices(on_nodes(0, 7, 1, 1))) == [(0,), (0, 1), (1,), (1,)]


def test_no_gpu_has_a_node_where_all_are_unknown() -> None:
    assert nodes_of(plugin_devices(on_nodes(None, None, None, None))) == [(), (), (), ()]


def test_memory_only_nodes_are_near_no_gpu_of_unknown_place() -> None:
    cpu_less = NumaNode(id=8, cpus=CpuSet())
    snapshot = replace(TWO_SOCKETS, numa_nodes=(*(TWO_SOCKETS.numa_nodes or ()), cpu_less))
    assert nodes_of(plugin_devices(on_nodes(0, None, 1, 1, snapshot=snapshot)))[1] == (0, 1)


def test_a_gpu_without_a_uuid_is_not_offered() -> None:
    nameless = replace(TWO_SOCKETS.gpus[0], uuid=None)
    snapshot = replace(TWO_SOCKETS, gpus=(nameless, *TWO_SOCKETS.gpus[1:]))
    assert plugin_devices(snapshot) == plugin_devices(TWO_SOCKETS)[1:]


def test_a_lost_gpu_is_unhealthy() -> None:
    lost = replace(TWO_SOCKETS.gpus[1], is_lost=True)
    snapshot = replace(TWO_SOCKETS, gpus=(TWO_SOCKETS.gpus[0], lost, *TWO_SOCKETS.gpus[2:]))
    healths = [device.is_healthy for device in plugin_devices(snapshot)]
    assert healths == [True, False, True, True]


def test_a_gpu_that_is_gone_stays_in_its_place_unhealthy() -> None:
    before = plugin_devices(TWO_SOCKETS)
    without = replace(TWO_SOCKETS, gpus=(TWO_SOCKETS.gpus[0], *TWO_SOCKETS.gpus[2:]))
    gone = replace(before[1], is_healthy=False)
    assert merge(before, without) == (before[0], gone, *before[2:])


def test_a_gpu_that_comes_back_is_healthy_again() -> None:
    before = plugin_devices(TWO_SOCKETS)
    away = merge(before, replace(TWO_SOCKETS, gpus=TWO_SOCKETS.gpus[1:]))
    assert merge(away, TWO_SOCKETS) == before


def test_a_gpu_that_lost_its_node_and_minor_number_keeps_the_last_known() -> None:
    before = plugin_devices(TWO_SOCKETS)
    vague = replace(TWO_SOCKETS.gpus[3], numa_node=None, minor=None)
    assert merge(before, replace(TWO_SOCKETS, gpus=(*TWO_SOCKETS.gpus[:3], vague))) == before


def test_a_silent_nvml_proves_nothing_about_the_gpus() -> None:
    before = plugin_devices(TWO_SOCKETS)
    silent = Snapshot(issues=(ProbeIssue(probe="nvml", subject="scan", reason="timed out"),))
    assert merge(before, silent) == before


def test_a_complete_scan_without_gpus_makes_all_unhealthy() -> None:
    before = plugin_devices(TWO_SOCKETS)
    assert merge(before, Snapshot()) == tuple(replace(d, is_healthy=False) for d in before)


SIGHTINGS = st.lists(
    st.lists(st.one_of(st.none(), st.integers(-1, 3)), min_size=4, max_size=4), min_size=1
)


@given(sightings=SIGHTINGS)
def test_all_devices_have_a_node_or_none_has_whatever_was_seen(
    sightings: list[list[int | None]],
) -> None:
    devices: tuple[PluginDevice, ...] = ()
    for nodes in sightings:
        devices = merge(devices, on_nodes(*nodes))
    assert len({bool(device.numa_nodes) for device in devices}) == 1
    assert min((node for device in devices for node in device.numa_nodes), default=0) >= 0
