"""NVML's events: a thread of the NVML child listens for them.

They are joined and written as JSON lines to a pipe of their own. While the thread listens,
NVML stays initialised in this process; scans that must enumerate the GPUs again are made in
:meth:`EventListener.paused`.
"""

import ctypes
import json
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from agent.errors import NvmlUnavailable
from agent.model.nvml_event import EventKind, NvmlEvent
from agent.model.plain import to_plain
from agent.probes.nvml.reading import NvmlReading, nvml_session

KINDS: Mapping[int, EventKind] = MappingProxyType(
    {
        0x8: EventKind.XID,
        0x100: EventKind.MIG_CHANGE,
        0x4000: EventKind.UNAVAILABLE,
        0x8000: EventKind.RECOVERY_ACTION,
    },
)
"""The types that are registered where a GPU supports them (nvml.h, ``nvmlEventType*``)."""

WAIT_MS = 100
"""Longest single wait, and so about the time until the thread notices that it should stop."""

FIRST_DELAY_S = 1.0
MAX_DELAY_S = 60.0
"""Pauses before the GPUs are registered again after an error, doubling in between."""

FLUSH_S = 0.1
"""Shortest time between two deliveries: ten a second are prompt, and cheap in a storm."""

LOST_IN_A_ROW = 30
"""After so many waits that answered GPU_IS_LOST all GPUs are registered again, which the lost one
refuses: it might hide the events of the others."""

STALLED_S = 30.0
"""A registration or a wait that takes longer hangs; either should take :data:`WAIT_MS` or less."""

PAUSE_S = 1.0
"""How long to wait for the thread to give NVML up; longer means that it hangs."""

MAX_KEYS = 1024
"""Most different events that are counted apart between two deliveries. 64 GPUs with a dozen codes
each are fewer; a storm of 800,000 XID lines had 29 (NVIDIA/NVSentinel #1120)."""

UNKNOWN_XID = 999
"""The code that NVML gives for an XID it does not know (nvml.h, ``nvmlEventData_t``)."""

GPU_IS_LOST = 15
_TIMEOUT, _UNKNOWN = 10, 999
"""``nvmlReturn_t``."""

_MAX_HANDLES = 4096
"""Most handles whose GPU is remembered: 64 GPUs with MIG devices that come and go."""


class EventListener:
    """Listens to the GPUs of the last reading.

    Nothing that goes wrong here says anything about a GPU: the thread tries again, less and less
    often, and reports why it is silent.

    Args:
        out: the descriptor for its lines, an event each, or ``{"silent": reason}``. It must
            not block: while it is full, events are counted here and none is lost.
    """

    def __init__(self, out: int) -> None:
        self._out = out
        self._tally = EventTally()
        self._change = threading.Condition()
        self._gpus: tuple[str | None, ...] = ()
        self._version = 0  # of the order; the thread gives up what it began for an older one
        self._is_paused = False
        self._is_stopped = False
        self._is_idle = threading.Event()
        self._is_idle.set()
        self._alive_at = time.monotonic()
        self._thread: threading.Thread | None = None

    def watch(self, reading: NvmlReading) -> None:
        """Listen to the GPUs of *reading* from now on; registers them only if they changed."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="nvml-events", daemon=True)
            self._thread.start()
        gpus = tuple(gpu.uuid for gpu in reading.gpus)
        if gpus != self._gpus:
            with self._changed():
                self._gpus = gpus
        if not self._is_idle.is_set() and time.monotonic() - self._alive_at > STALLED_S:
            self._write({"silent": "a call that waits for events hangs in the driver"})

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Shut NVML down meanwhile, so that the next caller initialises it again.

        What happens during the pause is no event. A call that hangs is not waited for.
        """
        with self._changed():
            self._is_paused = True
        self._is_idle.wait(PAUSE_S)
        try:
            yield
        finally:
            with self._changed():
                self._is_paused = False

    def close(self) -> None:
        """End the thread, if the driver lets it end."""
        with self._changed():
            self._is_stopped = True
        if self._thread is not None:
            self._thread.join(PAUSE_S)

    @contextmanager
    def _changed(self) -> Iterator[None]:
        with self._change:
            yield
            self._version += 1
            self._change.notify_all()

    def _run(self) -> None:
        delay_s = FIRST_DELAY_S
        while True:
            with self._change:
                self._change.wait_for(
                    lambda: self._is_stopped or (self._gpus and not self._is_paused)
                )
                if self._is_stopped:
                    return
                self._alive_at = began = time.monotonic()
                self._is_idle.clear()
                version = self._version
            try:
                with nvml_session() as session:
                    self._listen(session.nvml, version)
            except NvmlUnavailable:
                pass  # the scans report it
            except EventsRefused as error:
                self._write({"silent": str(error)})
            finally:
                self._is_idle.set()
            if time.monotonic() - began > MAX_DELAY_S:
                delay_s = FIRST_DELAY_S
            with self._change:
                is_changed = self._change.wait_for(
                    lambda: self._version != version,  # noqa: B023 - called in this round only
                    delay_s,
                )
            delay_s = FIRST_DELAY_S if is_changed else min(MAX_DELAY_S, delay_s * 2)

    def _listen(self, nvml: Any, version: int) -> None:
        """Pass events on until the order changes."""
        flushed = float("-inf")
        lost = 0
        try:
            with event_set(nvml, self._gpus) as events:
                while self._version == version:
                    self._alive_at = now = time.monotonic()
                    if self._tally and now - flushed >= FLUSH_S:
                        self._flush()
                        flushed = now
                    try:
                        event = events.wait(WAIT_MS)
                    except EventsRefused as error:
                        if error.code != GPU_IS_LOST or lost >= LOST_IN_A_ROW:
                            raise
                        time.sleep(WAIT_MS / 1000)
                        lost += 1
                        continue
                    lost = 0
                    if event is not None:
                        self._tally.add(event)
        finally:
            self._flush()  # also what an error would keep here until the next attempt succeeds

    def _flush(self) -> None:
        """Write what was counted; what the pipe does not take is counted on."""
        events = self._tally.take()
        written = 0
        while written < len(events) and self._write(to_plain(events[written])):
            written += 1
        for event in events[written:]:
            self._tally.add(event)

    def _write(self, document: dict[str, Any]) -> bool:
        """Write one line, which a pipe takes as a whole or not at all (PIPE_BUF, pipe(7))."""
        try:
            os.write(self._out, json.dumps(document).encode() + b"\n")
        except BlockingIOError:
            return False
        except OSError:  # the parent is gone
            return True
        return True


