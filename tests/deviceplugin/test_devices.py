from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from nodetopo.deviceplugin.devices import PluginDevice, remembered
from nodetopo.deviceplugin.resources import MigStrategy, Offer, Rules, offer
from nodetopo.machines.bundled import machine
from nodetopo.model.gpu import Gpu, Mig
from nodetopo.model.numa import CpuSet, NumaNode
from nodetopo.model.probe_issue import ProbeIssue
from nodetopo.model.snapshot import Snapshot
from tests.deviceplugin.machines import node

TWO_SOCKETS = machine("l40s-pcie-4")
MIG = node("h100x8-nvswitch-2numa-mig")


def after(*snapshots: Snapshot, mig: MigStrategy = MigStrategy.NONE) -> Offer:
    """Return what is offered after the last of *snapshots*, seen in turn."""
    gpus: tuple[Gpu, ...] = ()
    for snapshot in snapshots:
        gpus = remembered(gpus, snapshot)
    return offer(replace(snapshots[-1], gpus=gpus), Rules(mig=mig), {})


def offered(*snapshots: Snapshot) -> tuple[PluginDevice, ...]:
    return tuple(device for one in after(*snapshots).resources for device in one.devices)


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
    assert offered(machine("dgx-h100")) == expected


def test_a_gpu_whose_node_is_unknown_is_near_all_nodes() -> None:
    assert nodes_of(offered(on_nodes(0, None, 1, 1))) == [(0,), (0, 1), (1,), (1,)]


def test_a_negative_node_is_an_unknown_one() -> None:
    assert nodes_of(offered(on_nodes(0, -1, 1, 1))) == [(0,), (0, 1), (1,), (1,)]


def test_a_node_that_the_kernel_does_not_list_is_an_unknown_one() -> None:
    assert nodes_of(offered(on_nodes(0, 7, 1, 1))) == [(0,), (0, 1), (1,), (1,)]


def socket_nodes_of(snapshot: Snapshot) -> list[tuple[int, ...]]:
    return [device.socket_nodes for device in offered(snapshot)]


def halved(snapshot: Snapshot) -> Snapshot:
    """Return *snapshot* with each NUMA node split in two, as SNC-2 and NPS2 do: 0 → 0 and 2."""
    nodes = []
    for whole in snapshot.numa_nodes or ():
        cpus = sorted(whole.cpus)
        half = len(cpus) // 2
        nodes.append(replace(whole, cpus=CpuSet.of(cpus[:half])))
        nodes.append(replace(whole, id=whole.id + 2, cpus=CpuSet.of(cpus[half:])))
    return replace(snapshot, numa_nodes=tuple(sorted(nodes, key=lambda one: one.id)))


def test_a_gpu_knows_all_nodes_of_its_socket() -> None:
    snapshot = halved(on_nodes(0, 2, 1, 3))
    assert nodes_of(offered(snapshot)) == [(0,), (2,), (1,), (3,)]
    assert socket_nodes_of(snapshot) == [(0, 2), (0, 2), (1, 3), (1, 3)]


def test_where_a_socket_is_one_node_there_is_nothing_more_to_know() -> None:
    assert socket_nodes_of(TWO_SOCKETS) == [(), (), (), ()]


def test_memory_only_nodes_belong_to_no_socket() -> None:
    cpu_less = NumaNode(id=8, cpus=CpuSet())
    snapshot = halved(TWO_SOCKETS)
    snapshot = replace(snapshot, numa_nodes=(*(snapshot.numa_nodes or ()), cpu_less))
    assert socket_nodes_of(snapshot)[0] == (0, 2)


def test_a_gpu_of_unknown_place_or_unknown_sockets_has_no_socket_nodes() -> None:
    unplaced = halved(on_nodes(None, 0, 1, 1))
    assert socket_nodes_of(unplaced)[:2] == [(), (0, 2)]
    assert socket_nodes_of(replace(halved(TWO_SOCKETS), cpu=None)) == [(), (), (), ()]


def test_no_gpu_has_a_node_where_all_are_unknown() -> None:
    assert nodes_of(offered(on_nodes(None, None, None, None))) == [(), (), (), ()]


def test_memory_only_nodes_are_near_no_gpu_of_unknown_place() -> None:
    cpu_less = NumaNode(id=8, cpus=CpuSet())
    snapshot = replace(TWO_SOCKETS, numa_nodes=(*(TWO_SOCKETS.numa_nodes or ()), cpu_less))
    assert nodes_of(offered(on_nodes(0, None, 1, 1, snapshot=snapshot)))[1] == (0, 1)


def test_a_gpu_without_a_uuid_is_not_offered() -> None:
    nameless = replace(TWO_SOCKETS.gpus[0], uuid=None)
    snapshot = replace(TWO_SOCKETS, gpus=(nameless, *TWO_SOCKETS.gpus[1:]))
    assert offered(snapshot) == offered(TWO_SOCKETS)[1:]


