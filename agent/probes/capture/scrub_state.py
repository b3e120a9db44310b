"""The kubelet's state files without the names of pods; their uids are replaced as text."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from agent.model.kubelet_state import CpuState, DeviceState, KubeletState, MemoryState
from agent.probes.capture.substitutes import Substitutes

PUBLIC_SOCKETS = ("nvidia", "nodetopo", "rdma", "sriov", "amd", "intel", "gpu", "hami", "volcano")
"""How the names of sockets begin that tell which known plugin has them."""

_Held = TypeVar("_Held")


def scrub_state(state: KubeletState | None, substitutes: Substitutes) -> KubeletState | None:
    """Return *state* with the names that pods and their containers have elsewhere too."""
    if state is None:
        return None
    sockets = state.plugin_sockets
    return replace(
        state,
        cpu=_cpu(state.cpu, substitutes),
        memory=_memory(state.memory, substitutes),
        devices=_devices(state.devices, substitutes),
        plugin_sockets=sockets and tuple(sorted(_socket(name, substitutes) for name in sockets)),
    )


def _socket(name: str, substitutes: Substitutes) -> str:
    is_public = name.startswith(PUBLIC_SOCKETS)
    return name if is_public else f"{substitutes.counted('socket', name)}.sock"


def _cpu(state: CpuState | None, substitutes: Substitutes) -> CpuState | None:
    if state is None or state.entries is None:
        return state
    return replace(state, entries=_entries(state.entries, substitutes))


def _memory(state: MemoryState | None, substitutes: Substitutes) -> MemoryState | None:
    if state is None or state.entries is None:
        return state
    return replace(state, entries=_entries(state.entries, substitutes))


def _entries(
    entries: Mapping[str, Mapping[str, _Held]], substitutes: Substitutes
) -> dict[str, dict[str, _Held]]:
    return {
        uid: {substitutes.counted("container", name): held for name, held in containers.items()}
        for uid, containers in entries.items()
    }


def _devices(state: DeviceState | None, substitutes: Substitutes) -> DeviceState | None:
    if state is None:
        return None
    held = tuple(
        replace(one, container=substitutes.counted("container", one.container))
        for one in state.held
    )
    return replace(state, held=held)