class EventTally:
    """Counts events by kind, so that a storm stays as small as its variety; for one thread.

    Beyond :data:`MAX_KEYS` the XIDs of a GPU are counted together, as :data:`UNKNOWN_XID`: none
    is lost, and memory is bounded by the number of GPUs.
    """

    def __init__(self) -> None:
        self._counts: dict[NvmlEvent, int] = {}

    def __bool__(self) -> bool:
        return bool(self._counts)

    def add(self, event: NvmlEvent) -> None:
        """Add the count of *event*."""
        key = replace(event, count=1)
        if len(self._counts) >= MAX_KEYS and key not in self._counts:
            key = replace(key, xid=UNKNOWN_XID if key.kind is EventKind.XID else None)
        self._counts[key] = self._counts.get(key, 0) + event.count

    def take(self) -> tuple[NvmlEvent, ...]:
        """Return what was counted, first come first, and start over."""
        taken = tuple(replace(key, count=count) for key, count in self._counts.items())
        self._counts.clear()
        return taken


class EventsRefused(Exception):  # noqa: N818 - a state of the node, not a fault of ours
    """NVML provides no events; *code* is the ``nvmlReturn_t``, where there is one."""

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
        gpus: UUIDs by index, for GPUs that do not give theirs now.

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
    """One ``nvmlEventSet_t`` with the GPUs of the node in it (nvml.h, "Event Handling Methods")."""

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        self._uuids: dict[int | None, str | None] = {}  # a device's handle → its GPU's UUID
        try:
            self._set = nvml.nvmlEventSetCreate()
        except nvml.NVMLError as error:
            raise EventsRefused(f"nvmlEventSetCreate: {error}", error.value) from None

    def register(self, gpus: Sequence[str | None], without: set[int]) -> int | None:
        """Register each GPU for the kinds that it supports, except for those of index *without*.

        Returns:
            The index of a GPU that left the set in an undefined state.

        Raises:
            EventsRefused: there is nothing to wait for.
        """
        reasons = [str(self._nvml.NVMLError(_UNKNOWN))] if without else []
        for index in set(range(len(gpus))) - without:
            try:
                handle = self._nvml.nvmlDeviceGetHandleByIndex(index)
                supported = self._nvml.nvmlDeviceGetSupportedEventTypes(handle)
                wanted = sum(bit for bit in KINDS if bit & supported)
                if wanted:
                    self._nvml.nvmlDeviceRegisterEvents(handle, wanted, self._set)
                    self._uuids[_address(handle)] = self._uuid(handle) or gpus[index]
            except self._nvml.NVMLError as error:
                if error.value == _UNKNOWN:
                    return index
                reasons.append(str(error))
        if not self._uuids:
            listed = ", ".join(sorted(set(reasons))) or "none is supported"
            raise EventsRefused(f"no GPU offers events: {listed}")
        return None

    def wait(self, timeout_ms: int) -> NvmlEvent | None:
        """Return the next event; ``None`` if there was none in time, or one of no use to us.

        Raises:
            EventsRefused: for any other return code; it says nothing about any GPU.
        """
        try:
            data = self._nvml.nvmlEventSetWait_v2(self._set, timeout_ms)
        except self._nvml.NVMLError as error:
            if error.value == _TIMEOUT:
                return None
            raise EventsRefused(f"nvmlEventSetWait_v2: {error}", error.value) from None
        kind = KINDS.get(data.eventType)
        if kind is None:
            return None
        xid = data.eventData if kind is EventKind.XID else None
        return NvmlEvent(kind=kind, gpu=self._gpu(data.device), xid=xid)

    def free(self) -> None:
        """Release the set."""
        with suppress(self._nvml.NVMLError):
            self._nvml.nvmlEventSetFree(self._set)

    def _gpu(self, device: Any) -> str | None:
        """Return the UUID of the GPU that *device* is, or is a MIG device of."""
        address = _address(device)
        if address in self._uuids or len(self._uuids) >= _MAX_HANDLES:
            return self._uuids.get(address)
        uuid = None
        if device:
            try:
                parent = self._nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(device)
            except self._nvml.NVMLError:  # it is no MIG device
                uuid = self._uuid(device)
            else:
                uuid = self._uuids.get(_address(parent)) or self._uuid(parent)
        self._uuids[address] = uuid
        return uuid

    def _uuid(self, handle: Any) -> str | None:
        try:
            return str(self._nvml.nvmlDeviceGetUUID(handle)) or None
        except (self._nvml.NVMLError, ValueError):  # ValueError: it is not UTF-8
            return None


def _address(handle: Any) -> int | None:
    return ctypes.cast(handle, ctypes.c_void_p).value
