"""What an XID, the error code of NVIDIA's kernel driver, asks for."""

from collections.abc import Collection, Mapping
from types import MappingProxyType

from msgspec import Struct

from nodetopo.model.gpu_health import HealthClass

# The rows of the XID table: data alone.
#
# Meanings and actions follow NVIDIA's Xid catalogue (see :data:`nodetopo.model.xid.CATALOGUE_URL`,
# edition 2025-10), in our words. An action that is named ``WORKFLOW_…`` there is a flow chart and
# not one step. The class follows the action, and where it does not, ``why`` says the reason:
#
# * ``RESTART_APP``, ``IGNORE`` → app
# * ``RESET_GPU`` → reset
# * ``RESTART_BM``, ``RESTART_VM`` → reboot

_APP, _DEGRADED = HealthClass.APP, HealthClass.DEGRADED


_RESET, _REBOOT = HealthClass.RESET, HealthClass.REBOOT


class Row(Struct, frozen=True, kw_only=True):
    """Codes that mean the same."""

    codes: tuple[int, ...]
    meaning: str
    # NVIDIA's immediate action, by its name in the catalogue; None if it has none.
    action: str | None
    kind: HealthClass
    why: str = ""  # the reason for a class that does not follow from `action`, with its source


_BY_DRIVER = "no single action is published: the recovery action decides"


