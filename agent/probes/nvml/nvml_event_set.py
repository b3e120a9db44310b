"""A set of NVML's events with the GPUs of the node in it (nvml.h, "Event Handling Methods")."""

import ctypes
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import MappingProxyType
from typing import Any

from agent.model.nvml_event import EventKind, NvmlEvent

KINDS: Mapping[int, EventKind] = MappingProxyType(
    {
        0x8: EventKind.XID,
        0x100: EventKind.MIG_CHANGE,
        0x4000: EventKind.UNAVAILABLE,
        0x8000: EventKind.RECOVERY_ACTION,
    },
)
"""The types that are registered where a GPU supports them (nvml.h, ``nvmlEventType*``)."""

GPU_IS_LOST = 15
_TIMEOUT, _FUNCTION_NOT_FOUND, _UNKNOWN = 10, 13, 999
"""``nvmlReturn_t``."""

_MAX_HANDLES = 4096
"""Most handles whose GPU is kept in mind: 64 GPUs with MIG devices that come and go."""


class EventsRefused(Exception):  # noqa: N818 - a state of the node, not a fault of ours
    """NVML hands out no events; *code* is the ``nvmlReturn_t``, where there is one."""

    def __init__(self, reason: str, code: int | None = None) -> None:
        super().__init__(reason)
        self.code = code


@contextmanager
def event_set(nvml: Any, gpus: Sequence[str | None]) -> Iterator["GpuEventSet"]:
    """Yield a set with every GPU in it that offers events, and free it afterwards.

    A GPU that leaves the set in an undefined state (UNKNOWN from ``nvmlDeviceRegisterEvents``,
    after which nvml.h has the set freed) is left out of the next one.

    Args:
        nvml: the module ``pynvml``, initialised.
        gpus: UUIDs by index, for GPUs that do not tell theirs now.

    Raises:
        EventsRefused: the library is too old, or no GPU offers an event that we want.
    """
    without: set[int] = set()
    while True:
        made = GpuEventSet(nvml)
        try:
            unsettled = made.register(gpus, without)
            if unsettled is None:
                yield made
                return
            without.add(unsettled)
        finally:
            made.free()


class GpuEventSet:
    """One ``nvmlEventSet_t``."""

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        self._names: dict[int | None, str | None] = {}  # a device's handle → its GPU's UUID
        try:
            self._set = nvml.nvmlEventSetCreate()
        except nvml.NVMLError as error:
            raise _refused("nvmlEventSetCreate", error) from None

    def register(self, gpus: Sequence[str | None], without: set[int]) -> int | None:
        """Register each GPU for the kinds that it supports, but for those of index *without*.

        Returns:
            The index of a GPU that left the set in an undefined state.

        Raises:
            EventsRefused: there is nothing to wait for.
        """
        reasons = [str(self._nvml.NVMLError(_UNKNOWN))] if without else []
        for index in set(range(len(gpus))) - without:
            try:
                self._register(index, gpus[index])
            except self._nvml.NVMLError as error:
                if error.value == _UNKNOWN:
                    return index
                reasons.append(str(error))
        if not self._names:
            said = ", ".join(sorted(set(reasons))) or "none is supported"
            raise EventsRefused(f"no GPU offers events: {said}")
        return None

    def wait(self, timeout_ms: int) -> NvmlEvent | None:
        """Return the next event; ``None`` if there was none in time, or one of no use to us.

        Raises:
            EventsRefused: whatever else NVML answers; it says nothing about any GPU.
        """
        try:
            data = self._nvml.nvmlEventSetWait_v2(self._set, timeout_ms)
        except self._nvml.NVMLError as error:
            if error.value == _TIMEOUT:
                return None
            raise _refused("nvmlEventSetWait_v2", error) from None
        kind = KINDS.get(data.eventType)
        if kind is None:
            return None
        xid = data.eventData if kind is EventKind.XID else None
        return NvmlEvent(kind=kind, gpu=self._gpu(data.device), xid=xid)

    def free(self) -> None:
        """Release the set."""
        with suppress(self._nvml.NVMLError):
            self._nvml.nvmlEventSetFree(self._set)

    def _register(self, index: int, uuid: str | None) -> None:
        handle = self._nvml.nvmlDeviceGetHandleByIndex(index)
        supported = self._nvml.nvmlDeviceGetSupportedEventTypes(handle)
        wanted = sum(bit for bit in KINDS if bit & supported)
        if wanted:
            self._nvml.nvmlDeviceRegisterEvents(handle, wanted, self._set)
            self._names[_address(handle)] = self._uuid(handle) or uuid

    def _gpu(self, device: Any) -> str | None:
        """Return the UUID of the GPU that *device* is, or is a MIG device of."""
        address = _address(device)
        if address not in self._names and len(self._names) < _MAX_HANDLES:
            self._names[address] = self._parent(device)
        return self._names.get(address)

    def _parent(self, device: Any) -> str | None:
        if not device:
            return None
        try:
            parent = self._nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(device)
        except self._nvml.NVMLError:  # it is no MIG device
            return self._uuid(device)
        return self._names.get(_address(parent)) or self._uuid(parent)

    def _uuid(self, handle: Any) -> str | None:
        try:
            return str(self._nvml.nvmlDeviceGetUUID(handle)) or None
        except (self._nvml.NVMLError, ValueError):  # ValueError: it is not UTF-8
            return None


def _address(handle: Any) -> int | None:
    return ctypes.cast(handle, ctypes.c_void_p).value


def _refused(call: str, error: Any) -> EventsRefused:
    return EventsRefused(f"{call}: {error}", error.value)
