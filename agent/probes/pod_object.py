"""A Pod object of the Kubernetes API, reduced to what placement depends on."""

from collections.abc import Iterator, Mapping
from typing import Any

from agent.errors import DecodeError
from agent.model.pod import Container, ContainerKind, Pod
from agent.model.quantity import quantity

MILLICORES = 1000
"""Millicores in a CPU, the unit of CPU amounts in the model."""

Object = Mapping[str, Any]


def pod_from_object(obj: Object) -> Pod:
    """Return the pod that *obj* describes, without defaulting anything.

    Init containers and sidecars come first, in their order, then app containers; ephemeral
    containers are left out, as they cannot ask for resources.

    Raises:
        DecodeError: *obj* has not the shape of a Pod; the path starts at the pod.
    """
    metadata = _object(obj, "metadata", "")
    spec = _object(obj, "spec", "")
    status = _object(obj, "status", "")
    resources = _object(spec, "resources", "spec")
    has_resources = spec.get("resources") is not None
    at = "spec.resources"
    return Pod(
        namespace=_text(metadata, "namespace", "metadata") or "default",
        name=_name(metadata),
        uid=_text(metadata, "uid", "metadata"),
        phase=_text(status, "phase", "status"),
        qos_class=_text(status, "qosClass", "status"),
        containers=tuple(_containers(spec)),
        requests=_amounts(resources, "requests", at) if has_resources else None,
        limits=_amounts(resources, "limits", at) if has_resources else None,
    )


def _name(metadata: Object) -> str:
    name = _text(metadata, "name", "metadata")
    prefix = _text(metadata, "generateName", "metadata")
    if name or prefix:
        return name or f"{prefix}*"
    raise DecodeError("metadata.name", "missing")


def _containers(spec: Object) -> Iterator[Container]:
    for at, item in _items(spec, "initContainers"):
        is_sidecar = item.get("restartPolicy") == "Always"
        yield _container(item, ContainerKind.SIDECAR if is_sidecar else ContainerKind.INIT, at)
    for at, item in _items(spec, "containers"):
        yield _container(item, ContainerKind.APP, at)


def _items(spec: Object, field: str) -> Iterator[tuple[str, Object]]:
    items = spec.get(field)
    if items is None:
        return
    if not isinstance(items, list):
        raise DecodeError(f"spec.{field}", f"expected a list, found {type(items).__name__}")
    for position, item in enumerate(items):
        at = f"spec.{field}[{position}]"
        if not isinstance(item, Mapping):
            raise DecodeError(at, f"expected an object, found {type(item).__name__}")
        yield at, item


def _container(item: Object, kind: ContainerKind, at: str) -> Container:
    name = _text(item, "name", at)
    if not name:
        raise DecodeError(f"{at}.name", "missing")
    resources = _object(item, "resources", at)
    return Container(
        name=name,
        kind=kind,
        requests=_amounts(resources, "requests", f"{at}.resources"),
        limits=_amounts(resources, "limits", f"{at}.resources"),
    )


def _amounts(resources: Object, field: str, at: str) -> dict[str, int]:
    amounts = _object(resources, field, at)
    return {
        str(name): _amount(str(name), value, f"{at}.{field}.{name}")
        for name, value in amounts.items()
    }


def _amount(resource: str, value: Any, at: str) -> int:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise DecodeError(at, f"expected a quantity, found {type(value).__name__}")
    try:
        amount = quantity(str(value), per_unit=MILLICORES if resource == "cpu" else 1)
    except ValueError as error:
        raise DecodeError(at, str(error)) from None
    if amount < 0:
        raise DecodeError(at, f"a negative amount: {value!r}")
    return amount


def _object(parent: Object, field: str, at: str) -> Object:
    """Return an object field; an absent one is empty."""
    value = parent.get(field)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise DecodeError(_join(at, field), f"expected an object, found {type(value).__name__}")
    return value


def _text(parent: Object, field: str, at: str) -> str | None:
    value = parent.get(field)
    if value is None or isinstance(value, str):
        return value
    raise DecodeError(_join(at, field), f"expected a text, found {type(value).__name__}")


def _join(at: str, field: str) -> str:
    return f"{at}.{field}" if at else field
