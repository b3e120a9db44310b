"""One pod through the managers of a node, container by container, as the kubelet admits it.

Order and semantics of kubernetes 1.36 pkg/kubelet/cm/topologymanager (scope*.go): devices, CPUs,
memory; then the sum of all requests. A refused pod leaves no trace.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct, field

from nodetopo.admission.device_manager import Preference
from nodetopo.admission.errors import Missing, Refusal
from nodetopo.admission.hints import Hint, Hints
from nodetopo.admission.requests import Request, is_pinned, request_of, request_of_pod, whole_cpus
from nodetopo.admission.snapshot import NodeManagers
from nodetopo.model.kubelet_state import HeldMemory
from nodetopo.model.numa import CpuSet
from nodetopo.model.pod import Container, ContainerKind, Pod, started
from nodetopo.topology.node_sets import TooManyError

_UNALIGNED = Hint(None, preferred=False)


class ContainerOutcome(Struct, kw_only=True):
    """A container's resources; parts that the kubelet did not reach are empty."""

    container: Container
    exclusive_cpus: int
    # The amounts of the hints, by resource, in the unit of requests; in scope `pod` the whole
    # pod's.
    requested: Mapping[str, int] = field(default_factory=dict)
    # Of all managers, by resource; in scope `pod` the pod's.
    hints: Hints = field(default_factory=dict)
    merged: Hint | None = None  # None under policy `none`
    cpus: CpuSet = field(default_factory=CpuSet)
    devices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    memory: tuple[HeldMemory, ...] = ()


class PodOutcome(Struct, frozen=True, kw_only=True):
    """A pod after the managers."""

    node: NodeManagers  # the managers afterwards
    containers: tuple[ContainerOutcome, ...]
    refusal: Refusal | None = None  # None for an admitted pod


def admit_pod(node: NodeManagers, pod: Pod, uid: str, prefer: Preference) -> PodOutcome:
    """Admit *pod* on *node*, which stays as it is."""
    after = node.copy()
    outcomes = tuple(
        ContainerOutcome(
            container=container,
            exclusive_cpus=whole_cpus(pod, container) if node.cpus is not None else 0,
        )
        for container in started(pod)
    )
    try:
        if after.scope == "pod":
            _align(after, request_of_pod(pod, after.devices), outcomes)
        for outcome in outcomes:
            request = request_of(pod, outcome.container, after.devices)
            if after.scope != "pod":
                _align(after, request, (outcome,))
            _allocate(after, pod, uid, outcome, request, prefer=prefer)
        after = after.with_requests(pod)
    except Refusal as refusal:
        return PodOutcome(node=node, containers=outcomes, refusal=refusal)
    except TooManyError:
        raise Missing("an answer for so many NUMA nodes, which is not worked out") from None
    return PodOutcome(node=after, containers=outcomes)


def _align(node: NodeManagers, request: Request, outcomes: Sequence[ContainerOutcome]) -> None:
    """Set the merged hint of *outcomes*, by the hints of each manager for *request*."""
    if node.topology is None:
        return
    hints: tuple[Hints, ...] = (
        {name: node.devices[name].hints(amount) for name, amount in request.devices.items()},
        node.cpus.hints(request.cpus) if node.cpus is not None and request.cpus else {},
        node.memory.hints(request.memory) if node.memory is not None else {},
    )
    merged, is_admitted = node.topology.merge(hints)
    for outcome in outcomes:
        outcome.requested = request.amounts
        outcome.hints = {name: by_name for part in hints for name, by_name in part.items()}
        outcome.merged = merged
    if not is_admitted:
        raise Refusal.topology()


def _allocate(
    node: NodeManagers,
    pod: Pod,
    uid: str,
    outcome: ContainerOutcome,
    request: Request,
    *,
    prefer: Preference,
) -> None:
    """Give a container its devices, CPUs and memory by its merged hint."""
    merged, name = outcome.merged or _UNALIGNED, outcome.container.name
    is_init = outcome.container.kind is ContainerKind.INIT
    devices: dict[str, tuple[str, ...]] = {}
    for resource, wanted in request.devices.items():
        ids = node.devices[resource].give(uid, name, wanted, merged.mask, prefer, is_init=is_init)
        devices[resource] = tuple(sorted(ids))
    outcome.devices = devices
    if node.cpus is not None and outcome.exclusive_cpus:
        cpus = node.cpus.give(uid, name, request.cpus, merged.mask, is_init=is_init)
        outcome.cpus = CpuSet(cpus)
    if node.memory is not None and is_pinned(pod):
        outcome.memory = node.memory.give(uid, name, request.memory, merged, is_init=is_init)
