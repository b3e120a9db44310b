"""The score of a set of MIG devices or replicas: the order of the terms, and their record.

Devices of one GPU are interchangeable, so the score depends on how many of them come from which
GPU. Bandwidth, NUMA nodes, sockets and HCAs belong to the GPUs touched, each counted once: two
replicas of one GPU are one GPU, not a connected pair.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from msgspec import Struct

from nodetopo.allocation.masks import positions
from nodetopo.allocation.rules import Policy
from nodetopo.allocation.score import (
    Score,
    hca_distance,
    hca_far,
    models,
    numa_nodes,
    rail_loss,
    sockets,
)
from nodetopo.allocation.terms import Terms

_BANDWIDTH = ("bandwidth_gb_s", "models")
_SPAN = ("numa_nodes", "sockets")
_HCAS = ("hca_far", "rail_loss", "hca_distance")

FEWEST_GPUS = ("gpus",)
"""The first term of packing."""

LEAST_LOAD = ("load", "doubled")
"""The first term of distributing."""

FEWEST_DEGRADED = ("degraded",)
"""The first term of every policy."""

_WHOLE = ("idle_gpus", "left")

_PACKED: Mapping[Policy, tuple[str, ...]] = MappingProxyType(
    {
        Policy.PACKED: (*FEWEST_GPUS, *_BANDWIDTH, *_SPAN, *_WHOLE, *_HCAS, "order"),
        Policy.NUMA_FIRST: (*FEWEST_GPUS, *_SPAN, *_BANDWIDTH, *_WHOLE, *_HCAS, "order"),
        Policy.NIC_REQUIRED: (*FEWEST_GPUS, *_HCAS, *_BANDWIDTH, *_SPAN, *_WHOLE, "order"),
    },
)

_DISTRIBUTED: Mapping[Policy, tuple[str, ...]] = MappingProxyType(
    {
        Policy.DISTRIBUTED: (*LEAST_LOAD, *_BANDWIDTH, *_SPAN, *_HCAS, "order"),
        Policy.NUMA_FIRST: (*LEAST_LOAD, *_SPAN, *_BANDWIDTH, *_HCAS, "order"),
        Policy.NIC_REQUIRED: (*LEAST_LOAD, *_HCAS, *_BANDWIDTH, *_SPAN, "order"),
    },
)


def shared_terms(policy: Policy, *, spread: bool) -> tuple[str, ...]:
    """Return the fields of :class:`SharedScore` to compare; the first that differs decides.

    How many GPUs a request touches matters most for shared GPUs, so *spread* (the default of
    the resource) or the policies ``packed`` and ``distributed`` decide it first. ``numa-first``
    and ``nic-required`` order the other terms; ``best`` leaves them as they are.
    """
    spread = policy is Policy.DISTRIBUTED or (spread and policy is not Policy.PACKED)
    if spread:
        order = _DISTRIBUTED.get(policy, _DISTRIBUTED[Policy.DISTRIBUTED])
    else:
        order = _PACKED.get(policy, _PACKED[Policy.PACKED])
    return (*FEWEST_DEGRADED, *order)


class SharedScore(Score, frozen=True, kw_only=True):
    """The terms of a set of devices: its GPUs' terms, and the terms of sharing.

    The fields of :class:`Score` are about the GPUs touched, but *degraded* counts devices.
    *remainder_value*, *broken_partitions* and *crowding* count idle GPUs as free and are not
    compared. ``None`` in *load*, *idle_gpus* and *left* means that it is not known what else was
    free.
    """

    gpus: int  # touched by the set
    doubled: int  # pairs of devices of the set that are on one GPU
    # Sum over the devices of how many devices in use each joins on its GPU, the earlier ones of the
    # set included: what NVIDIA's `distributed` keeps low pick by pick (k8s-device-plugin v0.19.0,
    # internal/rm/allocate.go).
    load: int | None
    idle_gpus: int | None  # GPUs touched whose devices were all free
    left: int | None  # devices that stay free on the GPUs touched


class Leaves(Struct, frozen=True, kw_only=True):
    """One machine and the rules by which devices of its GPUs are shared."""

    terms: Terms
    order: tuple[str, ...]  # the terms to compare, most important first
    # The devices are MIG devices, which reach no other GPU: NVLink, PCIe peer access and CUDA IPC
    # are off between them (NVIDIA MIG user guide, limitations). So bandwidth does not count.
    is_isolated: bool

    @property
    def is_spread(self) -> bool:
        """Whether the devices are distributed rather than packed."""
        return LEAST_LOAD[0] in self.order

    @property
    def of_the_set(self) -> tuple[str, ...]:
        """The terms by which GPU sets differ that are equal in what is compared first."""
        first = (*FEWEST_DEGRADED, *FEWEST_GPUS, *LEAST_LOAD, "order")
        return tuple(name for name in self.order if name not in first)

    def bandwidth(self, mask: int) -> int:
        """Return the bandwidth of a set of GPUs, 0.1 GB/s; 0 for one, and for MIG devices."""
        return 0 if self.is_isolated else self.terms.modelled_bandwidth(mask)

    def figures(self, mask: int) -> Mapping[str, int]:
        """Return the terms of a set of GPUs that do not depend on the request; less is better."""
        facts, members = self.terms.facts, positions(mask)
        return {
            "bandwidth_gb_s": -self.bandwidth(mask),
            "models": models(facts, members),
            "numa_nodes": numa_nodes(facts, members),
            "sockets": sockets(facts, members),
            "hca_far": hca_far(facts, members),
            "rail_loss": rail_loss(facts, members),
            "hca_distance": hca_distance(facts, members),
        }


def doubled(taken: Sequence[int]) -> int:
    """Return the pairs of devices on one GPU, where *taken* are the devices of each GPU."""
    return sum(count * (count - 1) // 2 for count in taken)


def load(taken: Sequence[int], used: Sequence[int]) -> int:
    """Return ``load`` for the devices *taken* by GPU, where *used* were in use before."""
    return doubled(taken) + sum(n * before for n, before in zip(taken, used, strict=True))
