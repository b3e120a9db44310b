"""The ways to publish the GPUs of a node to a DRA scheduler, and to claim them.

Each way has the slices of one node and a claim for a number of GPUs. The benches compare what the
ways cost a scheduler (:mod:`tests.bench.dra_cluster`).
"""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from nodetopo.components.dra.pool import Pool
from nodetopo.model.dra import DRIVER, NVIDIA_DRIVER
from nodetopo.model.snapshot import Snapshot
from nodetopo.probes.dra import devices_of
from nodetopo.tools.cluster.export.dra import claim_spec
from tests.tools.cluster.export.drivers import NVIDIA_CLASS, nvidia_gpus, our_classes, ours

Json = Mapping[str, Any]

NODE = "NODE"
"""Stands for the node's name in :attr:`Way.slices`."""

PLAIN, EXPORTED = "NVIDIA, plain claim", "NVIDIA, exported claim"
COUNTED = "nodetopo, single GPUs by count"
SINGLES, SETS = "nodetopo, single GPUs", "nodetopo, sets"
WAYS = (PLAIN, EXPORTED, COUNTED, SINGLES, SETS)


class Way(Struct, frozen=True, kw_only=True):
    """How a driver publishes GPUs, and how claims ask for them.

    Attributes:
        slices: of one node, which is called :data:`NODE`.
        claim: returns a claim's specification for a number of GPUs.
    """

    name: str
    slices: Sequence[Json]
    claim: Callable[[int], Json]

    def slices_of(self, node: str) -> Iterator[dict[str, Any]]:
        """Yield the slices of the node called *node*."""
        for each in self.slices:
            named: dict[str, Any] = json.loads(json.dumps(each).replace(NODE, node))
            yield named


def ways(snapshot: Snapshot) -> tuple[Way, ...]:
    """Return the ways for a machine such as *snapshot*, NVIDIA's first."""
    theirs = [nvidia_gpus(snapshot, NODE, "main")]
    return (
        Way(name=PLAIN, slices=theirs, claim=lambda size: _exactly(NVIDIA_DRIVER, size)),
        Way(name=EXPORTED, slices=theirs, claim=lambda size: claim_spec(snapshot, size)),
        Way(
            name=COUNTED,
            slices=ours(snapshot, NODE, has_sets=False),
            claim=lambda size: _exactly(f"gpu.{DRIVER}", size),
        ),
        *(
            Way(
                name=name,
                slices=slices,
                claim=partial(
                    claim_spec, replace(snapshot, published=devices_of(slices)), driver=DRIVER
                ),
            )
            for name, slices in (
                (SINGLES, ours(snapshot, NODE, has_sets=False)),
                (SETS, ours(snapshot, NODE)),
            )
        ),
    )


def claimed(pool: Pool, gpus: Collection[str]) -> tuple[str, ...]:
    """Return the devices by which a claim has *gpus*, ids: their set, or single GPUs."""
    wanted = frozenset(gpus)
    for each in pool.sets:
        if not each.is_single and frozenset(each.gpus) == wanted:
            return (each.name,)
    return tuple(each.name for each in pool.sets if each.is_single and wanted.issuperset(each.gpus))


def classes() -> tuple[dict[str, Any], ...]:
    """Return the DeviceClasses: those of ``deploy/daemonset``, and that of NVIDIA's driver."""
    return (*our_classes(), NVIDIA_CLASS)


def json_bytes(objects: Iterable[Json]) -> int:
    """Return the bytes of *objects* as JSON without spaces."""
    return sum(len(json.dumps(each, separators=(",", ":"))) for each in objects)


def _exactly(class_name: str, count: int) -> Json:
    exactly = {"deviceClassName": class_name, "allocationMode": "ExactCount", "count": count}
    return {"devices": {"requests": [{"name": "gpus", "exactly": exactly}]}}
