"""The QoS class of a pod, computed as the kubelet computes it.

Facts from ``k8s.io/kubernetes/pkg/apis/core/v1/helper/qos`` of 1.36: only CPU and memory
count, only amounts above zero, over app, init and sidecar containers; resources stated for
the pod as a whole replace those of its containers. Requests must already have been
defaulted from limits, which the API server does before the kubelet sees a pod.
"""

from collections.abc import Iterator, Mapping
from enum import StrEnum

from agent.model.pod import Pod

COUNTED = ("cpu", "memory")
"""The resources that decide the class."""

Amounts = Mapping[str, int]


class QosClass(StrEnum):
    """As ``status.qosClass`` spells them."""

    GUARANTEED = "Guaranteed"
    BURSTABLE = "Burstable"
    BEST_EFFORT = "BestEffort"


def qos_class(pod: Pod) -> QosClass | None:
    """Return the class of *pod* from its resources alone; ``None`` when a container's are unknown.

    A pod whose ``spec.resources`` is set but names neither CPU nor memory is BestEffort,
    whatever its containers say: so does the kubelet up to 1.36, and up to 1.37 when it
    names huge pages.
    """
    stated = tuple(_stated(pod))
    if any(requests is None or limits is None for _, requests, limits in stated):
        return None
    known = [(requests or {}, limits or {}) for _, requests, limits in stated]
    if not any(_positive(amounts) for pair in known for amounts in pair):
        return QosClass.BEST_EFFORT
    if all(_is_guaranteed(requests, limits) for requests, limits in known):
        return QosClass.GUARANTEED
    return QosClass.BURSTABLE


def shortfalls(pod: Pod) -> tuple[str, ...]:
    """Return what keeps *pod* from being Guaranteed, one phrase for each resource at fault."""
    return tuple(
        f"{name}: {problem}"
        for name, requests, limits in _stated(pod)
        if requests is not None and limits is not None
        for resource in COUNTED
        if (problem := _problem(resource, requests, limits))
    )


def _stated(pod: Pod) -> Iterator[tuple[str, Amounts | None, Amounts | None]]:
    if pod.requests is not None or pod.limits is not None:
        yield "spec.resources", pod.requests or {}, pod.limits or {}
        return
    for container in pod.containers:
        yield container.name, container.requests, container.limits


def _positive(amounts: Amounts) -> dict[str, int]:
    return {name: amounts[name] for name in COUNTED if amounts.get(name, 0) > 0}


def _is_guaranteed(requests: Amounts, limits: Amounts) -> bool:
    return len(_positive(limits)) == len(COUNTED) and _positive(requests) == _positive(limits)


def _problem(resource: str, requests: Amounts, limits: Amounts) -> str | None:
    limit = limits.get(resource, 0)
    if limit <= 0:
        return f"no {resource} limit"
    if requests.get(resource, 0) != limit:
        return f"{resource} request and limit differ"
    return None