ROWS: tuple[Row, ...] = (
    Row(codes=(8,), meaning="a channel stopped processing", action="RESTART_APP", kind=_APP),
    Row(
        codes=(11, 25, 32),
        meaning="invalid or damaged commands in a push buffer",
        action="RESTART_APP",
        kind=_APP,
    ),
    Row(
        codes=(13,),
        meaning="graphics engine exception",
        action="RESTART_APP",
        kind=_APP,
        why="repeated on one GPU it is `degraded` (NVIDIA/NVSentinel #345)",
    ),
    Row(codes=(14,), meaning="unused", action="IGNORE", kind=_APP),
    Row(
        codes=(31,),
        meaning="GPU memory page fault",
        action="RESTART_APP",
        kind=_APP,
        why="repeated on one GPU it is `degraded` (NVIDIA/NVSentinel #345)",
    ),
    Row(codes=(37, 38), meaning="firmware error in the driver", action="IGNORE", kind=_APP),
    Row(
        codes=(39, 40, 41, 70, 71, 72, 75, 76, 77, 85, *range(126, 136)),
        meaning="copy engine exception",
        action="RESTART_APP",
        kind=_APP,
    ),
    Row(codes=(43,), meaning="a channel was reset by its application", action="IGNORE", kind=_APP),
    Row(codes=(44,), meaning="fault during a context switch", action="IGNORE", kind=_APP),
    Row(
        codes=(45,),
        meaning="channel removed after an earlier fault",
        action="WORKFLOW_XID_45",
        kind=_APP,
        why="it only follows other faults, and is counted, nothing else (NVIDIA/NVSentinel #1710)",
    ),
    Row(codes=(46,), meaning="the GPU stopped processing", action="RESET_GPU", kind=_RESET),
    Row(
        codes=(48,),
        meaning="uncorrectable (double-bit) memory error",
        action="WORKFLOW_XID_48",
        kind=_RESET,
        why="the flow chart begins with a reset; `rma` once the SRAM threshold is exceeded",
    ),
    Row(
        codes=(54,),
        meaning="auxiliary power is not connected",
        action="CHECK_MECHANICALS",
        kind=_DEGRADED,
        why="it runs, slowly; a person has to look",
    ),
    Row(codes=(60,), meaning="video processor exception", action="RESTART_APP", kind=_APP),
    Row(codes=(62,), meaning="a micro-controller halted", action="RESET_GPU", kind=_RESET),
    Row(
        codes=(63,),
        meaning="a memory row or page is to be replaced",
        action="IGNORE",
        kind=_DEGRADED,
        why="new work is safe (nvml.h, nvmlDeviceGetRemappedRows), but a reset when idle is due",
    ),
    Row(
        codes=(64,),
        meaning="a memory row or page could not be replaced",
        action="RESET_GPU",
        kind=_RESET,
        why="`rma` once the failure flag of row remapping is set",
    ),
    Row(codes=(66, 67), meaning="illegal access by the driver", action="IGNORE", kind=_APP),
    Row(
        codes=(68, 83, 84, 88, 89, 96, 97, 98),
        meaning="video decoder exception",
        action="RESTART_APP",
        kind=_APP,
    ),
    Row(codes=(69,), meaning="graphics engine class error", action="RESTART_APP", kind=_APP),
    Row(
        codes=(74,),
        meaning="NVLink error",
        action="WORKFLOW_NVLINK_ERR",
        kind=_RESET,
        why="a link that failed fatally trains again only at a reset",
    ),
    Row(
        codes=(78,),
        meaning="a virtual GPU did not start",
        action="UPDATE_SWFW",
        kind=_APP,
        why="versions of guest and host do not match; the GPU is sound",
    ),
    Row(codes=(79,), meaning="the GPU fell off the bus", action="RESTART_BM", kind=_REBOOT),
    Row(codes=(80,), meaning="damaged data sent to the GPU", action="RESTART_APP", kind=_APP),
    Row(
        codes=(82, *range(99, 106)),
        meaning="JPEG decoder exception",
        action="RESTART_APP",
        kind=_APP,
    ),
    Row(codes=(86, 139), meaning="optical flow exception", action="RESTART_APP", kind=_APP),
    Row(
        codes=(92,),
        meaning="high rate of corrected memory errors",
        action="IGNORE",
        kind=_DEGRADED,
        why="the catalogue's second step is to contact support",
    ),
    Row(codes=(93,), meaning="InfoROM wear limit passed", action="IGNORE", kind=_APP),
    Row(
        codes=(94,),
        meaning="contained memory error",
        action="RESTART_APP",
        kind=_APP,
        why="`degraded` while a row waits to be remapped",
    ),
    Row(codes=(95,), meaning="uncontained memory error", action="RESET_GPU", kind=_RESET),
    Row(codes=(106, 107), meaning="test message", action="IGNORE", kind=_APP),
    Row(codes=(108,), meaning="unused", action="IGNORE", kind=_APP),
    Row(
        codes=(109,),
        meaning="context switch timeout",
        action="RESET_GPU",
        kind=_DEGRADED,
        why="NVIDIA's device plugin has ignored it since 0.17.1: the recovery action decides",
    ),
    Row(codes=(110,), meaning="security fault", action="RESET_GPU", kind=_RESET),
    Row(
        codes=(119, 120),
        meaning="the GPU's system processor (GSP) failed or did not answer",
        action="RESET_GPU",
        kind=_RESET,
    ),
    Row(
        codes=(121,),
        meaning="chip-to-chip link error",
        action="IGNORE",
        kind=_DEGRADED,
        why="the catalogue's second step is to contact support",
    ),
    Row(codes=(136,), meaning="NVLink training failed", action="RESET_GPU", kind=_RESET),
    Row(codes=(137,), meaning="NVLink privilege error", action="IGNORE", kind=_APP),
    Row(codes=(140,), meaning="unrecovered memory error", action="RESET_GPU", kind=_RESET),
    Row(codes=(141,), meaning="CUDA fast path error", action="IGNORE", kind=_APP),
    Row(
        codes=(142,),
        meaning="video encoder exception",
        action="CONTACT_SUPPORT",
        kind=_DEGRADED,
        why=_BY_DRIVER,
    ),
    Row(codes=(143,), meaning="the GPU did not initialise", action="RESET_GPU", kind=_RESET),
    Row(
        codes=tuple(range(144, 151)),
        meaning="NVLink error (fifth generation)",
        action="WORKFLOW_NVLINK5_ERR",
        kind=_DEGRADED,
        why="from ignore to reset by bits that NVML does not pass on: the recovery action decides",
    ),
    Row(codes=(151,), meaning="encryption key rotation", action="RESTART_VM", kind=_REBOOT),
    Row(codes=(152, 153), meaning="DLA error", action="IGNORE", kind=_APP),
    Row(
        codes=(154,),
        meaning="the recovery action changed",
        action="XID_154",
        kind=_APP,
        why="the recovery action is read, and has its own class",
    ),
    Row(codes=(155,), meaning="NVLink, in software", action="RESET_GPU", kind=_RESET),
    Row(codes=(156,), meaning="a resource is to be retired", action="RESET_GPU", kind=_RESET),
    Row(codes=(157,), meaning="a resource could not be retired", action="IGNORE", kind=_APP),
    Row(codes=(158,), meaning="fatal timeout", action="RESET_GPU", kind=_RESET),
    Row(
        codes=(159,),
        meaning="error on the coherent bus to the CPU",
        action="CHECK_UVM",
        kind=_DEGRADED,
        why=_BY_DRIVER,
    ),
    Row(codes=(160, 161), meaning="channel retirement", action="IGNORE", kind=_APP),
    Row(
        codes=(162, 163, 164, 165),
        meaning="power smoothing circuit",
        action=None,
        kind=_DEGRADED,
        why=_BY_DRIVER,
    ),
    Row(
        codes=(166, 170),
        meaning="NVLink in confidential computing",
        action=None,
        kind=_DEGRADED,
        why=_BY_DRIVER,
    ),
    Row(codes=(167,), meaning="fatal PCIe timeout", action=None, kind=_DEGRADED, why=_BY_DRIVER),
    Row(
        codes=(168,),
        meaning="less memory, after errors in a protected region",
        action=None,
        kind=_DEGRADED,
        why=_BY_DRIVER,
    ),
    Row(
        codes=(169,),
        meaning="the security micro-controller halted",
        action=None,
        kind=_DEGRADED,
        why=_BY_DRIVER,
    ),
    Row(
        codes=(171, 172),
        meaning="where an uncorrectable memory error was, in DRAM or SRAM",
        action=None,
        kind=_DEGRADED,
        why="XID 48 comes with it and has the class",
    ),
)
"""By first code. Codes that no row has are unused in the catalogue, or not in it."""


