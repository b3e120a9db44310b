"""What an Allocate answer tells the container runtime, by strategy.

All of it is NVIDIA's way (k8s-device-plugin v0.19.0, internal/plugin/server.go), so that a
container finds the same under ours.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path

from agent.deviceplugin.cdi import annotation_key, device_name, sibling_kind
from agent.deviceplugin.devices import MINORS, PluginDevice
from agent.deviceplugin.host_nodes import CONTROL_NODES, channel_node, features_with_nodes
from agent.deviceplugin.pb import deviceplugin_pb2 as pb
from agent.deviceplugin.settings import PluginSettings, Strategy
from agent.errors import UnreadableError

VISIBLE_DEVICES = "NVIDIA_VISIBLE_DEVICES"
IMEX_CHANNELS = "NVIDIA_IMEX_CHANNELS"
"""Variables that nvidia-container-runtime reads."""

NCCL_DIRECTORY = "/var/run/nvidia-topologyd"
"""Where NCCL looks for a topology file that nobody named (NCCL 2.30.7, src/graph/topo.cc)."""

_VOLUMES = "/var/run/nvidia-container-devices"
"""A mount below it asks the runtime for the device that it is named after."""

_NOTHING = "/dev/null"
"""What is mounted there."""

_CDI = frozenset({Strategy.CDI_CRI, Strategy.CDI_ANNOTATIONS})


def container_response(
    devices: Sequence[PluginDevice], settings: PluginSettings, present_nodes: Collection[str]
) -> pb.ContainerAllocateResponse:
    """Return the answer that hands *devices* to a container, in their order.

    Replicas of one GPU or MIG device are that device, once. *present_nodes* is what
    :func:`agent.deviceplugin.host_nodes.present_nodes` returned; nothing is read here.

    Raises:
        UnreadableError: device nodes are wanted, and the number of one is unknown.
    """
    response = pb.ContainerAllocateResponse()
    given = {device.uuid: device for device in devices}
    channels = [n for n in settings.imex_channels if channel_node(n) in present_nodes]
    for feature in settings.features:
        response.envs[f"NVIDIA_{feature.upper()}"] = "enabled"
    if not _CDI.isdisjoint(settings.strategies):
        names = tuple(_cdi_names(given, settings, channels, present_nodes))
        _add_cdi(response, names, settings)
    if Strategy.ENVVAR in settings.strategies:
        response.envs[VISIBLE_DEVICES] = ",".join(given)
        if channels:
            response.envs[IMEX_CHANNELS] = ",".join(map(str, channels))
    if Strategy.VOLUME_MOUNTS in settings.strategies:
        response.envs[VISIBLE_DEVICES] = _VOLUMES  # wins over the list
        response.mounts.extend(_volumes([*given, *(f"imex/{n}" for n in channels)]))
    if Strategy.DEVICE_SPECS in settings.strategies:
        nodes = _nodes(given.values(), channels, present_nodes)
        response.devices.extend(_device_spec(settings.dev_root, name) for name in nodes)
    if settings.nccl_hints is not None:
        host = str(settings.nccl_hints)
        mount = pb.Mount(container_path=NCCL_DIRECTORY, host_path=host, read_only=True)
        response.mounts.append(mount)
    return response


def _cdi_names(
    given: Iterable[str],
    settings: PluginSettings,
    channels: Iterable[int],
    present_nodes: Iterable[str],
) -> Iterator[str]:
    """Yield the names of all that a container gets.

    A feature without a device node has no name either: no specification can define it, and
    a runtime starts no container that asks for a name that it cannot resolve.
    """
    kind = settings.cdi_kind
    yield from (device_name(kind, uuid) for uuid in given)
    yield from (device_name(sibling_kind(kind, "imex-channel"), str(n)) for n in channels)
    for feature in features_with_nodes(settings.features, present_nodes):
        yield device_name(sibling_kind(kind, feature.value), "all")


def _add_cdi(
    response: pb.ContainerAllocateResponse, names: Sequence[str], settings: PluginSettings
) -> None:
    if names and Strategy.CDI_ANNOTATIONS in settings.strategies:
        response.annotations[annotation_key(settings.annotation_prefix, names)] = ",".join(names)
    if Strategy.CDI_CRI in settings.strategies:
        response.cdi_devices.extend(pb.CDIDevice(name=name) for name in names)


def _volumes(names: Iterable[str]) -> Iterator[pb.Mount]:
    for name in names:
        yield pb.Mount(container_path=f"{_VOLUMES}/{name}", host_path=_NOTHING)


def _nodes(
    given: Iterable[PluginDevice], channels: Iterable[int], present_nodes: Collection[str]
) -> Iterable[str]:
    """Return the device nodes of a container, each once: MIG devices may share their GPU's."""
    control = (name for name in CONTROL_NODES if name in present_nodes)
    own = (node for device in given for node in _own_nodes(device))
    return dict.fromkeys((*control, *own, *map(channel_node, channels)))


def _own_nodes(device: PluginDevice) -> Iterator[str]:
    """Yield the device nodes of a GPU, or those of a MIG device: its GPU's and two of its own."""
    if device.minor is None:
        raise UnreadableError(
            f"the minor number of {device.uuid} is unknown, so its device node has no name",
            "use strategy cdi-cri, or see `nodetopo health` for why NVML does not say",
        )
    if device.capabilities is None:
        raise UnreadableError(
            f"the capability nodes of {device.uuid} are unknown",
            f"use strategy cdi-cri, or see why the driver does not list it in /proc/{MINORS}",
        )
    yield f"nvidia{device.minor}"
    yield from (f"nvidia-caps/nvidia-cap{number}" for number in device.capabilities)


def _device_spec(dev_root: Path, name: str) -> pb.DeviceSpec:
    return pb.DeviceSpec(
        container_path=f"/dev/{name}",
        host_path=str(dev_root / "dev" / name),
        permissions="rw",
    )
