"""Devices that the tests offer."""

from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from nodetopo.deviceplugin.devices import PluginDevice
from nodetopo.deviceplugin.resources import MigStrategy, Resource, Rules, Shared, offer
from nodetopo.deviceplugin.response import GpuAnswers
from nodetopo.deviceplugin.settings import PluginSettings
from nodetopo.model.codec import decode
from nodetopo.model.snapshot import Snapshot

NODES = Path(__file__).parents[1] / "nodes"

GPUS = tuple(PluginDevice(id=f"GPU-{n}", numa_nodes=(n // 4,), minor=n) for n in range(8))
"""Eight GPUs, four near each of two NUMA nodes."""


ANSWERS = GpuAnswers(PluginSettings())
"""Hands them to containers by the default settings; it holds nothing but the host's nodes."""


def as_listed(devices: Sequence[PluginDevice]) -> tuple[PluginDevice, ...]:
    """Return *devices* as a kubelet knows them: numbers of device nodes are not in the list."""
    return tuple(replace(device, minor=None, capabilities=()) for device in devices)


def node(shape: str) -> Snapshot:
    """Return the machine of a directory below ``tests/nodes``."""
    return decode((NODES / shape / "snapshot.json").read_text("utf-8")).snapshot


def whole(snapshot: Snapshot) -> Resource:
    """Return the whole GPUs of *snapshot* as a resource."""
    (found,) = offer(snapshot, Rules(), {}).resources
    return found


def rules(mig: MigStrategy = MigStrategy.NONE, suffix: str = "", /, **replicas: int) -> Rules:
    """Return rules of NVIDIA's domain; ``gpu=4`` shares ``nvidia.com/gpu`` by four."""
    shared = {
        f"nvidia.com/{name}": Shared(name=f"nvidia.com/{name}{suffix}", replicas=count)
        for name, count in replicas.items()
    }
    return Rules(mig=mig, shared=shared)


def first(available: Sequence[str], required: Sequence[str], size: int) -> Sequence[str]:
    """Prefer whatever was offered first."""
    return [*required, *(device for device in available if device not in required)][:size]
