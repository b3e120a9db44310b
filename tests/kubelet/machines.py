"""Devices that the tests offer."""

from collections.abc import Sequence
from dataclasses import replace

from agent.kubelet.devices import PluginDevice

GPUS = tuple(PluginDevice(id=f"GPU-{n}", numa_nodes=(n // 4,), minor=n) for n in range(8))
"""Eight GPUs, four near each of two NUMA nodes."""


def as_listed(devices: Sequence[PluginDevice]) -> tuple[PluginDevice, ...]:
    """Return *devices* as a kubelet knows them: minor numbers are not in the list."""
    return tuple(replace(device, minor=None) for device in devices)


def first(available: Sequence[str], required: Sequence[str], size: int) -> Sequence[str]:
    """Prefer whatever was offered first."""
    return [*required, *(device for device in available if device not in required)][:size]
