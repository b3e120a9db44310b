"""NVML's events: a thread of the NVML child listens for them.

They are merged and written as JSON lines to a separate pipe. While the thread listens, NVML stays
initialised in this process. GPUs are registered before they are read: the reading shows earlier
changes, and events report later ones.
"""

import ctypes
import json
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import MappingProxyType
from typing import Any

from nodetopo.errors import NvmlUnavailable
from nodetopo.model.nvml_event import EventKind, NvmlEvent
from nodetopo.model.plain import to_plain
from nodetopo.probes.nvml.reading import MAX_GPUS, nvml_session
from nodetopo.probes.nvml.record import NvmlReading
from nodetopo.probes.nvml.tally import FLUSH_S, EventTally, HeldEvents

KINDS: Mapping[int, EventKind] = MappingProxyType(
    {
        0x8: EventKind.XID,
        0x100: EventKind.MIG_CHANGE,
        0x4000: EventKind.UNAVAILABLE,
        0x8000: EventKind.RECOVERY_ACTION,
    },
)
"""The types that are registered where a GPU supports them (nvml.h, ``nvmlEventType*``)."""

WAIT_MS = 500
"""Longest single wait, and so about the time until the thread notices that it should stop or
register the GPUs again. An event ends it at once; each wake-up without one costs 0.2 ms of CPU."""

LOST_PAUSE_S = 0.2
"""Between two waits that answer GPU_IS_LOST."""

FIRST_DELAY_S = 1.0
MAX_DELAY_S = 60.0
"""Pauses before the GPUs are registered again after an error, doubling in between. A reading
does not wait for them: it has the GPUs registered first."""

STEADY_S = 10.0
"""After listening for this long, pauses start with the shortest again."""

LOST_IN_A_ROW = 30
"""Number of consecutive GPU_IS_LOST answers after which all GPUs are registered again, which the
lost one refuses: it could hide the others' events.
"""

STALLED_S = 30.0
"""A registration or a wait that takes longer hangs; either should take :data:`WAIT_MS` or less."""

PAUSE_S = 1.0
"""How long a reading waits for the registration: for the end of a wait (:data:`WAIT_MS`), and for
the calls. Longer means that a call is slow, or hangs."""

QUIET_MS = 250
"""A replaced process ends after a silence of this length: its successor heard the same before it,
and new events afterwards. It is far longer than the delay of one event between two processes.
"""

SETTLE_S = 3.0
"""Longest wait for that silence. In a storm, a moment without a waiting event must suffice."""

GPU_IS_LOST = 15
_TIMEOUT, _UNKNOWN = 10, 999
"""``nvmlReturn_t``."""

_MAX_HANDLES = 4096
"""Most handles whose GPU is remembered: 64 GPUs with MIG devices that come and go."""


