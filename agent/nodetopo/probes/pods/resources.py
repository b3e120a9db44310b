"""The API server's checks of requests and limits, in exact thousandths.

Facts from Kubernetes 1.36: ``validateResourceRequirements``, ``validatePodResources`` and
``validatePodResourceConsistency`` in pkg/apis/core/validation/validation.go;
``IsExtendedResourceName``, ``IsOvercommitAllowed`` and ``IsHugePageResourceValueDivisible`` in
pkg/apis/core/helper/helpers.go; ``SetDefaults_ResourceList`` in pkg/apis/core/v1/defaults.go, which
rounds every amount up to thousandths; ``IsSupportedPodLevelResource`` in k8s.io/component-helpers
resource/helpers.go.

A pod to check is a Pod of the model whose containers are named by their paths and whose amounts are
all in thousandths of a unit: in the base unit of a container ``1500m`` of memory and ``1100m`` are
the same two bytes, while the server considers one greater.
"""

from collections.abc import Callable, Iterable, Mapping

from nodetopo.errors import DecodeError
from nodetopo.formats.fields import MAX_AMOUNT, Object, amount, items, object_at, path_of, text_at
from nodetopo.model.kubernetes import quantity
from nodetopo.model.pod import Amounts, Container, ContainerKind, Pod, at_once
from nodetopo.model.qos import COUNTED, HUGE_PAGES
from nodetopo.probes.pods.names import check_key, check_subdomain, refused

PARTS = 1000
"""In a unit."""

_PLAIN = ("cpu", "memory", "ephemeral-storage")
"""Names without a prefix that containers can request, in addition to huge pages."""

_NATIVE = "kubernetes.io/"
"""In the names of resources that Kubernetes keeps for itself; they are no devices."""

_QUOTA = "requests."
"""How a quota writes the name of a device's resource, which has to remain a valid name with it."""


def exact_pod(spec: Object, at: str) -> Pod:
    """Return the pod of *spec* at the path *at*, to be checked."""
    resources, path = object_at(spec, "resources", at), path_of(at, "resources")
    has_resources = spec.get("resources") is not None
    if resources.get("claims") is not None:
        message = "claims may not be set for Resources at pod-level"
        raise refused(
            f"{path}.claims", "claims", message, "name them in the resources of a container"
        )
    return Pod(
        namespace="",
        name=at,
        containers=tuple(_containers(spec, at)),
        requests=_amounts(resources, "requests", path) if has_resources else None,
        limits=_amounts(resources, "limits", path) if has_resources else None,
    )


def check_overhead(spec: Object, at: str, *, is_whole: bool) -> None:
    """Raise for an overhead of a pod's *spec* at the path *at* that the API server refuses.

    A pod only has the overhead of its RuntimeClass (plugin/pkg/admission/runtimeclass), which is
    unknown here.

    Args:
        is_whole: whether no operator adds a RuntimeClass.
    """
    stated, path = spec.get("overhead"), path_of(at, "overhead")
    _check_stated({}, _amounts(spec, "overhead", at), path, _check_container_name)
    if stated is not None and is_whole and not text_at(spec, "runtimeClassName", at):
        message = "Pod Overhead set without corresponding RuntimeClass defined Overhead"
        cure = "remove it: the server sets that of the RuntimeClass which runtimeClassName names"
        raise refused(path, "an overhead", message, cure)


def exact_amounts(stated: Mapping[str, int]) -> dict[str, int]:
    """Return amounts in the units of a container (CPU in millicores) in thousandths."""
    return {name: value if name == "cpu" else value * PARTS for name, value in stated.items()}


def check_resources(pod: Pod) -> None:
    """Raise for requests or limits of *pod* that the API server refuses.

    Args:
        pod: made by :func:`exact_pod`; of kind Pod with its defaults.
    """
    for container in pod.containers:
        requests, limits = container.requests or {}, container.limits or {}
        _check_stated(requests, limits, f"{container.name}.resources", _check_container_name)
    if pod.requests is None and pod.limits is None:
        return
    path = path_of(pod.name, "resources")
    requests, limits = pod.requests or {}, pod.limits or {}
    _check_stated(requests, limits, path, _check_pod_name)
    _check_whole(pod, requests, limits, path)


def _containers(spec: Object, at: str) -> Iterable[Container]:
    for field in ("initContainers", "containers"):
        for path, item in items(spec, field, at):
            kind = ContainerKind.APP if field == "containers" else ContainerKind.INIT
            if kind is ContainerKind.INIT and text_at(item, "restartPolicy", path) == "Always":
                kind = ContainerKind.SIDECAR
            resources = object_at(item, "resources", path)
            yield Container(
                name=path,
                kind=kind,
                requests=_amounts(resources, "requests", f"{path}.resources"),
                limits=_amounts(resources, "limits", f"{path}.resources"),
            )


def _amounts(parent: Object, field: str, at: str) -> dict[str, int]:
    path = f"{at}.{field}"
    stated = object_at(parent, field, at)
    return {
        str(name): 0 if value is None else _exact(value, f"{path}.{name}")
        for name, value in stated.items()
    }


def _exact(value: object, path: str) -> int:
    """Return a quantity in thousandths, rounded up."""
    text = str(value)
    is_negative = text.startswith("-") and text.strip("-+.0123456789eEinumkKMGTP") == ""
    if is_negative and any(digit in "123456789" for digit in text.lower().partition("e")[0]):
        message = "must be greater than or equal to 0"
        raise refused(path, text, message, "ask for none, or for a positive amount")
    amount(value, path)
    return min(quantity(text, per_unit=PARTS), MAX_AMOUNT * PARTS)


