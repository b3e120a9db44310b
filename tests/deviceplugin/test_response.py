from pathlib import Path

import pytest

from nodetopo.deviceplugin.cdi import annotation_key
from nodetopo.deviceplugin.devices import PluginDevice
from nodetopo.deviceplugin.host_nodes import HostNodes
from nodetopo.deviceplugin.pb import deviceplugin_pb2 as pb
from nodetopo.deviceplugin.response import container_response
from nodetopo.deviceplugin.settings import Feature, PluginSettings, Strategy, start_warnings
from nodetopo.errors import InputError, UnreadableError
from tests.deviceplugin.machines import GPUS

TWO = (GPUS[1], GPUS[4])
CHANNEL = "nvidia-caps-imex-channels/channel0"
VOLUMES = "/var/run/nvidia-container-devices"


def spec(container: str, host: str) -> pb.DeviceSpec:
    return pb.DeviceSpec(container_path=container, host_path=host, permissions="rw")


def volume(name: str) -> pb.Mount:
    return pb.Mount(container_path=f"{VOLUMES}/{name}", host_path="/dev/null")


def cdi(*names: str) -> list[pb.CDIDevice]:
    return [pb.CDIDevice(name=name) for name in names]


def test_cdi_names_are_the_default_and_all_there_is() -> None:
    names = cdi("nvidia.com/gpu=GPU-1", "nvidia.com/gpu=GPU-4")
    expected = pb.ContainerAllocateResponse(cdi_devices=names)
    assert container_response(TWO, PluginSettings(), HostNodes()) == expected


def test_another_cdi_kind_can_be_named() -> None:
    settings = PluginSettings(cdi_kind="example.com/gpu")
    answer = container_response(TWO[:1], settings, HostNodes())
    assert [device.name for device in answer.cdi_devices] == ["example.com/gpu=GPU-1"]


def test_cdi_annotations_say_the_same_in_one_annotation() -> None:
    names = ("nvidia.com/gpu=GPU-1", "nvidia.com/gpu=GPU-4")
    settings = PluginSettings(
        strategies=(Strategy.CDI_ANNOTATIONS,), annotation_prefix="example.com/"
    )
    key = annotation_key("example.com/", names)
    expected = pb.ContainerAllocateResponse(annotations={key: ",".join(names)})
    assert container_response(TWO, settings, HostNodes()) == expected


def test_envvar_names_the_devices_in_nvidia_visible_devices() -> None:
    settings = PluginSettings(strategies=(Strategy.ENVVAR,))
    expected = pb.ContainerAllocateResponse(envs={"NVIDIA_VISIBLE_DEVICES": "GPU-1,GPU-4"})
    assert container_response(TWO, settings, HostNodes()) == expected


def test_volume_mounts_name_the_devices_in_mounts_of_nothing() -> None:
    settings = PluginSettings(strategies=(Strategy.VOLUME_MOUNTS,))
    expected = pb.ContainerAllocateResponse(
        envs={"NVIDIA_VISIBLE_DEVICES": VOLUMES}, mounts=[volume("GPU-1"), volume("GPU-4")]
    )
    assert container_response(TWO, settings, HostNodes()) == expected


@pytest.mark.parametrize("strategies", [("volume-mounts", "envvar"), ("envvar", "volume-mounts")])
def test_volume_mounts_win_over_the_list_of_envvar(strategies: tuple[str, str]) -> None:
    settings = PluginSettings(strategies=tuple(map(Strategy, strategies)))
    assert container_response(TWO, settings, HostNodes()).envs == {
        "NVIDIA_VISIBLE_DEVICES": VOLUMES
    }


def test_device_specs_name_the_control_nodes_and_each_gpus_own() -> None:
    settings = PluginSettings(strategies=(Strategy.DEVICE_SPECS,), dev_root=Path("/other"))
    nodes = HostNodes(Path("/run/driver"), ("nvidiactl",))
    expected = pb.ContainerAllocateResponse(
        devices=[
            spec("/dev/nvidiactl", "/run/driver/dev/nvidiactl"),
            spec("/dev/nvidia1", "/run/driver/dev/nvidia1"),
            spec("/dev/nvidia4", "/run/driver/dev/nvidia4"),
        ]
    )
    assert container_response(TWO, settings, nodes) == expected


def test_a_device_spec_needs_a_minor_number() -> None:
    settings = PluginSettings(strategies=(Strategy.DEVICE_SPECS,))
    with pytest.raises(UnreadableError, match="minor number of GPU-9"):
        container_response((PluginDevice(id="GPU-9"),), settings, HostNodes())


MIG = PluginDevice(id="MIG-1", minor=1, capabilities=(30, 31))
SAME_GPU = PluginDevice(id="MIG-2", minor=1, capabilities=(39, 40))


def test_a_mig_device_needs_its_gpus_node_and_two_capabilities() -> None:
    settings = PluginSettings(strategies=(Strategy.DEVICE_SPECS,))
    names = (
        "nvidia1",
        "nvidia-caps/nvidia-cap30",
        "nvidia-caps/nvidia-cap31",
        "nvidia-caps/nvidia-cap39",
        "nvidia-caps/nvidia-cap40",
    )
    expected = pb.ContainerAllocateResponse(
        devices=[spec(f"/dev/{name}", f"/dev/{name}") for name in names]
    )
    assert container_response((MIG, SAME_GPU), settings, HostNodes()) == expected


