"""What an Allocate answer tells the container runtime, by strategy."""

from collections.abc import Sequence
from pathlib import Path

from agent.errors import UnreadableError
from agent.kubelet.cdi import device_name
from agent.kubelet.devices import PluginDevice
from agent.kubelet.pb import deviceplugin_pb2 as pb
from agent.kubelet.settings import PluginSettings, Strategy

CONTROL_NODES = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset")
"""Device nodes that every CUDA process opens beside its GPU's own (NVIDIA driver)."""

VISIBLE_DEVICES = "NVIDIA_VISIBLE_DEVICES"
"""The variable that nvidia-container-runtime reads."""


def control_nodes(settings: PluginSettings) -> tuple[str, ...]:
    """Return those of :data:`CONTROL_NODES` that the host has now; it asks the file system."""
    seen_dev = settings.host_root / settings.dev_root.relative_to("/") / "dev"
    return tuple(name for name in CONTROL_NODES if (seen_dev / name).exists())


def container_response(
    devices: Sequence[PluginDevice], settings: PluginSettings, present_nodes: Sequence[str]
) -> pb.ContainerAllocateResponse:
    """Return the answer that hands *devices* to a container, in their order.

    *present_nodes* is what :func:`control_nodes` returned; nothing is read here.

    Raises:
        UnreadableError: device nodes are wanted, and a device's minor number is unknown.
    """
    response = pb.ContainerAllocateResponse()
    if Strategy.CDI_CRI in settings.strategies:
        names = (device_name(settings.cdi_kind, device.id) for device in devices)
        response.cdi_devices.extend(pb.CDIDevice(name=name) for name in names)
    if Strategy.ENVVAR in settings.strategies:
        response.envs[VISIBLE_DEVICES] = ",".join(device.id for device in devices)
    if Strategy.DEVICE_SPECS in settings.strategies:
        nodes = (*present_nodes, *map(_gpu_node, devices))
        response.devices.extend(_device_spec(settings.dev_root, name) for name in nodes)
    return response


def _gpu_node(device: PluginDevice) -> str:
    if device.minor is None:
        raise UnreadableError(
            f"the minor number of {device.id} is unknown, so its device node has no name",
            "use strategy cdi-cri, or see `nodetopo health` for why NVML does not say",
        )
    return f"nvidia{device.minor}"


def _device_spec(dev_root: Path, name: str) -> pb.DeviceSpec:
    return pb.DeviceSpec(
        container_path=f"/dev/{name}",
        host_path=str(dev_root / "dev" / name),
        permissions="rw",
    )