class EventListener:
    """Listens to all GPUs, from the first reading on.

    Errors here prove nothing about a GPU: the thread retries, less and less often, and reports why
    it is silent. If it began to listen after a reading began, it reports :attr:`EventKind.MISSED`:
    only another reading shows the changes in between.

    Args:
        out: the descriptor for its lines, an event each, or ``{"silent": reason}``. It must not
            block: while it is full, events are counted here, so that none is lost.
    """

    def __init__(self, out: int) -> None:
        self._out = out
        self._tally = EventTally()
        self._change = threading.Condition()
        self._held: HeldEvents | None = None  # while a predecessor listens as well
        self._ended_at: float | None = None  # until then a retired listener has heard everything
        self._known: tuple[str | None, ...] = ()  # UUIDs by index, of the last reading
        self._registered: tuple[str | None, ...] | None = None  # the same; None: does not listen
        self._version = 0  # of the order; the thread abandons work for an older one
        self._tried = 0  # the last version whose registration has succeeded or failed
        self._is_awaited = False
        self._unsaid: str | None = None  # why there are no events, until a reading succeeds
        self._is_stopped = False
        self._is_retiring = False
        self._is_busy = False
        self._alive_at = time.monotonic()
        self._thread: threading.Thread | None = None

    def prepare(self, *, anew: bool) -> bool:
        """Register the GPUs before a reading, so that no change between the two is missed.

        A listener that waits for a retry does it at once.

        Args:
            anew: shut NVML down and initialise it first: only then does it look for GPUs.

        Returns:
            Whether it listens. It may not yet: a registration is waited for :data:`PAUSE_S`.
        """
        with self._change:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="nvml-events", daemon=True)
                self._thread.start()
            if (self._registered is None or anew) and not self._is_stalled:
                self._renew()
                wanted = self._version
                self._is_awaited = True
                self._change.wait_for(lambda: self._tried == wanted, PAUSE_S)
                self._is_awaited = False
            return self._registered is not None

    def watch(self, reading: NvmlReading) -> None:
        """Register all GPUs again if *reading* has other GPUs than the registered ones."""
        with self._change:
            self._known = tuple(gpu.uuid for gpu in reading.gpus)
            if self._registered is not None and not _fits(self._registered, self._known):
                self._renew()
            reason, self._unsaid = self._unsaid, None
            if self._is_stalled:
                reason = "a call that waits for events hangs in the driver"
            is_successor = self._held is not None
        if reason is not None and not is_successor:  # it may never take over
            self._write({"silent": reason})

    def hold(self) -> None:
        """Keep events back from now on: another process still delivers the same ones."""
        with self._change:
            self._held = HeldEvents()

    def release(self, delivered_until: float | None) -> None:
        """Pass on the held events, and all later ones.

        Args:
            delivered_until: time up to which the other process has delivered events, on the
                monotonic clock, which all processes share. ``None`` if unknown: then no event is
                left out, and some may be counted twice.
        """
        with self._change:
            held, self._held = self._held, None
            for event in () if held is None else held.after(delivered_until):
                self._tally.add(event)
        self._flush()

    def retire(self) -> float | None:
        """End the thread in a silence, with all that it has heard delivered.

        Returns:
            The ``delivered_until`` of the successor's :meth:`release`; ``None`` if this listener
            did not listen to the end, or there was always more to hear.
        """
        self._is_retiring = True
        self.close(within_s=SETTLE_S + 2 * PAUSE_S)
        until = time.monotonic() + PAUSE_S
        while self._tally and time.monotonic() < until:  # the pipe is full
            self._flush()
            time.sleep(FLUSH_S)
        return self._ended_at

    def close(self, within_s: float = PAUSE_S) -> None:
        """End the thread, if the driver lets it end."""
        with self._change:
            self._is_stopped = True
            self._renew()
        if self._thread is not None:
            self._thread.join(within_s)

    @property
    def _is_stalled(self) -> bool:
        return self._is_busy and time.monotonic() - self._alive_at > STALLED_S

    def _renew(self) -> None:
        self._version += 1
        self._change.notify_all()

    def _run(self) -> None:
        delay_s = FIRST_DELAY_S
        while True:
            with self._change:
                if self._is_stopped:
                    return
                version = self._version
                self._is_busy = True
                self._alive_at = began = time.monotonic()
            reason, is_refused = None, False
            try:
                with nvml_session() as session:
                    self._listen(session.nvml, version)
            except NvmlUnavailable:
                is_refused = True  # the scans report it
            except EventsRefused as error:
                reason = str(error)
            with self._change:
                self._is_busy = False
                self._registered = None
                self._tried = version
                if self._is_awaited and version == self._version:
                    self._unsaid, reason = reason, None
                    self._is_awaited = False
                self._change.notify_all()
            if reason is not None and not self._is_stopped:
                self._write({"silent": reason})
            if time.monotonic() - began >= STEADY_S:
                delay_s = FIRST_DELAY_S
            with self._change:
                # NVML that does not initialise has cost little; the next scan finds it back, or
                # ends this process.
                pause_s = FIRST_DELAY_S if is_refused else delay_s
                is_changed = self._change.wait_for(
                    lambda: self._version != version,  # noqa: B023 - called in this round only
                    pause_s,
                )
            if not (is_changed or is_refused):
                delay_s = min(MAX_DELAY_S, delay_s * 2)

    def _listen(self, nvml: Any, version: int) -> None:
        """Pass events on until the order changes."""
        flushed = float("-inf")
        lost = 0
        wait_ms = 0  # the first wait only shows that there is something to wait for
        try:
            with event_set(nvml, self._known) as events:
                while self._version == version:
                    self._alive_at = now = time.monotonic()
                    if self._tally and now - flushed >= FLUSH_S:
                        self._flush()
                        flushed = now
                    try:
                        # What was counted since the last delivery must not wait for an event.
                        soon_ms = min(wait_ms, round(FLUSH_S * 1000))
                        event = events.wait(soon_ms if self._tally else wait_ms)
                    except EventsRefused as error:
                        if error.code != GPU_IS_LOST or lost >= LOST_IN_A_ROW:
                            raise
                        time.sleep(LOST_PAUSE_S)
                        lost += 1
                        continue
                    lost = 0
                    if event is not None:
                        self._take(event)
                    if wait_ms == 0:
                        self._began(version, events.gpus)
                        wait_ms = WAIT_MS
                with suppress(EventsRefused):
                    self._settle(events)
        finally:
            self._flush()  # also events that an error would hold until the next success

    def _began(self, version: int, gpus: tuple[str | None, ...]) -> None:
        """Note that *gpus* are registered; a reading that waits for it will show the rest."""
        with self._change:
            if version != self._version:
                return
            self._registered = gpus
            self._tried = version
            if not self._is_awaited:
                self._tally.add(NvmlEvent(kind=EventKind.MISSED))
            self._is_awaited = False
            self._change.notify_all()

    def _take(self, event: NvmlEvent) -> None:
        with self._change:
            if self._held is None:
                self._tally.add(event)
            else:
                self._held.add(event, time.monotonic())

    def _settle(self, events: "GpuEventSet") -> None:
        """Take remaining events, at the end of all listening until a silence; record its time."""
        patience_s = SETTLE_S if self._is_retiring else 0.0
        began = flushed = now = time.monotonic()
        while now - began < patience_s + PAUSE_S:
            quiet_ms = QUIET_MS if now - began < patience_s else 0
            event = events.wait(quiet_ms)
            if event is not None:
                self._take(event)
            if events.is_drained:  # nothing came in the whole of the wait
                self._ended_at = now + quiet_ms / 1000
                return
            now = time.monotonic()
            if now - flushed >= FLUSH_S:
                self._flush()
                flushed = now

    def _flush(self) -> None:
        """Write the counted events; events that the pipe refuses stay counted."""
        with self._change:
            events = self._tally.take()
        written = 0
        while written < len(events) and self._write(to_plain(events[written])):
            written += 1
        with self._change:
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


