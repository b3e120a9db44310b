"""The operator's choices for placement: a policy and a bandwidth model."""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

from msgspec import Struct

from nodetopo.allocation.measured import Measured


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


_BANDWIDTH = ("bandwidth_gb_s", "models", "pair_bandwidth_gb_s")
_SPAN = ("numa_nodes", "sockets")
_HCAS = ("hca_far", "rail_loss", "hca_distance")
_FIRST = ("degraded",)
_LAST = ("broken_partitions", "shortfall_gb_s", "reach_gb_s", "order")

TERMS: Mapping[Policy, tuple[str, ...]] = MappingProxyType(
    {
        Policy.BEST: (*_FIRST, *_BANDWIDTH, *_SPAN, "remainder_value", *_HCAS, *_LAST),
        Policy.NUMA_FIRST: (*_FIRST, *_SPAN, *_BANDWIDTH, "remainder_value", *_HCAS, *_LAST),
        Policy.PACKED: (*_FIRST, "remainder_value", *_BANDWIDTH, *_SPAN, *_HCAS, *_LAST),
        Policy.DISTRIBUTED: (
            *_FIRST,
            "crowding",
            *_BANDWIDTH,
            *_SPAN,
            *_HCAS,
            "remainder_value",
            *_LAST,
        ),
        Policy.NIC_REQUIRED: (*_FIRST, *_HCAS, *_BANDWIDTH, *_SPAN, "remainder_value", *_LAST),
    },
)
"""The fields of :class:`nodetopo.allocation.score.Score` that a policy compares; the first that
differs decides. ``best`` lost the least bandwidth of about 35 orders tried on traces
(docs/internals/placement.md); the others move what their name says to the front."""


HCAS_OF_ONE = ("hca_nearness", "rails_beside")
"""The terms compared for one GPU in place of the HCA terms, so that the GPUs near an HCA, and the
sockets with many, stay free: a job of one GPU sends nothing to other GPUs, and half to nine tenths
of all jobs have one GPU.
"""


NOT_OF_ONE = frozenset({"bandwidth_gb_s", "models", "pair_bandwidth_gb_s", "shortfall_gb_s"})
"""The terms without a meaning for one GPU, which sends nothing."""

NOT_OF_TWO = frozenset({"pair_bandwidth_gb_s"})
"""The pair of two GPUs is the set, whose bandwidth was compared."""


def terms_for(policy: Policy, size: int, *, with_hcas: bool = False) -> tuple[str, ...]:
    """Return the terms that *policy* compares for requests of *size* GPUs.

    *with_hcas*: the container can get HCAs too, so that these come before what is left to others.
    Then, and under ``nic-required``, a pod with one GPU can be a rank of a larger job.
    """
    order = TERMS[policy]
    if with_hcas:
        order = _before_remainder(order)
    if size == 2:
        return tuple(name for name in order if name not in NOT_OF_TWO)
    if size != 1:
        return order
    order = tuple(name for name in order if name not in NOT_OF_ONE)
    if with_hcas or policy is Policy.NIC_REQUIRED:
        return order
    start = order.index(_HCAS[0])
    return (*order[:start], *HCAS_OF_ONE, *order[start + len(_HCAS) :])


def _before_remainder(order: tuple[str, ...]) -> tuple[str, ...]:
    """Return *order* with the HCA terms before the remainder, if they came after it."""
    others = tuple(name for name in order if name not in _HCAS)
    at = min(others.index("remainder_value"), order.index(_HCAS[0]))
    return (*others[:at], *_HCAS, *others[at:])


class Rules(Struct, frozen=True, kw_only=True):
    """A policy and a model; every model uses ``measured``, and ``table`` requires it."""

    policy: Policy = Policy.BEST
    model: Model = Model.RING
    measured: Measured | None = None
    with_hcas: bool = False  # the container can get HCAs too, see `terms_for`

    def terms(self, size: int) -> tuple[str, ...]:
        """Return the terms that are compared for requests of *size* GPUs."""
        return terms_for(self.policy, size, with_hcas=self.with_hcas)


DEFAULT = Rules()
