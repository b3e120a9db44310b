"""What an XID, the error code of NVIDIA's kernel driver, asks for."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from agent.health.status import HealthClass
from agent.health.xid_rows import ROWS, Row

TABLE_VERSION = "2025-10"
"""Edition of NVIDIA's catalogue that the table follows; it is part of every health file."""

CATALOGUE_URL = "https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html"
"""NVIDIA's Xid catalogue, for GPUs from Ampere on: the source of meanings and actions."""

UNLISTED = HealthClass.DEGRADED
"""The class of every code without a row, the driver's own 999 (nvml.h: unknown XID) included.
The recovery action, which is read after each event, raises it where the driver says so."""

OTHER = 0
"""Stands for all codes that :func:`told_apart` puts together; the driver has no XID 0."""

MAX_CODES = 256
"""Most different codes of one GPU, beside those of the table, that are told apart."""

REPEATED = frozenset({13, 31})
"""Application faults that, coming again and again on one GPU, point at the GPU: the same engine
or MMU fails whatever runs there (NVIDIA/NVSentinel #345)."""

RECOVERY_CHANGED = 154
"""Says that the driver asks for another recovery action, which is then to be read."""

SILENT = frozenset({45, RECOVERY_CHANGED})
"""Codes that are counted and told to nobody: 45 follows other faults by the thousand
(NVIDIA/NVSentinel #1710), and what 154 leads to is told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Xid:
    """One code.

    Attributes:
        meaning: in a few words.
        action: what NVIDIA's catalogue tells to do at once; ``None`` where it has no row, or
            names no action.
        kind: our class, unless an operator chose another.
    """

    code: int
    meaning: str
    action: str | None
    kind: HealthClass


def _by_code(rows: tuple[Row, ...]) -> Mapping[int, Xid]:
    return MappingProxyType(
        {
            code: Xid(code=code, meaning=row.meaning, action=row.action, kind=row.kind)
            for row in rows
            for code in row.codes
        }
    )


TABLE: Mapping[int, Xid] = _by_code(ROWS)
"""Every code with a row, by code."""


def xid(code: int) -> Xid:
    """Return what is known of *code*; one without a row is of class :data:`UNLISTED`."""
    known = TABLE.get(code)
    if known is not None:
        return known
    meaning = "several other codes" if code == OTHER else "not in NVIDIA's catalogue, or unused"
    return Xid(code=code, meaning=meaning, action=None, kind=UNLISTED)


def told_apart(code: int, known: Collection[int]) -> int:
    """Return *code*, or :data:`OTHER` where *known* codes of a GPU leave no room for it.

    The driver sends what the hardware says, which may be anything; codes of the table always
    have room.
    """
    has_room = code in TABLE or code in known or len(known) < MAX_CODES
    return code if has_room else OTHER
