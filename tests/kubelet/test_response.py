from pathlib import Path

import pytest

from agent.errors import InputError, UnreadableError
from agent.kubelet.devices import PluginDevice
from agent.kubelet.pb import deviceplugin_pb2 as pb
from agent.kubelet.response import container_response, control_nodes
from agent.kubelet.settings import PluginSettings, Strategy
from tests.kubelet.machines import GPUS

TWO = (GPUS[1], GPUS[4])


def spec(container: str, host: str) -> pb.DeviceSpec:
    return pb.DeviceSpec(container_path=container, host_path=host, permissions="rw")


def test_cdi_names_are_the_default_and_all_there_is() -> None:
    names = ("nvidia.com/gpu=GPU-1", "nvidia.com/gpu=GPU-4")
    expected = pb.ContainerAllocateResponse(cdi_devices=[pb.CDIDevice(name=n) for n in names])
    assert container_response(TWO, PluginSettings(), ()) == expected


def test_another_cdi_kind_can_be_named() -> None:
    settings = PluginSettings(cdi_kind="example.com/gpu")
    answer = container_response(TWO[:1], settings, ())
    assert [device.name for device in answer.cdi_devices] == ["example.com/gpu=GPU-1"]


def test_envvar_names_the_devices_in_nvidia_visible_devices() -> None:
    settings = PluginSettings(strategies=(Strategy.ENVVAR,))
    expected = pb.ContainerAllocateResponse(envs={"NVIDIA_VISIBLE_DEVICES": "GPU-1,GPU-4"})
    assert container_response(TWO, settings, ()) == expected


def test_device_specs_name_the_control_nodes_and_each_gpus_own() -> None:
    settings = PluginSettings(strategies=(Strategy.DEVICE_SPECS,), dev_root=Path("/run/driver"))
    expected = pb.ContainerAllocateResponse(
        devices=[
            spec("/dev/nvidiactl", "/run/driver/dev/nvidiactl"),
            spec("/dev/nvidia1", "/run/driver/dev/nvidia1"),
            spec("/dev/nvidia4", "/run/driver/dev/nvidia4"),
        ]
    )
    assert container_response(TWO, settings, ("nvidiactl",)) == expected


def test_a_device_spec_needs_a_minor_number() -> None:
    settings = PluginSettings(strategies=(Strategy.DEVICE_SPECS,))
    with pytest.raises(UnreadableError, match="minor number of GPU-9"):
        container_response((PluginDevice(id="GPU-9"),), settings, ())


def test_strategies_add_up() -> None:
    answer = container_response(TWO, PluginSettings(strategies=tuple(Strategy)), ())
    assert (len(answer.cdi_devices), len(answer.envs), len(answer.devices)) == (2, 1, 2)


def test_only_control_nodes_that_the_host_has_are_given(tmp_path: Path) -> None:
    dev = tmp_path / "run/driver/dev"
    dev.mkdir(parents=True)
    for name in ("nvidiactl", "nvidia-uvm", "nvidia0"):
        (dev / name).touch()
    settings = PluginSettings(dev_root=Path("/run/driver"), host_root=tmp_path)
    assert control_nodes(settings) == ("nvidiactl", "nvidia-uvm")


def test_a_relative_device_root_is_refused() -> None:
    with pytest.raises(InputError, match="relative"):
        PluginSettings(dev_root=Path("dev"))
