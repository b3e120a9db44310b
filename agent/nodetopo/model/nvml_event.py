"""What NVML reports between scans: events of GPUs, and its own status."""

from enum import StrEnum

from msgspec import Struct


class EventKind(StrEnum):
    """The type of an event (nvml.h, ``nvmlEventType*``; its bit beside each)."""

    XID = "xid"  # 0x8
    MIG_CHANGE = "mig-change"  # 0x100
    UNAVAILABLE = "gpu-unavailable"  # 0x4000
    RECOVERY_ACTION = "recovery-action"  # 0x8000
    MISSED = "missed"
    """Not NVML's: nobody listened for a while, and no scan since shows what happened."""


class NvmlEvent(Struct, frozen=True, kw_only=True):
    """Events of one kind from one GPU, joined since the last delivery."""

    kind: EventKind
    # UUID; None where NVML named no device that has one, which concerns every GPU.
    gpu: str | None = None
    xid: int | None = None  # of `EventKind.XID` only
    count: int = 1


class NvmlTrouble(StrEnum):
    """Why NVML gave no reading."""

    NO_LIBRARY = "no-library"
    """The library cannot be loaded, or lacks functions that every driver has."""
    REFUSED = "refused"
    """NVML returned an error instead of a reading; see :attr:`NvmlStatus.code`."""
    NO_ANSWER = "no-answer"
    """A call did not return in time."""
    DIED = "died"
    """Its process ended in the middle of a scan, or could not be started."""


class NvmlStatus(Struct, frozen=True, kw_only=True):
    """How the last attempt to read NVML ended."""

    trouble: NvmlTrouble | None = None  # None after a successful read
    # The `nvmlReturn_t` of `NvmlTrouble.REFUSED`; 18 is a library and a driver of different
    # versions, 999 is unknown.
    code: int | None = None
    failures: int = 0  # in a row; 0 after a successful read
    cause: str | None = None  # for a person; None after a successful read
    cure: str | None = None  # what a person can do about it; None where nothing is known
