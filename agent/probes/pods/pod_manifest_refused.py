"""What the API server refuses in the resources of a container: no kubelet ever sees such a pod.

Facts from Kubernetes 1.36: ``validateContainerResourceRequirements`` in
pkg/apis/core/validation/validation.go, ``IsExtendedResourceName`` and ``IsOvercommitAllowed`` in
pkg/apis/core/v1/helper/helpers.go.
"""

from agent.errors import DecodeError, InputError
from agent.formats.fields import MILLICORES, Object, amount, items, object_at
from agent.model.pod import Container, Pod
from agent.model.qos import HUGE_PAGES

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
