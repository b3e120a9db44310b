"""Resources that come and go with the snapshots, as a kubelet sees them."""

from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from nodetopo.components.gpus.plan import load_table
from nodetopo.components.gpus.plugins import PluginSet
from nodetopo.deviceplugin.devices import MINORS
from nodetopo.deviceplugin.fake_kubelet import FakeKubelet
from nodetopo.errors import InputError, UnreadableError
from nodetopo.kernel.settings.declare import Settings
from nodetopo.kernel.settings.policies import TimeSlicing, placement
from nodetopo.model.gpu import Mig, MigInstance
from nodetopo.model.snapshot import Snapshot
from tests.components.gpus.plugin_sets import WAIT_S, serving_node
from tests.deviceplugin.eventually import eventually
from tests.deviceplugin.machines import node

MIG = node("h100x8-nvswitch-2numa-mig")
WHOLE = node("h100x8-nvswitch-2numa-8cx7")
GPU, ONE, THREE = "nvidia.com/gpu", "nvidia.com/mig-1g.10gb", "nvidia.com/mig-3g.40gb"


def with_mig(snapshot: Snapshot, gpu: int, mig: Mig | None) -> Snapshot:
    gpus = list(snapshot.gpus)
    gpus[gpu] = replace(gpus[gpu], mig=mig)
    return replace(snapshot, gpus=tuple(gpus))


def shared(**how: Any) -> TimeSlicing:
    return TimeSlicing(replicas=MappingProxyType({GPU: 4}), **how)


def test_every_resource_has_a_plugin_of_its_own() -> None:
    with serving_node(mig_strategy="mixed") as served:
        served.plugins.take(MIG)
        assert served.listed(GPU, ONE, THREE) == {GPU: 5, ONE: 7, THREE: 2}
        endpoints = {state.endpoint for state in served.plugins.states.values()}
        assert len(endpoints) == 3


def test_a_layout_that_changes_takes_a_resource_back_and_leaves_the_others_alone() -> None:
    with serving_node(mig_strategy="mixed") as served:
        served.plugins.take(MIG)
        served.listed(GPU, ONE, THREE)
        before = served.plugins.states
        served.plugins.take(with_mig(MIG, 1, Mig(is_enabled=False)))
        assert served.lacks(THREE)
        assert eventually(lambda: served.listed(GPU) == {GPU: 6})
        after = served.plugins.states
        assert {name: state.endpoint for name, state in after.items()} == {
            name: before[name].endpoint for name in (GPU, ONE)
        }


def test_a_resource_that_comes_back_is_registered_anew() -> None:
    with serving_node(mig_strategy="mixed") as served:
        served.plugins.take(MIG)
        served.listed(THREE)
        served.plugins.take(with_mig(MIG, 1, Mig(is_enabled=False)))
        assert served.lacks(THREE)
        served.plugins.take(MIG)
        assert served.listed(THREE) == {THREE: 2}


def test_a_gpu_that_takes_its_devices_along_makes_them_unhealthy_in_every_resource() -> None:
    with serving_node(mig_strategy="mixed") as served:
        served.plugins.take(MIG)
        served.listed(GPU, ONE, THREE)
        served.plugins.take(replace(MIG, gpus=(*MIG.gpus[:1], *MIG.gpus[2:7])))

        def unhealthy(resource: str) -> int:
            devices = served.kubelet.wait_registered(WAIT_S, resource).devices
            return sum(not device.is_healthy for device in devices)

        assert eventually(lambda: (unhealthy(GPU), unhealthy(ONE), unhealthy(THREE)) == (1, 0, 2))
        assert served.listed(GPU, ONE, THREE) == {GPU: 5, ONE: 7, THREE: 2}


def test_all_replicas_of_a_lost_gpu_are_unhealthy() -> None:
    with serving_node(time_slicing=shared()) as served:
        served.plugins.take(WHOLE)
        served.listed(GPU)
        lost = replace(WHOLE.gpus[2], is_lost=True)
        served.plugins.take(replace(WHOLE, gpus=(*WHOLE.gpus[:2], lost, *WHOLE.gpus[3:])))

        def sick() -> list[str]:
            devices = served.kubelet.wait_registered(WAIT_S).devices
            return [device.id for device in devices if not device.is_healthy]

        assert eventually(lambda: sick() == [f"{lost.id}::{n}" for n in range(4)])