def test_a_mig_device_without_capabilities_is_refused() -> None:
    settings = PluginSettings(strategies=(Strategy.DEVICE_SPECS,))
    unknown = PluginDevice(id="MIG-1", minor=1, capabilities=None)
    with pytest.raises(UnreadableError, match="capability nodes of MIG-1 are unknown"):
        container_response((unknown,), settings, HostNodes())


def test_a_mig_device_is_named_by_its_uuid_whichever_the_replica() -> None:
    settings = PluginSettings(strategies=(Strategy.CDI_CRI, Strategy.VOLUME_MOUNTS))
    replicas = [PluginDevice(id=f"MIG-1::{n}", minor=1) for n in (0, 1)]
    expected = pb.ContainerAllocateResponse(
        cdi_devices=cdi("nvidia.com/gpu=MIG-1"),
        envs={"NVIDIA_VISIBLE_DEVICES": VOLUMES},
        mounts=[volume("MIG-1")],
    )
    assert container_response(replicas, settings, HostNodes()) == expected


def test_strategies_add_up() -> None:
    answer = container_response(TWO, PluginSettings(strategies=tuple(Strategy)), HostNodes())
    found = (answer.cdi_devices, answer.annotations, answer.envs, answer.mounts, answer.devices)
    assert list(map(len, found)) == [2, 1, 1, 2, 2]


def test_an_imex_channel_comes_the_way_of_each_strategy() -> None:
    settings = PluginSettings(strategies=tuple(Strategy), imex_channels=(0,))
    answer = container_response(TWO[:1], settings, HostNodes(names=(CHANNEL,)))
    names = ("nvidia.com/gpu=GPU-1", "nvidia.com/imex-channel=0")
    expected = pb.ContainerAllocateResponse(
        cdi_devices=cdi(*names),
        annotations={annotation_key("cdi.k8s.io/", names): ",".join(names)},
        envs={"NVIDIA_VISIBLE_DEVICES": VOLUMES, "NVIDIA_IMEX_CHANNELS": "0"},
        mounts=[volume("GPU-1"), volume("imex/0")],
        devices=[
            spec("/dev/nvidia1", "/dev/nvidia1"),
            spec(f"/dev/{CHANNEL}", f"/dev/{CHANNEL}"),
        ],
    )
    assert answer == expected


def test_a_channel_that_the_host_lacks_is_in_no_answer() -> None:
    without = PluginSettings(strategies=tuple(Strategy))
    settings = PluginSettings(strategies=tuple(Strategy), imex_channels=(0,))
    assert container_response(TWO, settings, HostNodes()) == container_response(
        TWO, without, HostNodes()
    )


def test_features_are_variables_under_every_strategy_and_devices_of_cdi() -> None:
    nodes = ("gdrdrv", "infiniband/uverbs0", "nvidia-fs3", "nvidiactl")
    settings = PluginSettings(features=frozenset(Feature))
    expected = pb.ContainerAllocateResponse(
        cdi_devices=cdi(
            "nvidia.com/gpu=GPU-1",
            "nvidia.com/gdrcopy=all",
            "nvidia.com/gds=all",
            "nvidia.com/mofed=all",
        ),
        envs=dict.fromkeys(("NVIDIA_GDRCOPY", "NVIDIA_GDS", "NVIDIA_MOFED"), "enabled"),
    )
    assert container_response(TWO[:1], settings, HostNodes(names=nodes)) == expected


def test_a_feature_without_a_device_node_is_no_device_of_cdi() -> None:
    settings = PluginSettings(features=frozenset({Feature.GDS}))
    expected = pb.ContainerAllocateResponse(
        cdi_devices=cdi("nvidia.com/gpu=GPU-1"), envs={"NVIDIA_GDS": "enabled"}
    )
    assert container_response(TWO[:1], settings, HostNodes(names=("gdrdrv",))) == expected


def test_device_specs_hold_no_node_of_a_feature() -> None:
    settings = PluginSettings(
        strategies=(Strategy.DEVICE_SPECS,), features=frozenset({Feature.GDRCOPY})
    )
    answer = container_response(TWO[:1], settings, HostNodes(names=("gdrdrv",)))
    assert [device.host_path for device in answer.devices] == ["/dev/nvidia1"]


def test_the_directory_for_nccl_is_mounted_read_only_where_nccl_looks() -> None:
    settings = PluginSettings(nccl_hints=Path("/run/nodetopo/nccl"))
    (mount,) = container_response(TWO, settings, HostNodes()).mounts
    expected = pb.Mount(
        container_path="/var/run/nvidia-topologyd",
        host_path="/run/nodetopo/nccl",
        read_only=True,
    )
    assert mount == expected


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"dev_root": Path("dev")}, "relative"),
        ({"driver_root": Path("driver")}, "relative"),
        ({"nccl_hints": Path("nccl")}, "relative"),
        ({"annotation_prefix": "a b/"}, "no annotation can begin"),
        ({"cdi_kind": "gpu"}, "not a CDI kind"),
    ],
)
def test_settings_that_cannot_work_are_refused(wrong: dict[str, object], match: str) -> None:
    with pytest.raises(InputError, match=match):
        PluginSettings(**wrong)  # type: ignore[arg-type]


def test_the_default_calls_for_no_warning() -> None:
    assert start_warnings(PluginSettings()) == ()


def test_strategies_that_depend_on_the_runtime_are_warned_about() -> None:
    settings = PluginSettings(strategies=tuple(Strategy), annotation_prefix="example.com/")
    envvar, volumes, prefix = start_warnings(settings)
    assert "gets any GPU without asking" in envvar
    assert "accept-nvidia-visible-devices-as-volume-mounts = true" in volumes
    assert "runtimes look for cdi.k8s.io/ only" in prefix
