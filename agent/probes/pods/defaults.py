"""Requests and limits as the API server completes them before a kubelet sees a pod.

Facts from Kubernetes 1.36: ``SetDefaults_Pod``, ``defaultHugePagePodLimits`` and
``defaultPodRequests`` in pkg/apis/core/v1/defaults.go, and after these the admission plugin
LimitRanger (plugin/pkg/admission/limitranger).
"""

from collections.abc import Iterable
from dataclasses import replace

from agent.model.pod import Container, Pod
from agent.model.pod_amounts import at_once
from agent.model.qos import COUNTED, HUGE_PAGES, qos_class
from agent.probes.pods.pod_manifest_limits import Defaults


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
        held = at_once(pod, lambda each: each.limits or {})
        pages = {name: amount for name, amount in held.items() if name.startswith(HUGE_PAGES)}
        free = {name: amount for name, amount in pages.items() if name not in (pod.requests or {})}
        limits = {**free, **limits}
    if not limits:
        return pod
    asked = at_once(pod, lambda each: each.requests or {})
    counted = {name: amount for name, amount in asked.items() if name in COUNTED}
    return replace(pod, limits=limits, requests={**limits, **counted, **(pod.requests or {})})
