"""A Pod object of the Kubernetes API, reduced to what placement depends on."""

import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from agent.errors import DecodeError
from agent.formats.fields import (
    Object,
    amount,
    amounts,
    flag_at,
    items,
    object_at,
    text_at,
    texts_at,
)
from agent.model.node import NodeStatus
from agent.model.pod import Container, ContainerKind, Pod, SharedMemory

# A container of a pod's spec, reduced to what placement depends on.

VARIABLES = ("NCCL_", "NVIDIA_", "CUDA_", "UCX_")
"""How the names of the variables begin that are read; all others may be secrets."""


_SECRETS = re.compile(
    r"_(?:API)?(?:KEYS?|TOKENS?|SECRETS?|PASS(?:WD|WORD)?|CREDENTIALS?|AUTH)(?:_|$)", re.IGNORECASE
)
"""In the names of those that are secrets all the same, such as ``NVIDIA_API_KEY``; the
``NCCL_IB_PKEY`` is an index."""


def container(item: Object, kind: ContainerKind, at: str) -> Container:
    """Return the container *item* of a pod, which is at the path *at*.

    Raises:
        DecodeError: it has not the shape of a container.
    """
    name = text_at(item, "name", at)
    if not name:
        raise DecodeError(f"{at}.name", "missing")
    resources = object_at(item, "resources", at)
    security = object_at(item, "securityContext", at)
    return Container(
        name=name,
        kind=kind,
        requests=amounts(resources, "requests", f"{at}.resources"),
        limits=amounts(resources, "limits", f"{at}.resources"),
        image=text_at(item, "image", at) or None,
        environment=_environment(item, at),
        has_hidden_environment=any(True for _ in items(item, "envFrom", at)),
        is_privileged=flag_at(security, "privileged", f"{at}.securityContext"),
        capabilities=_capabilities(security, f"{at}.securityContext"),
    )


def _environment(item: Object, at: str) -> dict[str, str | None]:
    """Return the variables that may be read; of two with one name the last one counts."""
    found: dict[str, str | None] = {}
    for place, variable in items(item, "env", at):
        name = text_at(variable, "name", place) or ""
        if name.startswith(VARIABLES):
            is_hidden = variable.get("valueFrom") is not None or _SECRETS.search(name)
            value = None if is_hidden else text_at(variable, "value", place) or ""
            found.pop(name, None)
            found[name] = value
    return found


def _capabilities(security: Object, at: str) -> tuple[str, ...]:
    added = object_at(security, "capabilities", at).get("add")
    if added is None:
        return ()
    place = f"{at}.capabilities.add"
    if not isinstance(added, list) or not all(isinstance(name, str) for name in added):
        raise DecodeError(place, "expected a list of texts")
    return tuple(name.upper().removeprefix("CAP_") for name in added)


# What the status of a pod tells of its containers: their ids, and devices that fail.

_LISTS = ("initContainerStatuses", "containerStatuses")


