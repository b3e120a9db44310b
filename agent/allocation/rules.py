"""The operator's choices for placement: a policy and a bandwidth model."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from agent.allocation.measured import Measured


class Policy(StrEnum):
    """Which term decides first; docs/internals/placement.md says when to use which."""

    BEST = "best"
    NUMA_FIRST = "numa-first"
    PACKED = "packed"
    DISTRIBUTED = "distributed"
    NIC_REQUIRED = "nic-required"


class Model(StrEnum):
    """How the bandwidth of a set is estimated."""

    RING = "ring"
    RELAY = "relay"
    TABLE = "table"


_BANDWIDTH = ("bandwidth_gb_s", "pair_bandwidth_gb_s")
_SPAN = ("numa_nodes", "sockets")
_HCAS = ("hca_far", "rail_loss", "hca_distance")
_LAST = ("broken_partitions", "order")

TERMS: Mapping[Policy, tuple[str, ...]] = MappingProxyType(
    {
        Policy.BEST: (*_BANDWIDTH, *_SPAN, "remainder_value", *_HCAS, *_LAST),
        Policy.NUMA_FIRST: (*_SPAN, *_BANDWIDTH, "remainder_value", *_HCAS, *_LAST),
        Policy.PACKED: ("remainder_value", *_BANDWIDTH, *_SPAN, *_HCAS, *_LAST),
        Policy.DISTRIBUTED: ("crowding", *_BANDWIDTH, *_SPAN, *_HCAS, "remainder_value", *_LAST),
        Policy.NIC_REQUIRED: (*_HCAS, *_BANDWIDTH, *_SPAN, "remainder_value", *_LAST),
    },
)
"""The fields of :class:`agent.allocation.score.Score` that a policy compares; the first that
differs decides. ``best`` lost the least bandwidth of about 35 orders tried on traces
(docs/internals/placement.md); the others move what their name says to the front."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """A policy and a model; every model uses ``measured``, and ``table`` requires it."""

    policy: Policy = Policy.BEST
    model: Model = Model.RING
    measured: Measured | None = None


DEFAULT = Rules()