TABLE_VERSION = "2025-10"
"""Edition of NVIDIA's catalogue that the table follows."""


CATALOGUE_URL = "https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html"
"""NVIDIA's Xid catalogue, for GPUs from Ampere on: the source of meanings and actions."""


UNLISTED = HealthClass.DEGRADED
"""The class of every code without a row, the driver's own 999 (nvml.h: unknown XID) included.
The recovery action, which is read after each event, raises it where the driver says so."""


OTHER = 0
"""Stands for all codes that :func:`counted_code` puts together; the driver has no XID 0."""


MAX_CODES = 256
"""Most different codes of one GPU, alongside those of the table, that are told apart."""


REPEATED = frozenset({13, 31})
"""Application faults that, coming again and again on one GPU, point at the GPU: the same engine
or MMU fails whatever runs there (NVIDIA/NVSentinel #345)."""


RECOVERY_CHANGED = 154
"""Says that the driver asks for another recovery action, which is then to be read."""


SILENT = frozenset({45, RECOVERY_CHANGED})
"""Codes that are counted and told to nobody: 45 follows other faults by the thousand
(NVIDIA/NVSentinel #1710), and what 154 leads to is told."""


class Xid(Struct, frozen=True, kw_only=True):
    """One code."""

    code: int
    meaning: str
    # What NVIDIA's catalogue tells to do at once; None where it has no row, or names no action.
    action: str | None
    kind: HealthClass  # our class, unless an operator chose another


TABLE: Mapping[int, Xid] = MappingProxyType(
    {
        code: Xid(code=code, meaning=row.meaning, action=row.action, kind=row.kind)
        for row in ROWS
        for code in row.codes
    }
)
"""Every code with a row, by code."""


def xid(code: int) -> Xid:
    """Return what is known of *code*; one without a row is of class :data:`UNLISTED`."""
    known = TABLE.get(code)
    if known is not None:
        return known
    meaning = "several other codes" if code == OTHER else "not in NVIDIA's catalogue, or unused"
    return Xid(code=code, meaning=meaning, action=None, kind=UNLISTED)


def counted_code(code: int, known: Collection[int]) -> int:
    """Return *code*, or :data:`OTHER` where *known* codes of a GPU leave no room for it.

    The driver sends what the hardware says, which can be anything; codes of the table always
    have room.
    """
    has_room = code in TABLE or code in known or len(known) < MAX_CODES
    return code if has_room else OTHER
