"""The HCAs of a node and their verdicts as a saved record, and what a new process keeps of it.

The daemon ends for an upgrade or by a fault while a pod has an HCA; its next process knows the HCA
by the same key, still lists one that is gone, and gives out none earlier than the last would have.
"""

from collections.abc import Mapping, Sequence
from math import inf
from types import MappingProxyType
from typing import Annotated

from msgspec import Struct, field
from msgspec.structs import replace

from nodetopo.components.rdma.health.hca import HcaRecord, HcaState
from nodetopo.model.hca import Hca
from nodetopo.model.limits import MAX_HCAS, Count
from nodetopo.rdma.identity import MAX_KEY, KnownHca

SCHEMA = "nodetopo-hcas/v1"

HCAS_FILE = "hcas.json"
"""Beside the health file."""


class SavedHcas(Struct, frozen=True, kw_only=True):
    """What outlives the process."""

    # Lost ones included, without what every scan reads again.
    known: Annotated[tuple[KnownHca, ...], Count(0, MAX_HCAS)] = ()
    # By key, without those on which nothing is to be said.
    records: Mapping[str, HcaRecord] = field(default_factory=dict)


def saved(known: Sequence[KnownHca], state: HcaState) -> SavedHcas:
    """Return the part of *state* that a restart must not lose; equal where nothing of it changed.

    Evidence for or against an HCA is not part of it: a new process gathers its own.
    """
    return SavedHcas(
        known=tuple(replace(one, hca=_lasting(one.hca)) for one in known),
        records={
            key: HcaRecord(name=record.name, fault=record.fault, falls=record.falls)
            for key, record in state.items()
            if record.fault is not None or record.falls
        },
    )


def resumed(content: SavedHcas, now: float) -> tuple[tuple[KnownHca, ...], HcaState]:
    """Return the HCAs and the state with which a process of the same boot begins at *now*.

    An Unhealthy HCA stays so until it has been well for its whole time once more; a Healthy one
    that is first seen with a fault is Unhealthy at once, as after any start. No time is in the
    future. Keys that appear twice or are too long are somebody else's work: the first one counts.
    """
    known: dict[str, KnownHca] = {}
    for one in content.known:
        if 0 < len(one.key) <= MAX_KEY:
            known.setdefault(one.key, one)
    state = {}
    for key, one in known.items():
        record = content.records.get(key, HcaRecord(name=one.hca.name))
        falls = tuple(sorted(min(max(at, 0.0), now) for at in record.falls))
        state[key] = HcaRecord(
            name=record.name,
            fault=record.fault,
            suspect_since=-inf if record.fault is None else None,
            falls=falls,
        )
    return tuple(known.values()), MappingProxyType(state)


def _lasting(hca: Hca) -> Hca:
    """Return the facts by which an HCA is recognized, offered and placed."""
    ports = tuple(
        replace(
            port,
            state=None,
            physical_state=None,
            rate_gbps=None,
            lid=None,
            sm_lid=None,
            gids=(),
            counters=None,
        )
        for port in hca.ports
    )
    return replace(hca, ports=ports, firmware=None)
