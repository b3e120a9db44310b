"""XIDs from the kernel's log, a third source in addition to NVML's events and the scans.

NVML does not deliver every XID (NVIDIA/DCGM #162 names 79, 119 and 120), and a GPU can fall off the
bus without one (NVIDIA/NVSentinel #155). The log has them all. Reading it needs CAP_SYSLOG if
``kernel.dmesg_restrict`` is set, so it is read only if configured.

An XID that NVML delivers too arrives twice, as two events of the same GPU and code: one fact for
the health of GPUs, which joins events by (GPU, XID), and two for a counter of events.
"""

import os
import re
import select
import stat
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import structlog

from nodetopo.errors import InputError
from nodetopo.model.nvml_event import EventKind, NvmlEvent
from nodetopo.model.pci import PciAddress
from nodetopo.probes.nvml.tally import FLUSH_S, EventTally

_CHUNK = 1 << 16
"""Bytes; ``/dev/kmsg`` gives one record a read, of 8 KiB at most (kernel/printk/printk.c)."""

_MAX_READS = 20_000
"""Reads before a delivery, so that a storm cannot put it off for ever."""

_RETRY_S = 1.0
"""Between looks at a file that is at its end, and after an error."""

_CLOSE_S = 0.5

_HEADER = re.compile(rb"([0-9]{1,9}),[0-9]+,[0-9]+,[^;\n]*;")
"""``priority,sequence,microseconds,flags;`` (Documentation/ABI/testing/dev-kmsg)."""

_FACILITIES = 8
"""Priorities below are the kernel's: a user's records in ``/dev/kmsg`` get facility 1 or more (the
same document), and could be forged.
"""

_ADDRESS = r"(?:PCI:)?([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2})(?:\.[0-7])?"
_INSTANCE = r"(?: GPU-I:[0-9]+)?(?: GPU-CI:[0-9]+)?"
_XID = re.compile(rf"NVRM: Xid \({_ADDRESS}{_INSTANCE}\): ([0-9]{{1,9}})(?![0-9])")
"""``NVRM: Xid (PCI:0000:3b:00 GPU-I:01 GPU-CI:02): 79, …`` (open-gpu-kernel-modules
src/nvidia/src/kernel/gpu/rc/kernel_rc.c); the instances on MIG alone. Older drivers wrote no
``PCI:``, and those before 2010 an address without a domain or none, which no driver does that
serves containers."""

_FALLEN = re.compile(rf"NVRM: (?:The NVIDIA )?GPU (?:at )?{_ADDRESS}\b.*fallen off the bus")
"""``NVRM: The NVIDIA GPU 0000:b3:00.0 … has fallen off the bus …``, over several lines of one
record, and ``NVRM: GPU 0000:b3:00.0: GPU has fallen off the bus.``; both without an XID."""


class KernelLog:
    """Reads new records of the kernel's log in a separate thread.

    Args:
        path: ``/dev/kmsg``, or a pipe or file with records in its form.
        on_events: gets the merged events, at most ten times a second; must return quickly.
        uuid_of: the UUID of the GPU at an address, function 0; ``None`` for an unknown one, whose
            events are left out: an event without a GPU would concern all of them.

    Raises:
        InputError: *path* cannot be read.
    """

    def __init__(
        self,
        path: Path,
        on_events: Callable[[Sequence[NvmlEvent]], None],
        uuid_of: Callable[[PciAddress], str | None],
    ) -> None:
        self._on_events = on_events
        self._uuid_of = uuid_of
        self._tally = EventTally()
        self._is_closed = threading.Event()
        try:
            self._file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            if not stat.S_ISFIFO(os.fstat(self._file).st_mode):
                os.lseek(self._file, 0, os.SEEK_END)
        except OSError as error:
            raise InputError(
                f"cannot read the kernel's log {path}: {error.strerror}",
                "give the agent the file and CAP_SYSLOG, or leave the setting out",
            ) from None
        self._rest = b""
        self._wake, self._waker = os.pipe()
        self._thread = threading.Thread(target=self._run, name="kernel-log", daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def close(self) -> None:
        """End the thread, if it was started; for good."""
        if self._is_closed.is_set():
            return
        self._is_closed.set()
        os.write(self._waker, b"\n")
        if self._thread.is_alive():
            self._thread.join(_CLOSE_S)
        if not self._thread.is_alive():  # a callback that hangs keeps them
            for descriptor in (self._file, self._wake, self._waker):
                os.close(descriptor)

    def _run(self) -> None:
        poll = select.poll()
        poll.register(self._file, select.POLLIN)
        poll.register(self._wake, select.POLLIN)
        while not self._is_closed.is_set():
            poll.poll()
            has_more = self._read()
            if self._tally:
                try:
                    self._on_events(self._tally.take())
                except Exception:  # noqa: BLE001 - a failing callback must not end later events
                    structlog.get_logger().exception("events of the kernel's log not taken")
            self._is_closed.wait(FLUSH_S if has_more else _RETRY_S)

    def _read(self) -> bool:
        """Count available records; return false at the end of a file, or of a pipe's writers."""
        for _ in range(_MAX_READS):
            if self._is_closed.is_set():
                return False
            try:
                content = os.read(self._file, _CHUNK)
            except BlockingIOError:
                return True
            except BrokenPipeError:  # records were overwritten before we came; go on behind them
                continue
            except OSError:
                return False
            if not content:
                return False
            *records, self._rest = (self._rest + content).split(b"\n")
            self._rest = self._rest[-_CHUNK:]
            for address, xid in filter(None, map(parse, records)):
                gpu = self._uuid_of(address)
                kind = EventKind.UNAVAILABLE if xid is None else EventKind.XID
                if gpu is not None:
                    self._tally.add(NvmlEvent(kind=kind, gpu=gpu, xid=xid))
        return True


def parse(record: bytes) -> tuple[PciAddress, int | None] | None:
    """Return the GPU and the XID in a record of ``/dev/kmsg``.

    The XID is ``None`` for a GPU that fell off the bus. ``None`` for every other record, and for
    one that did not come from the kernel.
    """
    header = _HEADER.match(record)
    if header is None or int(header[1]) >= _FACILITIES:
        return None
    text = record[header.end() :].decode("ascii", "replace")
    if match := _XID.match(text):
        return PciAddress.parse(f"{match[1]}.0"), int(match[2])
    if match := _FALLEN.match(text):
        return PciAddress.parse(f"{match[1]}.0"), None
    return None