_GOOD = "Healthy"
"""``ResourceHealthStatus`` of k8s.io/api core/v1; the others are Unhealthy and Unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerStatus:
    """Of one container.

    Attributes:
        id: as its runtime names it; ``None`` unless it runs.
        unhealthy: devices that are not healthy; ``None`` where the API server does not tell of
            devices (gate ``ResourceHealthStatus``).
    """

    id: str | None = None
    unhealthy: tuple[str, ...] | None = None


UNTOLD = ContainerStatus()
"""Of a container that has not been started, and of one in a manifest."""


def statuses(status: Object) -> dict[str, ContainerStatus]:
    """Return name → what the pod's *status* tells of that container.

    Raises:
        DecodeError: it has not the shape of a status.
    """
    return {
        text_at(item, "name", at) or "": ContainerStatus(
            id=_id(item, at), unhealthy=_unhealthy(item, at)
        )
        for field in _LISTS
        for at, item in items(status, field, "status")
    }


def _id(item: Object, at: str) -> str | None:
    state = item.get("state")
    is_running = isinstance(state, dict) and state.get("running") is not None
    whole = text_at(item, "containerID", at) or ""
    return whole.partition("://")[2] or None if is_running else None


def _unhealthy(item: Object, at: str) -> tuple[str, ...] | None:
    if item.get("allocatedResourcesStatus") is None:
        return None
    return tuple(_bad_devices(item, at))


def _bad_devices(item: Object, at: str) -> Iterator[str]:
    for place, resource in items(item, "allocatedResourcesStatus", at):
        for where, device in items(resource, "resources", place):
            if text_at(device, "health", where) != _GOOD:
                yield text_at(device, "resourceID", where) or "a device without id"


# What the containers of a pod find at ``/dev/shm``.

PATH = "/dev/shm"  # noqa: S108 - a place in containers, where nothing is written here


ANNOTATIONS = ("shm-size.crio.io", "io.kubernetes.cri-o.ShmSize")
"""Where CRI-O takes the size of the pod's own from, the first before the second
(cri-o pkg/annotations)."""


Found = tuple[SharedMemory, int | None]
"""What is there, and its limit in bytes."""


@dataclass(frozen=True, slots=True)
class SharedMemories:
    """What a pod has for it.

    Attributes:
        unmounted: what containers find that mount nothing there.
        volumes: name of the volume → what it is.
    """

    unmounted: Found = (SharedMemory.DEFAULT, None)
    volumes: Mapping[str, Found] = field(default_factory=dict)


def shared_memories(spec: Object, annotations: Object) -> SharedMemories:
    """Return what the pod with *spec* and *annotations* has for it.

    Raises:
        DecodeError: a volume has not the shape of one.
    """
    volumes: dict[str, Found] = {}
    for at, item in items(spec, "volumes", "spec"):
        volumes[text_at(item, "name", at) or ""] = _volume(item, at)
    is_host = flag_at(spec, "hostIPC", "spec")
    own = (SharedMemory.HOST, None) if is_host else _of_runtime(annotations)
    return SharedMemories(own, volumes)


def memory_of(container: Object, at: str, shared: SharedMemories) -> Found:
    """Return what *container* finds there; a volume that the pod lacks is any other one.

    Raises:
        DecodeError: a mount has not the shape of one.
    """
    for place, mount in items(container, "volumeMounts", at):
        path = text_at(mount, "mountPath", place) or ""
        if posixpath.normpath(path) == PATH:
            name = text_at(mount, "name", place) or ""
            return shared.volumes.get(name, (SharedMemory.OTHER, None))
    return shared.unmounted


def _of_runtime(annotations: Object) -> Found:
    """Return what the runtime makes; a size that is none ends in its error, so that none counts."""
    for name in ANNOTATIONS:
        if isinstance(stated := annotations.get(name), str):
            try:
                return SharedMemory.MEMORY, amount(stated, name)
            except DecodeError:
                break
    return SharedMemory.DEFAULT, None


def _volume(item: Object, at: str) -> Found:
    if item.get("hostPath") is not None:
        return SharedMemory.HOST, None
    if item.get("emptyDir") is None:
        return SharedMemory.OTHER, None
    place = f"{at}.emptyDir"
    empty = object_at(item, "emptyDir", at)
    limit = empty.get("sizeLimit")
    size = None if limit is None else amount(limit, f"{place}.sizeLimit")
    is_memory = text_at(empty, "medium", place) == "Memory"
    return SharedMemory.MEMORY if is_memory else SharedMemory.OTHER, size


# A Node object of the Kubernetes API, reduced to what an audit needs.

LABELS_OF = "nvidia.com/"
"""The prefix of the labels whose writers are told."""


_FIELD = "f:"
"""Of each name in ``fieldsV1`` (Kubernetes API reference, FieldsV1)."""


def node_status_from_object(obj: Mapping[str, Any]) -> NodeStatus:
    """Return what the API server has of the node *obj*.

    A node whose kubelet never reported has neither capacity nor versions. The writers of labels
    come from ``metadata.managedFields``, and are ``None`` where an answer left these out.

    Raises:
        DecodeError: *obj* has not the shape of a Node; the path starts at the node.
    """
    metadata = object_at(obj, "metadata", "")
    status = object_at(obj, "status", "")
    about = object_at(status, "nodeInfo", "status")
    return NodeStatus(
        kubelet_version=text_at(about, "kubeletVersion", "status.nodeInfo") or None,
        container_runtime=text_at(about, "containerRuntimeVersion", "status.nodeInfo") or None,
        capacity=_amounts(status, "capacity"),
        allocatable=_amounts(status, "allocatable"),
        label_writers=_writers(metadata),
    )


def _amounts(status: Object, field: str) -> dict[str, int] | None:
    return None if status.get(field) is None else amounts(status, field, "status")


def _writers(metadata: Object) -> dict[str, tuple[str, ...]] | None:
    if metadata.get("managedFields") is None:
        return None
    writers: dict[str, set[str]] = {}
    for at, entry in items(metadata, "managedFields", "metadata"):
        manager = text_at(entry, "manager", at) or "unknown"
        for label in _labels(entry, at):
            writers.setdefault(label, set()).add(manager)
    return {label: tuple(sorted(writers[label])) for label in sorted(writers)}


def _labels(entry: Object, at: str) -> Iterator[str]:
    fields = object_at(entry, "fieldsV1", at)
    below = object_at(fields, "f:metadata", f"{at}.fieldsV1")
    for name in object_at(below, "f:labels", f"{at}.fieldsV1.f:metadata"):
        label = str(name).removeprefix(_FIELD)
        if label.startswith(LABELS_OF):
            yield label


NETWORKS = "k8s.v1.cni.cncf.io/networks"
"""The annotation that asks for more networks, and with them for devices (Kubernetes Network Custom
Resource Definition De-facto Standard, version 1.3, section 4.1)."""


def pod_from_object(obj: Object) -> Pod:
    """Return the pod that *obj* describes, without defaulting anything.

    Init containers and sidecars come first, in their order, then app containers; ephemeral
    containers are left out, as they cannot ask for resources.

    Raises:
        DecodeError: *obj* has not the shape of a Pod; the path starts at the pod.
    """
    metadata = object_at(obj, "metadata", "")
    annotations = object_at(metadata, "annotations", "metadata")
    spec = object_at(obj, "spec", "")
    status = object_at(obj, "status", "")
    resources = object_at(spec, "resources", "spec")
    has_resources = spec.get("resources") is not None
    at = "spec.resources"
    return Pod(
        namespace=text_at(metadata, "namespace", "metadata") or "default",
        name=_name(metadata),
        uid=text_at(metadata, "uid", "metadata"),
        phase=text_at(status, "phase", "status"),
        qos_class=text_at(status, "qosClass", "status"),
        containers=tuple(_containers(annotations, spec, status)),
        requests=amounts(resources, "requests", at) if has_resources else None,
        limits=amounts(resources, "limits", at) if has_resources else None,
        owner_kind=_owner(metadata),
        status_reason=text_at(status, "reason", "status") or None,
        status_message=text_at(status, "message", "status") or None,
        uses_host_network=flag_at(spec, "hostNetwork", "spec"),
        uses_host_ipc=flag_at(spec, "hostIPC", "spec"),
        uses_host_pid=flag_at(spec, "hostPID", "spec"),
        hostname=text_at(spec, "hostname", "spec") or None,
        runtime_class=text_at(spec, "runtimeClassName", "spec") or None,
        node_selector=texts_at(spec, "nodeSelector", "spec"),
        has_other_devices=_has_other_devices(annotations, spec),
    )


def _name(metadata: Object) -> str:
    name = text_at(metadata, "name", "metadata")
    prefix = text_at(metadata, "generateName", "metadata")
    if name or prefix:
        return name or f"{prefix}*"
    raise DecodeError("metadata.name", "missing")


def _owner(metadata: Object) -> str | None:
    """Return the kind of the controller, or else of the first owner."""
    owners = list(items(metadata, "ownerReferences", "metadata"))
    owners.sort(key=lambda found: not flag_at(found[1], "controller", found[0]))
    return text_at(owners[0][1], "kind", owners[0][0]) if owners else None


def _has_other_devices(annotations: Object, spec: Object) -> bool:
    has_networks = bool(text_at(annotations, NETWORKS, "metadata.annotations"))
    return has_networks or any(True for _ in items(spec, "resourceClaims", "spec"))


def _containers(annotations: Object, spec: Object, status: Object) -> Iterator[Container]:
    known = statuses(status)
    shared = shared_memories(spec, annotations)
    for kind, at, item in _listed(spec):
        found = container(item, kind, at)
        where, size = memory_of(item, at, shared)
        told = known.get(found.name, UNTOLD)
        yield replace(
            found,
            shared_memory=where,
            shared_memory_bytes=size,
            unhealthy_devices=told.unhealthy,
            id=told.id,
        )


def _listed(spec: Object) -> Iterator[tuple[ContainerKind, str, Object]]:
    for at, item in items(spec, "initContainers", "spec"):
        is_sidecar = item.get("restartPolicy") == "Always"
        yield ContainerKind.SIDECAR if is_sidecar else ContainerKind.INIT, at, item
    for at, item in items(spec, "containers", "spec"):
        yield ContainerKind.APP, at, item
