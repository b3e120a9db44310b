"""The answer to Allocate: the input of the container runtime, by strategy.

It is the same as the answer of NVIDIA's plugin (k8s-device-plugin v0.19.0,
internal/plugin/server.go), so that containers behave the same with ours.
"""

from collections.abc import Iterable, Iterator, Sequence

from nodetopo.deviceplugin.cdi import annotation_key, sibling_kind
from nodetopo.deviceplugin.devices import MINORS, PluginDevice
from nodetopo.deviceplugin.host_nodes import (
    CONTROL_NODES,
    HostNodes,
    channel_node,
    features_with_nodes,
    present_nodes,
)
from nodetopo.deviceplugin.pb import deviceplugin_pb2 as pb
from nodetopo.deviceplugin.settings import NumaReport, PluginSettings, Strategy
from nodetopo.errors import InputError, UnreadableError
from nodetopo.model.cdi import device_name

VISIBLE_DEVICES = "NVIDIA_VISIBLE_DEVICES"
IMEX_CHANNELS = "NVIDIA_IMEX_CHANNELS"
"""Variables that nvidia-container-runtime reads."""

NCCL_DIRECTORY = "/var/run/nvidia-topologyd"
"""Where NCCL looks for a topology file by default (NCCL 2.30.7, src/graph/topo.cc)."""

_VOLUMES = "/var/run/nvidia-container-devices"
"""A mount below it requests the device that it is named after from the runtime."""

_VOLUME_SOURCE = "/dev/null"
"""The placeholder that is mounted there."""


class GpuAnswers:
    """Hands GPUs, MIG devices and their replicas to containers as *settings* say."""

    def __init__(self, settings: PluginSettings) -> None:
        self._settings = settings
        self._nodes = HostNodes()

    @property
    def numa(self) -> NumaReport:
        return self._settings.numa

    def look(self) -> None:
        """Look up the host's device nodes: the driver creates some on first use."""
        self._nodes = present_nodes(self._settings)

    def answer(self, devices: Sequence[PluginDevice]) -> pb.ContainerAllocateResponse:
        is_limited = self._settings.fails_requests_greater_than_one
        if is_limited and len(devices) > 1 and any(device.is_replica for device in devices):
            raise InputError(
                f"shared, so {len(devices)} of it are no more of a GPU than 1",
                "failRequestsGreaterThanOne is set: ask for 1",
            )
        return container_response(devices, self._settings, self._nodes)


def container_response(
    devices: Sequence[PluginDevice], settings: PluginSettings, nodes: HostNodes
) -> pb.ContainerAllocateResponse:
    """Return the answer that hands *devices* to a container, in their order.

    Replicas of one GPU or MIG device count as that device, once. *nodes* is the result of
    :func:`nodetopo.deviceplugin.host_nodes.present_nodes`; no file is read here.
    """
    response = pb.ContainerAllocateResponse()
    strategies = settings.strategies
    given = {device.uuid: device for device in devices}
    channels = [n for n in settings.imex_channels if channel_node(n) in nodes.names]
    for feature in settings.features:
        response.envs[f"NVIDIA_{feature.upper()}"] = "enabled"

    names = cdi_names(given, settings, channels, nodes.names)
    if names and Strategy.CDI_ANNOTATIONS in strategies:
        response.annotations[annotation_key(settings.annotation_prefix, names)] = ",".join(names)
    if Strategy.CDI_CRI in strategies:
        response.cdi_devices.extend(pb.CDIDevice(name=name) for name in names)

    if Strategy.ENVVAR in strategies:
        response.envs[VISIBLE_DEVICES] = ",".join(given)
        if channels:
            response.envs[IMEX_CHANNELS] = ",".join(map(str, channels))

    if Strategy.VOLUME_MOUNTS in strategies:
        response.envs[VISIBLE_DEVICES] = _VOLUMES  # wins over the list
        for name in (*given, *(f"imex/{n}" for n in channels)):
            response.mounts.add(container_path=f"{_VOLUMES}/{name}", host_path=_VOLUME_SOURCE)

    if Strategy.DEVICE_SPECS in strategies:
        control = [name for name in CONTROL_NODES if name in nodes.names]
        own = [node for device in given.values() for node in _own_nodes(device)]
        # Each node once: MIG devices can share their GPU's.
        for name in dict.fromkeys((*control, *own, *map(channel_node, channels))):
            host_path = str(nodes.root / "dev" / name)
            response.devices.add(
                container_path=f"/dev/{name}", host_path=host_path, permissions="rw"
            )

    if settings.nccl_hints is not None:
        response.mounts.add(
            container_path=NCCL_DIRECTORY, host_path=str(settings.nccl_hints), read_only=True
        )
    return response


def cdi_names(
    given: Iterable[str],
    settings: PluginSettings,
    channels: Iterable[int],
    present_nodes: Iterable[str],
) -> tuple[str, ...]:
    """Return the CDI names of everything that a container gets.

    A feature without a device node has no name either: no specification can define it, and a
    runtime starts no container with a name that it cannot resolve.
    """
    kind = settings.cdi_kind
    features = features_with_nodes(settings.features, present_nodes)
    return (
        *(device_name(kind, uuid) for uuid in given),
        *(device_name(sibling_kind(kind, "imex-channel"), str(n)) for n in channels),
        *(device_name(sibling_kind(kind, feature.value), "all") for feature in features),
    )


def _own_nodes(device: PluginDevice) -> Iterator[str]:
    """Yield the device nodes of a GPU, or of a MIG device: its GPU's node and two more."""
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