def _check_stated(
    requests: Amounts, limits: Amounts, path: str, check_name: Callable[[str, str], None]
) -> None:
    """Raise for requests and limits at *path* that are refused by themselves."""
    for field, stated in (("limits", limits), ("requests", requests)):
        for name, value in stated.items():
            check_name(name, f"{path}.{field}.{name}")
            _check_amount(name, value, f"{path}.{field}.{name}")
    _check_pair(requests, limits, path)


def _check_container_name(name: str, path: str) -> None:
    check_key(name, path)
    if "/" not in name:
        if name not in _PLAIN and not name.startswith(HUGE_PAGES):
            message = "must be a standard resource for containers"
            cure = "names of devices have a prefix, such as nvidia.com/gpu"
            raise refused(path, name, message, cure)
    elif _NATIVE not in name:
        if name.startswith(_QUOTA):
            message = "doesn't follow extended resource name standard"
            raise refused(path, name, message, f"leave out {_QUOTA!r}")
        check_subdomain(_QUOTA + name.partition("/")[0], path)


def _check_pod_name(name: str, path: str) -> None:
    check_key(name, path)
    if name not in COUNTED and not name.startswith(HUGE_PAGES):
        message = 'Unsupported value: supported values: "cpu", "hugepages-", "memory"'
        raise refused(path, name, message, "state it in the resources of a container")


def _check_amount(name: str, value: int, path: str) -> None:
    text = _text(value)
    if _is_of_devices(name) and value % PARTS:
        cure = "ask for whole devices; a part of a GPU is a MIG device or a shared replica"
        raise refused(path, text, "must be an integer", cure)
    if name.startswith(HUGE_PAGES) and not _is_of_pages(name, value):
        message = f"is not positive integer multiple of {name}"
        raise refused(
            path, text, message, f"ask for whole pages of {name.removeprefix(HUGE_PAGES)}"
        )


def _is_of_pages(name: str, value: int) -> bool:
    try:
        page = quantity(name.removeprefix(HUGE_PAGES), per_unit=PARTS)
    except ValueError:
        return False
    if page <= 0 or page % PARTS:
        return False
    return -(-value // PARTS) % (page // PARTS) == 0


def _check_pair(requests: Amounts, limits: Amounts, path: str) -> None:
    """Raise for a request that does not fit its limit, and for huge pages alone."""
    for name, request in requests.items():
        limit, at = limits.get(name), f"{path}.requests.{name}"
        is_exact = name.startswith(HUGE_PAGES) or _is_of_devices(name)
        if limit is None and is_exact:
            message = "Limit must be set for non overcommitable resources"
            raise DecodeError(
                f"{path}.limits.{name}",
                f"the API server refuses this: Required value: {message}",
                f"set limits.{name} to the same amount as the request",
            )
        if limit is None:
            continue
        if is_exact and request != limit:
            message = f"must be equal to {name} limit of {_text(limit)}"
            raise refused(at, _text(request), message, "make the two equal")
        if request > limit:
            message = f"must be less than or equal to {name} limit of {_text(limit)}"
            raise refused(at, _text(request), message, "lower the request or raise the limit")
    stated = {**limits, **requests}
    pages = [name for name in stated if name.startswith(HUGE_PAGES)]
    if pages and not any(name in stated for name in COUNTED):
        message = "HugePages require cpu or memory"
        cure = f"state cpu or memory beside {pages[0]}"
        raise DecodeError(path, f"the API server refuses this: {message}", cure)


def _check_whole(pod: Pod, requests: Amounts, limits: Amounts, path: str) -> None:
    """Raise for amounts of the whole pod below its containers' amounts."""
    together = at_once(pod, lambda container: container.requests or {})
    pages = at_once(pod, lambda container: container.limits or {})
    sums = (
        ("requests", requests, together),
        (
            "limits",
            limits,
            {name: each for name, each in pages.items() if name.startswith(HUGE_PAGES)},
        ),
    )
    for field, stated, summed in sums:
        for name, each in summed.items():
            if name in stated and each > stated[name]:
                message = (
                    f"must be greater than or equal to aggregate container {field} of {_text(each)}"
                )
                at, cure = f"{path}.{field}.{name}", "raise it, or lower those of the containers"
                raise refused(at, _text(stated[name]), message, cure)
    for container in pod.containers:
        if container.kind is not ContainerKind.APP:
            continue
        for name, each in (container.limits or {}).items():
            if name in limits and each > limits[name]:
                message = f"must be less than or equal to pod limits of {_text(limits[name])}"
                at = f"{container.name}.resources.limits.{name}"
                cure = f"lower it, or raise {path}.limits.{name}"
                raise refused(at, _text(each), message, cure)


def _is_of_devices(name: str) -> bool:
    return "/" in name and _NATIVE not in name


def _text(value: int) -> str:
    """Return an amount in thousandths as a quantity, in the largest binary unit that it fills."""
    if value % PARTS:
        return f"{value}m"
    whole, power = value // PARTS, 0
    while whole and whole % 1024 == 0 and power < 3:
        whole, power = whole // 1024, power + 1
    return f"{whole}{('', 'Ki', 'Mi', 'Gi')[power]}"
