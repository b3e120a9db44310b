"""Requests and limits as the API server completes them before a kubelet sees a pod.

Facts from Kubernetes 1.36: ``SetDefaults_Pod``, ``defaultHugePagePodLimits`` and
``defaultPodRequests`` in pkg/apis/core/v1/defaults.go, and after these the admission plugin
LimitRanger (plugin/pkg/admission/limitranger). From 1.37: the gate PodLevelResourcesFixDefaulting
and ``DefaultPodLevelResources`` in pkg/api/pod/util.go, which runs after the admission plugins.
"""

from collections.abc import Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from nodetopo.formats.fields import Object, amounts, items, object_at, text_at
from nodetopo.model.kubernetes import Release
from nodetopo.model.pod import Pod, at_once
from nodetopo.model.qos import COUNTED, HUGE_PAGES, is_pod_level, qos_class

LIMIT_RANGE = "LimitRange"
"""The kind of an object with the defaults of a namespace's containers."""

AFTERWARDS_SINCE: Release = (1, 37)
"""From which on pod-level resources are completed after the LimitRanges, once, limits included."""


class Defaults(Struct, frozen=True, kw_only=True):
    """The defaults of one LimitRange."""

    namespace: str
    # requests, limits: resource → amount, in the units of a container.
    requests: Mapping[str, int]
    limits: Mapping[str, int]


def defaults_from_object(obj: Object) -> Defaults:
    """Return the defaults of the LimitRange *obj*, completed as the API server completes them.

    Limits come from ``default``, else from ``max``; requests from ``defaultRequest``, else from
    the limits, else from ``min`` (kubernetes 1.36 pkg/apis/core/v1/defaults.go,
    SetDefaults_LimitRangeItem).
    """
    metadata, spec = object_at(obj, "metadata", ""), object_at(obj, "spec", "")
    requests: dict[str, int] = {}
    limits: dict[str, int] = {}
    for at, item in items(spec, "limits", "spec"):
        if text_at(item, "type", at) == "Container":
            most = {**amounts(item, "max", at), **amounts(item, "default", at)}
            limits |= most
            requests |= {**amounts(item, "min", at), **most, **amounts(item, "defaultRequest", at)}
    namespace = text_at(metadata, "namespace", "metadata") or "default"
    return Defaults(namespace=namespace, requests=requests, limits=limits)


def created(pod: Pod, ranges: Iterable[Defaults] = (), server: Release | None = None) -> Pod:
    """Return *pod* as the *server* checks it, with the *ranges* of its namespace in their order.

    Args:
        server: its release; if unknown, one up to 1.36 is assumed.
    """
    completed = (
        replace(container, requests={**(container.limits or {}), **(container.requests or {})})
        for container in pod.containers
    )
    is_afterwards = server is not None and server >= AFTERWARDS_SINCE
    completed_pod = replace(pod, containers=tuple(completed))
    if not is_afterwards:
        completed_pod = _at_pod_level(completed_pod)
    for defaults in ranges:
        ranged = (
            replace(
                container,
                requests={**defaults.requests, **(container.requests or {})},
                limits={**defaults.limits, **(container.limits or {})},
            )
            for container in completed_pod.containers
        )
        completed_pod = replace(completed_pod, containers=tuple(ranged))
    return (
        _with_limits(_with_requests(_with_pages(completed_pod))) if is_afterwards else completed_pod
    )


def defaulted(pod: Pod, ranges: Iterable[Defaults] = (), server: Release | None = None) -> Pod:
    """Return *pod* with the defaults of the *server* and the *ranges* of its namespace.

    Up to 1.36 pod-level requests are completed once more when the server reads the pod back from
    its store, now with the ranges' defaults for containers. Its class was fixed before; if it would
    now differ, it is the class in the pod's status.
    """
    checked = created(pod, ranges, server)
    if server is not None and server >= AFTERWARDS_SINCE:
        return checked
    stored = _at_pod_level(checked)
    fixed = qos_class(checked)
    if checked.qos_class or qos_class(stored) is fixed:
        return stored
    return replace(stored, qos_class=fixed)


def _at_pod_level(pod: Pod) -> Pod:
    """Complete pod-level resources as up to 1.36: requests only if limits exist."""
    pod = _with_pages(pod)
    return _with_requests(pod) if pod.limits else pod


def _with_pages(pod: Pod) -> Pod:
    """Add the limits of huge pages that containers have, if the pod states anything."""
    if not (pod.limits or pod.requests):
        return pod
    requested, stated = pod.requests or {}, pod.limits or {}
    pages = {
        name: amount
        for name, amount in at_once(pod, lambda each: each.limits or {}).items()
        if name.startswith(HUGE_PAGES) and name not in requested
    }
    return replace(pod, limits={**pages, **stated}) if pages else pod


def _with_requests(pod: Pod) -> Pod:
    """Add containers' requests, and limits, if the pod states anything."""
    if not (pod.limits or pod.requests):
        return pod
    asked = at_once(pod, lambda each: each.requests or {})
    counted = {name: amount for name, amount in asked.items() if name in COUNTED}
    return replace(pod, requests={**(pod.limits or {}), **counted, **(pod.requests or {})})


def _with_limits(pod: Pod) -> Pod:
    """Add limits on resources that the pod requests and every container limits: the maximum."""
    requested, limits = pod.requests or {}, pod.limits or {}
    held = at_once(pod, lambda each: each.limits or {})
    added = {
        name: max(amount, held[name])
        for name, amount in requested.items()
        if is_pod_level(name)
        and name not in limits
        and all(name in (each.limits or {}) for each in pod.containers)
    }
    return replace(pod, limits={**limits, **added}) if added else pod
