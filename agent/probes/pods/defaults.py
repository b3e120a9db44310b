"""Requests and limits as the API server completes them before a kubelet sees a pod.

Facts from Kubernetes 1.36: ``SetDefaults_Pod``, ``defaultHugePagePodLimits`` and
``defaultPodRequests`` in pkg/apis/core/v1/defaults.go, and after these the admission plugin
LimitRanger (plugin/pkg/admission/limitranger).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from agent.errors import DecodeError, InputError
from agent.formats.fields import MILLICORES, Object, amount, amounts, items, object_at, text_at
from agent.model.pod import Container, Pod, at_once
from agent.model.qos import COUNTED, HUGE_PAGES, qos_class

# LimitRange objects: what containers of a namespace get that state nothing themselves.

LIMIT_RANGE = "LimitRange"
"""Its kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """Of one LimitRange.

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
        DecodeError: it has not the shape of one.
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


# What the API server refuses in the resources of a container: no kubelet ever sees such a pod.
#
# Facts from Kubernetes 1.36: ``validateContainerResourceRequirements`` in
# pkg/apis/core/validation/validation.go, ``IsExtendedResourceName`` and ``IsOvercommitAllowed`` in
# pkg/apis/core/v1/helper/helpers.go.

_LISTS = ("initContainers", "containers")


_OWN = ("cpu", "memory", "ephemeral-storage")
"""Names without a prefix that containers can ask for, beside those of huge pages."""


def check_amounts(spec: Object) -> None:
    """Raise for a resource of a pod's *spec* that has no such name, or cannot be divided so.

    Raises:
        DecodeError: there is one; the path starts at the pod.
    """
    for field in _LISTS:
        for at, item in items(spec, field, "spec"):
            resources = object_at(item, "resources", at)
            for part in ("requests", "limits"):
                stated = object_at(resources, part, f"{at}.resources")
                for name, value in stated.items():
                    _check_amount(str(name), value, f"{at}.resources.{part}.{name}")


def _check_amount(name: str, value: object, at: str) -> None:
    if "/" not in name and name not in _OWN and not name.startswith(HUGE_PAGES):
        cure = "names of devices have a prefix, such as nvidia.com/gpu"
        raise DecodeError(at, "the API server knows no such resource of a container", cure)
    if _is_of_devices(name) and amount(value, at, is_cpu=True) % MILLICORES:
        cure = "ask for whole devices; a part of a GPU is a MIG device or a shared replica"
        raise DecodeError(at, f"the API server takes whole numbers of devices, not {value}", cure)


def check_limits(pod: Pod) -> None:
    """Raise for a request of the completed *pod* that does not go with its limit.

    Raises:
        InputError: there is one.
    """
    for one in pod.containers:
        for name in one.requests or {}:
            found = _mismatch(name, one)
            if found is not None:
                problem, cure = found
                where = f"{pod.namespace}/{pod.name} container {one.name}"
                raise InputError(f"{where}: the API server refuses {problem}", cure)


def _mismatch(name: str, one: Container) -> tuple[str, str] | None:
    request, limit = (one.requests or {})[name], (one.limits or {}).get(name)
    is_exact = name.startswith(HUGE_PAGES) or _is_of_devices(name)
    if limit is None:
        cure = f"set limits.{name} to the same amount"
        return (f"requests.{name} without a limit", cure) if is_exact else None
    if is_exact and request != limit:
        return f"requests.{name} that differs from limits.{name}", "make the two equal"
    if request > limit:
        return f"requests.{name} above limits.{name}", "lower the request or raise the limit"
    return None


def _is_of_devices(name: str) -> bool:
    return "/" in name and "kubernetes.io/" not in name


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
