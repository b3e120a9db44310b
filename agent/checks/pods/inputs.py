"""What the rules on pods share: which pods count, what they ask for, and what is not known."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

from agent.checks.gpu_pods import (
    GPU,
    container_name,
    is_gpu_resource,
    live,
    missing_pods,
    uses_gpus,
)
from agent.checks.inputs import Inputs
from agent.model.pod import Container, Pod
from agent.model.pod_amounts import at_once
from agent.model.snapshot import Snapshot

FEW = 5
"""Names that one sentence lists before it counts the rest."""

_OF_THE_NODE = ("DaemonSet", "Node")
_WORDS_OF_RDMA = frozenset({"rdma", "roce", "hca", "hcas", "ib", "infiniband", "efa"})


def jobs(snapshot: Snapshot) -> Iterator[Pod]:
    """Yield the live pods that do not belong to the node itself, as its agents do.

    A DaemonSet's pod, or a static one (whose owner is the Node), is there to see all GPUs.
    """
    return (pod for pod in live(snapshot) if pod.owner_kind not in _OF_THE_NODE)


def waiting(snapshot: Snapshot) -> Iterator[Pod]:
    """Yield the jobs that do not run yet, whose resources are still to be found somewhere.

    A pod that runs has them, whatever the node tells now, and in whatever way it got them.
    """
    return (pod for pod in jobs(snapshot) if pod.phase != "Running")


def with_gpus(snapshot: Snapshot) -> Iterator[tuple[Pod, Container]]:
    """Yield each container of a job that has or asks for GPUs, with its pod."""
    for pod in jobs(snapshot):
        for container in pod.containers:
            if uses_gpus(container):
                yield pod, container


def asked(container: Container) -> Mapping[str, int]:
    """Return resource → amount that *container* is to have: requests, where absent limits."""
    return {**(container.limits or {}), **(container.requests or {})}


def whole_gpus(container: Container) -> int:
    """Return how many of the resource for whole GPUs *container* asks for, or else holds."""
    held = sum(len(one.ids) for one in container.devices or () if one.resource == GPU)
    return asked(container).get(GPU, held)


def is_extended(resource: str) -> bool:
    """Return whether a device plugin or a person added *resource* to the node."""
    domain, slash, _ = resource.partition("/")
    return bool(slash) and domain != "kubernetes.io" and not domain.endswith(".kubernetes.io")


def is_rdma(resource: str) -> bool:
    """Return whether *resource* says by its name that it gives RDMA devices, as ``rdma/hca``."""
    if not is_extended(resource):
        return False
    parts = resource.lower().replace("_", "-").replace("/", "-").replace(".", "-").split("-")
    return not _WORDS_OF_RDMA.isdisjoint(parts)


def others(container: Container) -> tuple[str, ...]:
    """Return the extended resources apart from GPUs that *container* asks for or holds, sorted."""
    held = {one.resource: len(one.ids) for one in container.devices or ()}
    amounts = {**held, **asked(container)}
    return tuple(
        sorted(
            name
            for name, amount in amounts.items()
            if amount > 0 and is_extended(name) and not is_gpu_resource(name)
        ),
    )


def effective(pod: Pod) -> Mapping[str, int]:
    """Return resource → amount that a node must have free for *pod*.

    What its containers hold at once, but CPU, memory and huge pages of the pod as a whole
    replace their sums (k8s.io/component-helpers ``resource.PodRequests``, 1.36).
    """
    held = {name: amount for name, amount in at_once(pod, asked).items() if amount > 0}
    whole = {**(pod.limits or {}), **(pod.requests or {})}
    return {**held, **{name: whole[name] for name in whole if not is_extended(name)}}


def listed(names: Iterable[str]) -> str:
    """Return *names* as a sentence has them, of many only the first few and how many more."""
    every = list(names)
    more = f" and {len(every) - FEW} more" if len(every) > FEW else ""
    return ", ".join(every[:FEW]) + more


def missing_specs(snapshot: Snapshot) -> Inputs:
    """Need to know of every container of a job whether it asks for GPUs, and what else."""
    unknown = (
        container_name(pod, one)
        for pod in jobs(snapshot)
        for one in pod.containers
        if uses_gpus(one) is None or (uses_gpus(one) and one.requests is None)
    )
    return missing_pods(snapshot) + _of("resources", unknown)


def missing_of_gpu_pods(
    what: str,
    is_known: Callable[[Pod, Container], bool],
) -> Callable[[Snapshot], Inputs]:
    """Need *what* of every container with GPUs, and to know which those are."""

    def missing(snapshot: Snapshot) -> Inputs:
        silent = (
            container_name(pod, one) for pod, one in with_gpus(snapshot) if not is_known(pod, one)
        )
        return missing_specs(snapshot) + _of(what, silent)

    return missing


def _of(what: str, names: Iterable[str]) -> Inputs:
    found = listed(names)
    return (f"{what} of {found}",) if found else ()


def offered(snapshot: Snapshot) -> Mapping[str, int] | None:
    """Return extended resource → capacity of the node as it is known; ``None`` if it is not.

    The Node object is asked first: the kubelet's own answer lacks devices that are unhealthy now.
    """
    status = snapshot.node_status
    if status is not None and status.capacity is not None:
        return {name: count for name, count in status.capacity.items() if is_extended(name)}
    if snapshot.offer is None:
        return None
    return Counter(device.resource for device in snapshot.offer.devices)


def missing_offer(snapshot: Snapshot) -> Inputs:
    """Return "resources of the node" when neither the Node object nor the kubelet told them."""
    return ("resources of the node",) if offered(snapshot) is None else ()