def test_replicas_are_handed_out_from_different_gpus_with_the_reason_in_the_log() -> None:
    with capture_logs() as lines, serving_node(time_slicing=shared()) as served:
        served.plugins.take(WHOLE)
        served.listed(GPU)
        chosen = served.kubelet.preferred(2)
        given = served.kubelet.allocate(chosen)
    assert len(set(given.cdi_devices)) == 2
    (line,) = [line for line in lines if line["event"] == "devices allocated"]
    assert (line["chosen"], line["chosen_by"], line["numa_nodes"]) == (list(chosen), "us", [0])
    assert "2 replicas, one on each of GPU0 and GPU1" in line["said"]
    assert line["leaves"] == "leaves 3 on GPU0, 3 on GPU1 free, and 6 GPUs idle"


def test_mig_devices_are_packed_and_reach_no_other_gpu() -> None:
    two = replace(MIG, gpus=(MIG.gpus[0], replace(MIG.gpus[2], mig=_moved(MIG))))
    with capture_logs() as lines, serving_node(mig_strategy="mixed") as served:
        served.plugins.take(two)
        served.listed(ONE)
        chosen = served.kubelet.preferred(9, resource=ONE)
        served.kubelet.allocate(chosen, resource=ONE)
    (line,) = [line for line in lines if line["event"] == "devices allocated"]
    assert "9 MIG instances: 7 on GPU0; 2 on GPU2" in line["said"]
    assert (line["links"], line["bandwidth_gb_s"]) == (None, None)


def _moved(snapshot: Snapshot) -> Mig:
    """Return the MIG devices of GPU0 under other UUIDs."""
    mig = snapshot.gpus[0].mig
    assert mig is not None
    return replace(
        mig, instances=tuple(replace(one, uuid=f"{one.uuid}-b") for one in mig.instances)
    )


def test_a_renamed_resource_is_the_only_one() -> None:
    with serving_node(time_slicing=shared(is_renamed=True)) as served:
        served.plugins.take(WHOLE)
        assert served.listed("nvidia.com/gpu.shared") == {"nvidia.com/gpu.shared": 32}
        assert list(served.plugins.states) == ["nvidia.com/gpu.shared"]


def test_a_request_for_two_replicas_is_refused_where_settings_say_so() -> None:
    with serving_node(time_slicing=shared(fails_requests_greater_than_one=True)) as served:
        served.plugins.take(WHOLE)
        served.listed(GPU)
        with pytest.raises(UnreadableError, match="failRequestsGreaterThanOne is set"):
            served.kubelet.allocate(served.kubelet.preferred(2))
        assert len(served.kubelet.allocate(served.kubelet.preferred(1)).cdi_devices) == 1


def test_a_rule_that_a_gpu_breaks_is_said_once_and_serves_nothing_until_it_is_kept() -> None:
    with capture_logs() as lines, serving_node(mig_strategy="single") as served:
        served.plugins.take(MIG)
        served.plugins.take(replace(MIG, node="again"))
        assert (served.plugins.served, served.plugins.lost) == ((), ())
        off = Mig(is_enabled=False)
        served.plugins.take(replace(MIG, gpus=tuple(replace(g, mig=off) for g in MIG.gpus)))
        assert served.listed(GPU) == {GPU: 8}
    told = [line for line in lines if line["event"] == "resource not offered"]
    assert [(line["log_level"], line["resource"]) for line in told] == [("error", GPU)]


