"""Requests and limits as the API server completes them before a kubelet sees a pod.

Facts from Kubernetes 1.36: ``SetDefaults_Pod``, ``defaultHugePagePodLimits`` and
``defaultPodRequests`` in pkg/apis/core/v1/defaults.go, and after these the admission plugin
LimitRanger (plugin/pkg/admission/limitranger).
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from agent.model.pod import Container, ContainerKind, Pod
from agent.model.qos_class import COUNTED, HUGE_PAGES, qos_class
from agent.probes.pod_manifest_limits import Defaults

Amounts = Mapping[str, int]


def defaulted(pod: Pod, ranges: Iterable[Defaults] = ()) -> Pod:
    """Return *pod* completed, with the *ranges* of its namespace in their order.

    Pod-level requests are completed once more when the server reads the pod back from its store,
    now with what the ranges gave to containers. Its class was fixed before that; where it would
    be another one now, it is told as the class in the pod's status.
    """
    created = _at_pod_level(
        replace(pod, containers=tuple(_with_requests(each) for each in pod.containers))
    )
    for one in ranges:
        containers = tuple(_within(container, one) for container in created.containers)
        created = replace(created, containers=containers)
    stored = _at_pod_level(created)
    fixed = qos_class(created)
    if created.qos_class or qos_class(stored) is fixed:
        return stored
    return replace(stored, qos_class=fixed)


def _with_requests(container: Container) -> Container:
    return replace(container, requests={**(container.limits or {}), **(container.requests or {})})


def _within(container: Container, one: Defaults) -> Container:
    return replace(
        container,
        requests={**one.requests, **(container.requests or {})},
        limits={**one.limits, **(container.limits or {})},
    )


def _at_pod_level(pod: Pod) -> Pod:
    """Complete pod-level resources, if the pod states any."""
    limits = pod.limits or {}
    if limits or pod.requests:
        held = _together([(each.kind, each.limits or {}) for each in pod.containers])
        pages = {name: amount for name, amount in held.items() if name.startswith(HUGE_PAGES)}
        free = {name: amount for name, amount in pages.items() if name not in (pod.requests or {})}
        limits = {**free, **limits}
    if not limits:
        return pod
    asked = _together([(each.kind, each.requests or {}) for each in pod.containers])
    counted = {name: amount for name, amount in asked.items() if name in COUNTED}
    return replace(pod, limits=limits, requests={**limits, **counted, **(pod.requests or {})})


def _together(parts: Iterable[tuple[ContainerKind, Amounts]]) -> Amounts:
    """Return what the pod holds at its greediest moment: while starting, or while running.

    Init containers and sidecars come first, in their order
    (k8s.io/component-helpers resource.AggregateContainerRequests).
    """
    running: dict[str, int] = {}
    peak: dict[str, int] = {}
    for kind, amounts in parts:
        wanted = _sum(running, amounts)
        if kind is ContainerKind.INIT:
            peak = _max(peak, wanted)
        else:
            running = wanted
    return _max(peak, running)


def _sum(a: Amounts, b: Amounts) -> dict[str, int]:
    return {name: a.get(name, 0) + b.get(name, 0) for name in {**a, **b}}


def _max(a: Amounts, b: Amounts) -> dict[str, int]:
    return {name: max(a.get(name, 0), b.get(name, 0)) for name in {**a, **b}}