def _fits(registered: Sequence[str | None], read: Sequence[str | None]) -> bool:
    """Return whether *read* are the *registered* GPUs; a GPU without a UUID can be any."""
    return len(registered) == len(read) and all(
        now in (None, was) for was, now in zip(registered, read, strict=True)
    )


class EventsRefused(Exception):  # noqa: N818 - a state of the node, not a fault of ours
    """NVML provides no events; *code* is the ``nvmlReturn_t``, if any."""

    def __init__(self, reason: str, code: int | None = None) -> None:
        super().__init__(reason)
        self.code = code


@contextmanager
def event_set(nvml: Any, known: Sequence[str | None]) -> Iterator["GpuEventSet"]:
    """Yield a set with every GPU in it that offers events, and free it afterwards.

    A GPU that leaves the set in an undefined state (UNKNOWN from ``nvmlDeviceRegisterEvents``,
    after which nvml.h has the set freed) is left out of the next one.

    Args:
        nvml: the module ``pynvml``, initialised.
        known: UUIDs by index, for GPUs that do not give theirs now.
    """
    without: set[int] = set()
    while True:
        made = GpuEventSet(nvml)
        try:
            unsettled = made.register(known, without)
            if unsettled is None:
                yield made
                return
            without.add(unsettled)
        finally:
            made.free()


class GpuEventSet:
    """One ``nvmlEventSet_t`` with the GPUs of the node in it (nvml.h, "Event Handling Methods")."""

    def __init__(self, nvml: Any) -> None:
        # The UUID of each GPU of the node by index, including GPUs without events; ``None`` if
        # unknown.
        self.gpus: tuple[str | None, ...] = ()
        # Whether the last wait ended without an event, after its whole time.
        self.is_drained = False
        self._nvml = nvml
        self._uuids: dict[int | None, str | None] = {}  # a device's handle → its GPU's UUID
        try:
            self._set = nvml.nvmlEventSetCreate()
        except nvml.NVMLError as error:
            raise EventsRefused(f"nvmlEventSetCreate: {error}", error.value) from None

    def register(self, known: Sequence[str | None], without: set[int]) -> int | None:
        """Register each GPU for the kinds that it supports, except for those of index *without*.

        Returns:
            The index of a GPU that left the set in an undefined state.
        """
        try:
            count = min(MAX_GPUS, self._nvml.nvmlDeviceGetCount())
        except self._nvml.NVMLError as error:
            raise EventsRefused(f"nvmlDeviceGetCount: {error}", error.value) from None
        reasons = [str(self._nvml.NVMLError(_UNKNOWN))] if without else []
        gpus: list[str | None] = [None] * count
        gpus[: len(known)] = known[:count]
        for index in range(count):
            try:
                handle = self._nvml.nvmlDeviceGetHandleByIndex(index)
                gpus[index] = self._uuid(handle) or gpus[index]
                if index in without:
                    continue
                supported = self._nvml.nvmlDeviceGetSupportedEventTypes(handle)
                wanted = sum(bit for bit in KINDS if bit & supported)
                if wanted:
                    self._nvml.nvmlDeviceRegisterEvents(handle, wanted, self._set)
                    self._uuids[_address(handle)] = gpus[index]
            except self._nvml.NVMLError as error:
                if error.value == _UNKNOWN:
                    return index
                reasons.append(str(error))
        self.gpus = tuple(gpus)
        if not self._uuids:
            listed = ", ".join(sorted(set(reasons))) or "none is supported"
            raise EventsRefused(f"no GPU offers events: {listed}")
        return None

    def wait(self, timeout_ms: int) -> NvmlEvent | None:
        """Return the next event; ``None`` after a timeout, or for an irrelevant one."""
        self.is_drained = False
        try:
            data = self._nvml.nvmlEventSetWait_v2(self._set, timeout_ms)
        except self._nvml.NVMLError as error:
            if error.value == _TIMEOUT:
                self.is_drained = True
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
