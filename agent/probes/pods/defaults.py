"""Requests and limits as the API server completes and checks them before a kubelet sees a pod.

Facts from Kubernetes 1.36: ``SetDefaults_Pod``, ``defaultHugePagePodLimits`` and
``defaultPodRequests`` in pkg/apis/core/v1/defaults.go, and after these the admission plugin
LimitRanger (plugin/pkg/admission/limitranger); ``validateContainerResourceRequirements`` in
pkg/apis/core/validation/validation.go, ``IsExtendedResourceName`` and ``IsOvercommitAllowed`` in
pkg/apis/core/v1/helper/helpers.go.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from agent.errors import DecodeError, InputError
from agent.formats.fields import Object, amount, amounts, items, object_at, text_at
from agent.model.kubernetes import MILLICORES
from agent.model.pod import Pod, at_once
from agent.model.qos import COUNTED, HUGE_PAGES, qos_class

LIMIT_RANGE = "LimitRange"
"""The kind of an object with the defaults of a namespace's containers."""

_PLAIN = ("cpu", "memory", "ephemeral-storage")
"""Names without a prefix that containers can ask for, beside those of huge pages."""


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


def defaulted(pod: Pod, ranges: Iterable[Defaults] = ()) -> Pod:
    """Return *pod* completed, with the *ranges* of its namespace in their order.

    Pod-level requests are completed once more when the server reads the pod back from its store,
    now with what the ranges gave to containers. Its class was fixed before that; where it would
    be another one now, it is the class in the pod's status.
    """
    completed = (
        replace(container, requests={**(container.limits or {}), **(container.requests or {})})
        for container in pod.containers
    )
    created = _at_pod_level(replace(pod, containers=tuple(completed)))
    for defaults in ranges:
        ranged = (
            replace(
                container,
                requests={**defaults.requests, **(container.requests or {})},
                limits={**defaults.limits, **(container.limits or {})},
            )
            for container in created.containers
        )
        created = replace(created, containers=tuple(ranged))
    stored = _at_pod_level(created)
    fixed = qos_class(created)
    if created.qos_class or qos_class(stored) is fixed:
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


def check_amounts(spec: Object) -> None:
    """Raise for resources in a pod's *spec* that the API server refuses by name or amount.

    Raises:
        DecodeError: there is one; the path starts at the pod.
    """
    stated = (
        (str(name), value, f"{at}.resources.{part}.{name}")
        for field in ("initContainers", "containers")
        for at, item in items(spec, field, "spec")
        for part in ("requests", "limits")
        for name, value in object_at(
            object_at(item, "resources", at), part, f"{at}.resources"
        ).items()
    )
    for name, value, at in stated:
        if "/" not in name and name not in _PLAIN and not name.startswith(HUGE_PAGES):
            cure = "names of devices have a prefix, such as nvidia.com/gpu"
            raise DecodeError(at, "the API server knows no such resource of a container", cure)
        if _is_of_devices(name) and amount(value, at, is_cpu=True) % MILLICORES:
            cure = "ask for whole devices; a part of a GPU is a MIG device or a shared replica"
            problem = f"the API server takes whole numbers of devices, not {value}"
            raise DecodeError(at, problem, cure)


def check_limits(pod: Pod) -> None:
    """Raise for a request of the completed *pod* that does not fit its limit.

    Raises:
        InputError: there is one.
    """
    for container in pod.containers:
        limits = container.limits or {}
        for name, request in (container.requests or {}).items():
            limit = limits.get(name)
            is_exact = name.startswith(HUGE_PAGES) or _is_of_devices(name)
            if limit is None and is_exact:
                problem = f"requests.{name} without a limit"
                cure = f"set limits.{name} to the same amount"
            elif limit is not None and is_exact and request != limit:
                problem = f"requests.{name} that differs from limits.{name}"
                cure = "make the two equal"
            elif limit is not None and request > limit:
                problem = f"requests.{name} above limits.{name}"
                cure = "lower the request or raise the limit"
            else:
                continue
            where = f"{pod.namespace}/{pod.name} container {container.name}"
            raise InputError(f"{where}: the API server refuses {problem}", cure)


def _is_of_devices(name: str) -> bool:
    return "/" in name and "kubernetes.io/" not in name