def test_device_nodes_of_mig_devices_are_named_as_the_driver_numbers_them(tmp_path: Path) -> None:
    (tmp_path / MINORS).parent.mkdir(parents=True)
    lines = [f"gpu1/gi{gi}/access {gi}0\ngpu1/gi{gi}/ci0/access {gi}1\n" for gi in (1, 2)]
    (tmp_path / MINORS).write_text("".join(lines))
    settings = {"device_list_strategy": ("device-specs",), "procfs_root": tmp_path}
    with serving_node(mig_strategy="mixed", host_root=tmp_path, **settings) as served:
        served.plugins.take(MIG)
        served.listed(THREE)
        mig = MIG.gpus[1].mig
        assert mig is not None
        given = served.kubelet.allocate([mig.instances[0].uuid], resource=THREE)
    assert [container for container, _, _ in given.device_nodes] == [
        "/dev/nvidia1",
        "/dev/nvidia-caps/nvidia-cap10",
        "/dev/nvidia-caps/nvidia-cap11",
    ]


def test_settings_for_resources_that_the_node_lacks_are_said_once() -> None:
    policy = placement("a.b/c=packed,nvidia.com/gpu=packed")
    with capture_logs() as lines, serving_node(placement_policy=policy) as served:
        served.plugins.take(WHOLE)
        served.plugins.take(replace(WHOLE, node="again"))
    told = [line for line in lines if line["event"] == "settings not used"]
    assert [line["resources"] for line in told] == [["a.b/c"]]


@pytest.mark.parametrize("name", [GPU, "nvidia.com/gpu.shared"])
def test_a_policy_may_name_a_shared_resource_by_either_name(name: str) -> None:
    settings = {"placement_policy": placement(f"{name}=packed")}
    with serving_node(time_slicing=shared(is_renamed=True), **settings) as served:
        served.plugins.take(WHOLE)
        served.listed("nvidia.com/gpu.shared")
        chosen = served.kubelet.preferred(4, resource="nvidia.com/gpu.shared")
    assert len({one.partition("::")[0] for one in chosen}) == 1


def test_a_directory_in_which_no_socket_can_be_bound_stops_the_start() -> None:
    settings = Settings(node_name="n")
    with pytest.raises(InputError, match="a unix socket may have"):
        PluginSet(settings, Path("/tmp", "d" * 100), load_table(settings))


def test_a_resource_with_too_long_a_socket_path_leaves_others_served() -> None:
    with TemporaryDirectory(prefix="nodetopo-") as parent:
        stem = ".nodetopo-gpu-4194304-00000000.sock"
        directory = Path(parent) / ("d" * (107 - len(parent) - len(stem) - 2))
        settings = Settings(node_name="n", mig_strategy="mixed")
        plugins = PluginSet(settings, directory, load_table(settings))
        with capture_logs() as lines, FakeKubelet(directory) as kubelet:
            plugins.take(MIG)
            assert len(kubelet.wait_registered(WAIT_S).devices) == 5
            plugins.stop()
    told = [line for line in lines if line["event"] == "resource not served"]
    assert [line["resource"] for line in told] == [ONE, THREE]


def test_parts_of_gpu_instances_are_one_line_in_the_log_until_they_change() -> None:
    def parted(count: int) -> Snapshot:
        parts = tuple(
            MigInstance(uuid=f"MIG-part-{at}", profile="1c.3g.40gb") for at in range(count)
        )
        return with_mig(MIG, 1, Mig(is_enabled=True, instances=parts))

    with capture_logs() as lines, serving_node(mig_strategy="mixed") as served:
        for count in (40, 40, 39):
            served.plugins.take(parted(count))
    said = [line["reason"] for line in lines if line["event"] == "devices not offered"]
    named = [text.partition(": ")[2].partition(" on ")[0] for text in said if "1c.3g" in text]
    assert named == ["40 of 1c.3g.40gb", "39 of 1c.3g.40gb"]


def test_no_resource_is_offered_beside_another_plugin() -> None:
    with serving_node(offer_gpus="never") as served:
        served.plugins.take(WHOLE)
        assert served.plugins.served == ()
        assert served.plugins.is_registered  # there is nothing to wait for


def test_resources_are_withdrawn_when_the_setting_says_so_and_come_back() -> None:
    with serving_node() as served:
        served.plugins.take(WHOLE)
        assert served.listed(GPU) == {GPU: 8}
        served.reconfigure(offer_gpus="never")
        assert served.lacks(GPU)
        served.reconfigure()
        assert eventually(lambda: served.listed(GPU) == {GPU: 8})