def test_a_lost_gpu_is_unhealthy() -> None:
    lost = replace(TWO_SOCKETS.gpus[1], is_lost=True)
    snapshot = replace(TWO_SOCKETS, gpus=(TWO_SOCKETS.gpus[0], lost, *TWO_SOCKETS.gpus[2:]))
    healths = [device.is_healthy for device in offered(snapshot)]
    assert healths == [True, False, True, True]


def test_a_gpu_that_is_gone_stays_in_its_place_unhealthy() -> None:
    before = offered(TWO_SOCKETS)
    without = replace(TWO_SOCKETS, gpus=(TWO_SOCKETS.gpus[0], *TWO_SOCKETS.gpus[2:]))
    gone = replace(before[1], is_healthy=False)
    assert offered(TWO_SOCKETS, without) == (before[0], gone, *before[2:])


def test_a_gpu_that_comes_back_is_healthy_again() -> None:
    before = offered(TWO_SOCKETS)
    away = replace(TWO_SOCKETS, gpus=TWO_SOCKETS.gpus[1:])
    assert offered(TWO_SOCKETS, away, TWO_SOCKETS) == before


def test_a_gpu_that_lost_its_node_and_minor_number_keeps_the_last_known() -> None:
    before = offered(TWO_SOCKETS)
    vague = replace(TWO_SOCKETS.gpus[3], numa_node=None, minor=None)
    now = replace(TWO_SOCKETS, gpus=(*TWO_SOCKETS.gpus[:3], vague))
    assert offered(TWO_SOCKETS, now) == before


def test_a_silent_nvml_proves_nothing_about_the_gpus() -> None:
    before = offered(TWO_SOCKETS)
    silent = Snapshot(issues=(ProbeIssue(probe="nvml", subject="scan", reason="timed out"),))
    assert offered(TWO_SOCKETS, silent) == before


def test_a_complete_scan_without_gpus_makes_all_unhealthy() -> None:
    before = offered(TWO_SOCKETS)
    assert offered(TWO_SOCKETS, Snapshot()) == tuple(replace(d, is_healthy=False) for d in before)


SIGHTINGS = st.lists(
    st.lists(st.one_of(st.none(), st.integers(-1, 3)), min_size=4, max_size=4), min_size=1
)


@given(sightings=SIGHTINGS)
def test_all_devices_have_a_node_or_none_has_whatever_was_seen(
    sightings: list[list[int | None]],
) -> None:
    devices = offered(*(on_nodes(*nodes) for nodes in sightings))
    assert len({bool(device.numa_nodes) for device in devices}) == 1
    assert min((node for device in devices for node in device.numa_nodes), default=0) >= 0


def mig_ids(found: Offer) -> set[str]:
    return {d.id for one in found.resources for d in one.devices if d.id.startswith("MIG-")}


def divided(snapshot: Snapshot, gpu: int, mig: Mig | None) -> Snapshot:
    gpus = list(snapshot.gpus)
    gpus[gpu] = replace(gpus[gpu], mig=mig)
    return replace(snapshot, gpus=tuple(gpus))


def shrunk(snapshot: Snapshot) -> tuple[Snapshot, str]:
    """Return *snapshot* without the first MIG device of GPU1, and its id."""
    mig = snapshot.gpus[1].mig
    assert mig is not None
    gone, *left = mig.instances
    return divided(snapshot, 1, replace(mig, instances=tuple(left))), gone.uuid


def test_a_mig_device_that_was_destroyed_is_no_longer_offered() -> None:
    now, gone = shrunk(MIG)
    before = mig_ids(after(MIG, mig=MigStrategy.MIXED))
    assert mig_ids(after(MIG, now, mig=MigStrategy.MIXED)) == before - {gone}


def test_a_mig_device_that_nvml_refused_to_name_stays() -> None:
    now, _ = shrunk(MIG)
    refused = ProbeIssue(
        probe="nvml", subject="GPU1 nvmlDeviceGetMigDeviceHandleByIndex", reason="unknown error"
    )
    now = replace(now, issues=(refused,))
    before = mig_ids(after(MIG, mig=MigStrategy.MIXED))
    assert mig_ids(after(MIG, now, mig=MigStrategy.MIXED)) == before


def test_a_gpu_whose_mig_mode_is_unknown_for_once_stays_divided() -> None:
    now = divided(MIG, 1, None)
    assert after(MIG, now, mig=MigStrategy.MIXED) == after(MIG, mig=MigStrategy.MIXED)


def test_mig_devices_of_a_gpu_that_is_gone_stay_unhealthy() -> None:
    now = replace(MIG, gpus=(MIG.gpus[0], *MIG.gpus[2:]))
    found = after(MIG, now, mig=MigStrategy.MIXED)
    health = {d.is_healthy for one in found.resources if "3g" in one.name for d in one.devices}
    assert (mig_ids(found), health) == (mig_ids(after(MIG, mig=MigStrategy.MIXED)), {False})
