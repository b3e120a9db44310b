"""GPUs and the HCAs that the same container holds, pair by pair on the PCI bus: ALN-006.

A NUMA node often has several GPUs and HCAs behind several PCIe switches. ALN-003 sees no fault
where a GPU is given the HCA of its neighbour's switch.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence

from msgspec import Struct

from nodetopo.checks.inputs import (
    because,
    missing_gpus,
    missing_hcas,
    missing_machine,
    no_adapters,
    no_gpus,
    unknown_of,
    virtual_machine,
)
from nodetopo.checks.rule import Finding, Judgement, Missing, Severity, Skip, rule
from nodetopo.components.audit.alignment.devices import DevicePlaces, HeldHca
from nodetopo.components.audit.alignment.measure import FINISHED, MAX_DEVICES, MAX_ROWS, RUNNING
from nodetopo.components.audit.rules.gpu_pods import container_name, uses_gpus
from nodetopo.components.audit.rules.pods.inputs import listed
from nodetopo.components.audit.rules.rdma_devices import Meaning, RdmaPools, is_rdma_device
from nodetopo.model.nvlink import Closeness
from nodetopo.model.pod import Container
from nodetopo.model.snapshot import Snapshot
from nodetopo.rdma.rails import job_hcas
from nodetopo.topology.affinity import hca_closeness
from nodetopo.topology.matrix import word

GOOD = Closeness.PXB
"""The farthest that NCCL lets an HCA be from a GPU whose memory it reaches (NCCL_NET_GDR_LEVEL,
NVIDIA/nccl v2.30.7-1 src/graph/paths.cc)."""


class Pairs(Struct, frozen=True):
    """Which HCAs are near which GPUs; GPUs by index, HCAs by position.

    Attributes:
        near: the HCAs at :data:`GOOD` or nearer, or else the nearest cards of the node; only of
            GPUs whose distance to some card is known. Cards whose ports are down do not count and
            are not expected.
    """

    distances: Mapping[tuple[int, int], Closeness]
    near: Mapping[int, frozenset[int]]
    whole: tuple[int, ...]

    @classmethod
    def of(cls, snapshot: Snapshot) -> "Pairs":
        """Return the pairs of *snapshot*."""
        distances, hcas = hca_closeness(snapshot), snapshot.hcas or ()
        whole = tuple(at for at in job_hcas(snapshot) if not hcas[at].is_down)
        near = {}
        for gpu in snapshot.gpus:
            known_distances = [
                distances[gpu.index, at] for at in whole if (gpu.index, at) in distances
            ]
            if known_distances:
                limit = max(min(known_distances), GOOD)
                near[gpu.index] = frozenset(
                    at
                    for at in range(len(hcas))
                    if (gpu.index, at) in distances and distances[gpu.index, at] <= limit
                )
        return cls(distances, near, whole)

    def without(self, gpus: Sequence[int], held: Collection[int]) -> tuple[int, ...]:
        """Return the *gpus* without any of *held* near them."""
        return tuple(gpu for gpu in gpus if gpu in self.near and not self.near[gpu] & {*held})

    def most(self, gpus: Sequence[int], count: int) -> int:
        """Return how many of *gpus* can each have a near HCA, with *count* HCAs of the node.

        It takes the HCA near most GPUs first. That is optimal if two GPUs' near HCAs are either the
        same or disjoint, as behind PCIe switches; otherwise a better choice may exist.
        """
        left, served = set(gpus) & self.near.keys(), 0
        for _ in range(count):
            best = max((sum(at in self.near[gpu] for gpu in left) for at in self.whole), default=0)
            if not best:
                break
            chosen = next(
                at for at in self.whole if sum(at in self.near[gpu] for gpu in left) == best
            )
            left -= {gpu for gpu in left if chosen in self.near[gpu]}
            served += best
        return served


@rule("ALN-006", Severity.WARNING, unless=(no_gpus, no_adapters, virtual_machine))
def pairs(snapshot: Snapshot) -> Judgement:
    """Compare the GPUs with a separate near HCA in a container with the best possible number."""
    held = [*_holdings(snapshot)]
    if snapshot.pods is not None and not missing_gpus(snapshot) and not held:
        yield Skip("no running container holds GPUs and HCAs")
        return
    if snapshot.pods is None:
        yield Missing("pods", because(snapshot, "podresources") or because(snapshot, "pods"))
    yield from missing_gpus(snapshot)
    yield from missing_hcas(snapshot)
    yield from missing_machine(snapshot)
    pairs_of_node = Pairs.of(snapshot)
    for holding in held:
        if isinstance(holding, Missing):
            yield holding
        elif snapshot.hcas is not None:
            yield from _judged(snapshot, pairs_of_node, holding)


class _Holding(Struct, frozen=True):
    """A container with GPUs and HCAs.

    Attributes:
        unclear: resources whose devices may include other HCAs too.
        numbers: how many of these include every HCA of an unknown pool.
    """

    name: str
    gpus: tuple[int, ...]
    hcas: tuple[HeldHca, ...]
    unclear: tuple[str, ...]
    numbers: int


def _judged(snapshot: Snapshot, found: Pairs, one: _Holding) -> Judgement:
    names = {gpu.index: gpu.name for gpu in snapshot.gpus}
    positions = {hca.at for hca in one.hcas if hca.at is not None}
    far = found.without(one.gpus, positions)
    most = found.most(one.gpus, len(one.hcas) + one.numbers)
    yield from unknown_of(
        "distance to the HCAs", (names[gpu] for gpu in one.gpus if gpu not in found.near)
    )
    if len(one.gpus) - len(far) >= most:
        return
    lost = [hca.name for hca in one.hcas if hca.at is None]
    if one.unclear or lost:
        yield Missing(f"which HCAs {listed(one.unclear or lost)} gave {one.name}")
        return
    is_good = any(found.distances[gpu, at] <= GOOD for gpu in far for at in found.near[gpu])
    wanted = "an HCA behind the same switch" if is_good else "one of the nearest HCAs"
    yield Finding(
        subject=f"{one.name} with {', '.join(names[gpu] for gpu in one.gpus)}",
        observed=listed(_nearest(found, snapshot, gpu, positions) for gpu in far),
        expected=f"{wanted} for {most} of {len(one.gpus)}",
    )


def _holdings(snapshot: Snapshot) -> Iterator[_Holding | Missing]:
    """Yield the containers with GPUs and HCAs, and the inputs that are missing for others."""
    places, pools = DevicePlaces(snapshot), RdmaPools(snapshot)
    rows = devices = 0
    for pod in snapshot.pods or ():
        for container in pod.containers if pod.phase not in FINISHED else ():
            name = container_name(pod, container)
            devices += sum(len(each.ids) for each in container.devices or ())
            if rows >= MAX_ROWS or devices > MAX_DEVICES:
                yield Missing(f"{name} and all after it, which are too many to look at")
                return
            gpus = tuple(gpu.gpu.index for gpu in places.gpus(container) if gpu.gpu is not None)
            hcas = places.hcas(container)
            unclear = [meaning for meaning in _meanings(pools, container) if meaning[1] in _UNCLEAR]
            if gpus and (hcas or unclear):
                rows += 1
                numbers = sum(it is Meaning.NUMBER for _, it in unclear)
                yield _Holding(name, gpus, hcas, tuple(sorted({it for it, _ in unclear})), numbers)
            elif pod.phase == RUNNING and container.devices is None and uses_gpus(container):
                yield Missing(f"the devices of {name}")


_UNCLEAR = (Meaning.NUMBER, Meaning.OPEN)


def _meanings(pools: RdmaPools, container: Container) -> Iterator[tuple[str, Meaning | None]]:
    """Yield the meaning of each RDMA device of *container*, with its resource."""
    for one in container.devices or ():
        for device in one.ids:
            if is_rdma_device(one.resource, device):
                yield one.resource, pools.meaning(one.resource, device)


def _nearest(found: Pairs, snapshot: Snapshot, gpu: int, held: Collection[int]) -> str:
    """Return the nearest of *held* to *gpu* as a finding has it."""
    hcas = snapshot.hcas or ()
    known = [(found.distances[gpu, at], at) for at in held if (gpu, at) in found.distances]
    name = next(each.name for each in snapshot.gpus if each.index == gpu)
    if not known:
        return f"{name} has an HCA at an unknown distance"
    distance, at = min(known)
    return f"{name} has {hcas[at].name} at {word(distance)}"
