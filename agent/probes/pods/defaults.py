"""Requests and limits as the API server completes them before a kubelet sees a pod.

Facts from Kubernetes 1.36: ``SetDefaults_Pod``, ``defaultHugePagePodLimits`` and
``defaultPodRequests`` in pkg/apis/core/v1/defaults.go, and after these the admission plugin
LimitRanger (plugin/pkg/admission/limitranger).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from agent.formats.fields import Object, amounts, items, object_at, text_at
from agent.model.pod import Pod, at_once
from agent.model.qos import COUNTED, HUGE_PAGES, qos_class

LIMIT_RANGE = "LimitRange"
"""The kind of an object with the defaults of a namespace's containers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """The defaults of one LimitRange.

    Attributes:
        requests, limits: resource → amount, in the units of a container.
    """

    namespace: str
    requests: Mapping[str, int]
    limits: Mapping[str, int]


def defaults_from_object(obj: Object) -> Defaults:
    """Return the defaults of the LimitRange *obj*, completed as the API server completes them.

    Limits come from ``default``, else from ``max``; requests from ``defaultRequest``, else from
    the limits, else from ``min`` (kubernetes 1.36 pkg/apis/core/v1/defaults.go,
    SetDefaults_LimitRangeItem).

    Raises:
        DecodeError: it is malformed.
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


def created(pod: Pod, ranges: Iterable[Defaults] = ()) -> Pod:
    """Return *pod* as the server checks it, with the *ranges* of its namespace in their order."""
    completed = (
        replace(container, requests={**(container.limits or {}), **(container.requests or {})})
        for container in pod.containers
    )
    found = _at_pod_level(replace(pod, containers=tuple(completed)))
    for defaults in ranges:
        ranged = (
            replace(
                container,
                requests={**defaults.requests, **(container.requests or {})},
                limits={**defaults.limits, **(container.limits or {})},
            )
            for container in found.containers
        )
        found = replace(found, containers=tuple(ranged))
    return found


def defaulted(pod: Pod, ranges: Iterable[Defaults] = ()) -> Pod:
    """Return *pod* completed as the server stores it, with the *ranges* of its namespace.

    Pod-level requests are completed once more when the server reads the pod back from its store,
    now with what the ranges gave to containers. Its class was fixed before that; where it would
    be another one now, it is the class in the pod's status.
    """
    checked = created(pod, ranges)
    stored = _at_pod_level(checked)
    fixed = qos_class(checked)
    if checked.qos_class or qos_class(stored) is fixed:
        return stored
    return replace(stored, qos_class=fixed)


def _at_pod_level(pod: Pod) -> Pod:
    """Complete pod-level resources, if the pod states any."""
    limits = pod.limits or {}
    if limits or pod.requests:
        held = at_once(pod, lambda each: each.limits or {})
        requested = pod.requests or {}
        pages = {
            name: amount
            for name, amount in held.items()
            if name.startswith(HUGE_PAGES) and name not in requested
        }
        limits = {**pages, **limits}
    if not limits:
        return pod
    asked = at_once(pod, lambda each: each.requests or {})
    counted = {name: amount for name, amount in asked.items() if name in COUNTED}
    return replace(pod, limits=limits, requests={**limits, **counted, **(pod.requests or {})})
