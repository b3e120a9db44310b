"""The QoS class of a pod, computed as the API server and the kubelet compute it.

Source: ``k8s.io/kubernetes/pkg/apis/core/v1/helper/qos`` of 1.32 to 1.37. Only CPU and memory
count, only amounts above zero, over app, init and sidecar containers; pod-level resources replace
those of the containers. Requests must already be defaulted from limits, which the API server does
before the kubelet sees a pod.
"""

from collections.abc import Iterator, Mapping
from enum import StrEnum

from nodetopo.model.kubernetes import release
from nodetopo.model.pod import Amounts, Pod

COUNTED = ("cpu", "memory")
"""The resources that decide the class."""

HUGE_PAGES = "hugepages-"
"""How the names of huge page resources begin."""


class QosClass(StrEnum):
    """As ``status.qosClass`` spells them."""

    GUARANTEED = "Guaranteed"
    BURSTABLE = "Burstable"
    BEST_EFFORT = "BestEffort"


class PodLevel(StrEnum):
    """When ``spec.resources`` decides the class instead of the containers.

    NEVER: the API server drops the field (gate ``PodLevelResources`` off, so before 1.34).
    STATED: whenever the field is there, even empty (1.34 to 1.36).
    ASKING: when it names CPU, memory or huge pages (1.37, gate
    ``PodLevelResourcesFixKubeletQOSClass``).
    """

    NEVER = "never"
    STATED = "stated"
    ASKING = "asking"


def pod_level(version: str | None, gates: Mapping[str, bool] | None = None) -> PodLevel | None:
    """Return when pod-level resources decide the class in Kubernetes *version*.

    ``None`` where the version is not known and the stated feature *gates* do not decide it.
    """
    known, stated = release(version), gates or {}
    if known is None and "PodLevelResources" not in stated:
        return None
    if not stated.get("PodLevelResources", known is not None and known >= (1, 34)):
        return PodLevel.NEVER
    fix = stated.get("PodLevelResourcesFixKubeletQOSClass")
    if fix is None and known is None:
        return None
    is_fixed = known is not None and known >= (1, 37) if fix is None else fix
    return PodLevel.ASKING if is_fixed else PodLevel.STATED


def class_of(pod: Pod, level: PodLevel | None = None) -> str | None:
    """Return the class in the pod's status, else the one that its resources give.

    The class in the status is fixed at creation, and the kubelet uses it.
    """
    return pod.qos_class or qos_class(pod, level)


def qos_class(pod: Pod, level: PodLevel | None = None) -> QosClass | None:
    """Return the class of *pod* from its resources alone.

    ``None`` when the resources of a container are not known, or when *level* is not and the
    class depends on it. A pod with pod-level resources is then assumed to be meant for a cluster
    that supports them.
    """
    if level is not None:
        return _class(pod, level)
    classes = {_class(pod, each) for each in (PodLevel.STATED, PodLevel.ASKING)}
    return classes.pop() if len(classes) == 1 else None


def asks_as_a_pod(pod: Pod) -> bool:
    """Return whether ``spec.resources`` names CPU, memory or huge pages.

    The kubelet's managers check this (k8s.io/component-helpers resource.IsPodLevelResourcesSet).
    """
    return any(map(is_pod_level, {**(pod.requests or {}), **(pod.limits or {})}))


def is_pod_level(resource: str) -> bool:
    """Return whether *resource* can be stated for a pod as a whole."""
    return resource in COUNTED or resource.startswith(HUGE_PAGES)


def shortfalls(pod: Pod, level: PodLevel | None = None) -> tuple[str, ...]:
    """Return what keeps *pod* from being Guaranteed, one phrase for each resource at fault."""
    problems: list[str] = []
    for name, requests, limits in _stated(pod, level or PodLevel.STATED):
        if requests is None or limits is None:
            continue
        for resource in COUNTED:
            limit = limits.get(resource, 0)
            if limit <= 0:
                problems.append(f"{name}: no {resource} limit")
            elif requests.get(resource, 0) != limit:
                problems.append(f"{name}: {resource} request and limit differ")
    return tuple(problems)


def _class(pod: Pod, level: PodLevel) -> QosClass | None:
    stated = tuple(_stated(pod, level))
    if any(requests is None or limits is None for _, requests, limits in stated):
        return None
    counted = [(_counted(requests), _counted(limits)) for _, requests, limits in stated]
    if not any(requests or limits for requests, limits in counted):
        return QosClass.BEST_EFFORT
    if all(len(limits) == len(COUNTED) and requests == limits for requests, limits in counted):
        return QosClass.GUARANTEED
    return QosClass.BURSTABLE


def _stated(pod: Pod, level: PodLevel) -> Iterator[tuple[str, Amounts | None, Amounts | None]]:
    """Yield what decides the class: name, requests and limits of the pod or its containers."""
    is_there = pod.requests is not None or pod.limits is not None
    if (is_there and level is PodLevel.STATED) or (asks_as_a_pod(pod) and level is PodLevel.ASKING):
        yield "spec.resources", pod.requests or {}, pod.limits or {}
        return
    for container in pod.containers:
        yield container.name, container.requests, container.limits


def _counted(amounts: Amounts | None) -> dict[str, int]:
    return {name: amounts[name] for name in COUNTED if amounts and amounts.get(name, 0) > 0}
