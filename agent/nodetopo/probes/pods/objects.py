"""Pod and Node objects of the Kubernetes API, reduced to the inputs of placement and audits."""

import posixpath
import re
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct, field

from nodetopo.errors import DecodeError
from nodetopo.formats.fields import (
    Object,
    amount,
    amounts,
    flag_at,
    items,
    object_at,
    text_at,
    texts_at,
)
from nodetopo.model.node import NodeStatus
from nodetopo.model.operator_labels import KEPT
from nodetopo.model.pod import Container, ContainerKind, Pod, SharedMemory

NETWORKS = "k8s.v1.cni.cncf.io/networks"
"""The annotation that asks for more networks, and with them for devices (Kubernetes Network Custom
Resource Definition De-facto Standard, version 1.3, section 4.1)."""

VARIABLES = ("NCCL_", "NVIDIA_", "CUDA_", "UCX_")
"""Prefixes of the environment variables that are read; all others can be secrets."""

_SECRETS = re.compile(
    r"_(?:API)?(?:KEYS?|TOKENS?|SECRETS?|PASS(?:WD|WORD)?|CREDENTIALS?|AUTH)(?:_|$)", re.IGNORECASE
)
"""Parts of variables' names that are secret all the same, such as ``NVIDIA_API_KEY``; the
``NCCL_IB_PKEY`` is an index.
"""

_HEALTHY = "Healthy"
"""``ResourceHealthStatus`` of k8s.io/api core/v1; the others are Unhealthy and Unknown."""

SHM = "/dev/shm"  # noqa: S108 - a place in containers, where nothing is written here

SHM_ANNOTATIONS = ("shm-size.crio.io", "io.kubernetes.cri-o.ShmSize")
"""Where CRI-O takes the size of a pod's own ``/dev/shm`` from, the first before the second
(cri-o pkg/annotations)."""

LABELS_OF = "nvidia.com/"
"""The prefix of the labels whose writers are kept."""


def pod_from_object(obj: Object) -> Pod:
    """Return the pod that *obj* describes, without defaulting anything.

    Init containers and sidecars come first, in their order, then app containers; ephemeral
    containers are left out, as they cannot ask for resources.

    Raises:
        DecodeError: *obj* is no well-formed Pod; the path starts at the pod.
    """
    metadata = object_at(obj, "metadata", "")
    annotations = object_at(metadata, "annotations", "metadata")
    spec = object_at(obj, "spec", "")
    status = object_at(obj, "status", "")
    resources = object_at(spec, "resources", "spec")
    has_resources = spec.get("resources") is not None
    at = "spec.resources"
    name = text_at(metadata, "name", "metadata")
    prefix = text_at(metadata, "generateName", "metadata")
    if not name and not prefix:
        raise DecodeError("metadata.name", "missing")
    owners = list(items(metadata, "ownerReferences", "metadata"))
    owners.sort(key=lambda owner: not flag_at(owner[1], "controller", owner[0]))
    return Pod(
        namespace=text_at(metadata, "namespace", "metadata") or "default",
        name=name or f"{prefix}*",
        uid=text_at(metadata, "uid", "metadata"),
        phase=text_at(status, "phase", "status"),
        qos_class=text_at(status, "qosClass", "status"),
        containers=tuple(_containers(annotations, spec, status)),
        requests=amounts(resources, "requests", at) if has_resources else None,
        limits=amounts(resources, "limits", at) if has_resources else None,
        owner_kind=text_at(owners[0][1], "kind", owners[0][0]) if owners else None,
        status_reason=text_at(status, "reason", "status") or None,
        status_message=text_at(status, "message", "status") or None,
        uses_host_network=flag_at(spec, "hostNetwork", "spec"),
        uses_host_ipc=flag_at(spec, "hostIPC", "spec"),
        uses_host_pid=flag_at(spec, "hostPID", "spec"),
        hostname=text_at(spec, "hostname", "spec") or None,
        runtime_class=text_at(spec, "runtimeClassName", "spec") or None,
        node_selector=texts_at(spec, "nodeSelector", "spec"),
        has_other_devices=bool(text_at(annotations, NETWORKS, "metadata.annotations"))
        or any(True for _ in items(spec, "resourceClaims", "spec")),
    )


def _containers(annotations: Object, spec: Object, status: Object) -> Iterator[Container]:
    statuses = {
        text_at(item, "name", at) or "": _container_status(item, at)
        for name in ("initContainerStatuses", "containerStatuses")
        for at, item in items(status, name, "status")
    }
    shared = _pod_shared_memory(spec, annotations)
    for at, item in items(spec, "initContainers", "spec"):
        is_sidecar = item.get("restartPolicy") == "Always"
        kind = ContainerKind.SIDECAR if is_sidecar else ContainerKind.INIT
        yield _container(item, kind, at, statuses, shared)
    for at, item in items(spec, "containers", "spec"):
        yield _container(item, ContainerKind.APP, at, statuses, shared)


class ContainerStatus(Struct, frozen=True, kw_only=True):
    """The status of one container."""

    id: str | None = None  # as its runtime names it; None unless it runs
    # Devices that are not healthy; None where the API server does not say (feature gate
    # ``ResourceHealthStatus``).
    unhealthy: tuple[str, ...] | None = None


ShmLimit = tuple[SharedMemory, int | None]
"""A container's content of ``/dev/shm``, and its limit in bytes."""


class PodSharedMemory(Struct, frozen=True):
    """A pod's volumes for ``/dev/shm``."""

    unmounted: ShmLimit = (SharedMemory.DEFAULT, None)  # for containers without a mount there
    volumes: Mapping[str, ShmLimit] = field(default_factory=dict)  # name of the volume → its kind


def _container(
    item: Object,
    kind: ContainerKind,
    at: str,
    statuses: Mapping[str, ContainerStatus],
    shared: PodSharedMemory,
) -> Container:
    name = text_at(item, "name", at)
    if not name:
        raise DecodeError(f"{at}.name", "missing")
    resources = object_at(item, "resources", at)
    security = object_at(item, "securityContext", at)
    requests = amounts(resources, "requests", f"{at}.resources")
    limits = amounts(resources, "limits", f"{at}.resources")
    image = text_at(item, "image", at) or None
    environment = _environment(item, at)
    has_hidden_environment = any(True for _ in items(item, "envFrom", at))
    is_privileged = flag_at(security, "privileged", f"{at}.securityContext")
    added = object_at(security, "capabilities", f"{at}.securityContext").get("add")
    if added is None:
        added = []
    if not isinstance(added, list) or not all(isinstance(item, str) for item in added):
        path = f"{at}.securityContext.capabilities.add"
        raise DecodeError(path, "expected a list of texts")

    memory, memory_bytes = shared.unmounted
    for place, mount in items(item, "volumeMounts", at):
        if posixpath.normpath(text_at(mount, "mountPath", place) or "") == SHM:
            volume = text_at(mount, "name", place) or ""
            memory, memory_bytes = shared.volumes.get(volume, (SharedMemory.OTHER, None))
            break
    status = statuses.get(name, ContainerStatus())
    return Container(
        name=name,
        kind=kind,
        requests=requests,
        limits=limits,
        image=image,
        environment=environment,
        has_hidden_environment=has_hidden_environment,
        is_privileged=is_privileged,
        capabilities=tuple(capability.upper().removeprefix("CAP_") for capability in added),
        claims=tuple(dict.fromkeys(_claims(item, at))) or None,
        shared_memory=memory,
        shared_memory_bytes=memory_bytes,
        unhealthy_devices=status.unhealthy,
        id=status.id,
    )


def _claims(item: Object, at: str) -> Iterator[str]:
    """Yield the names of the pod's ResourceClaims that the container uses."""
    place = f"{at}.resources"
    for where, claim in items(object_at(item, "resources", at), "claims", place):
        if name := text_at(claim, "name", where):
            yield name


def _environment(item: Object, at: str) -> dict[str, str | None]:
    """Return the readable variables; of two with one name, the last counts."""
    variables: dict[str, str | None] = {}
    for place, variable in items(item, "env", at):
        name = text_at(variable, "name", place) or ""
        if name.startswith(VARIABLES):
            is_hidden = variable.get("valueFrom") is not None or _SECRETS.search(name)
            value = None if is_hidden else text_at(variable, "value", place) or ""
            variables.pop(name, None)
            variables[name] = value
    return variables


def _container_status(item: Object, at: str) -> ContainerStatus:
    state = item.get("state")
    is_running = isinstance(state, dict) and state.get("running") is not None
    runtime_id = (text_at(item, "containerID", at) or "").partition("://")[2]
    unhealthy = None
    if item.get("allocatedResourcesStatus") is not None:
        unhealthy = tuple(
            text_at(device, "resourceID", where) or "a device without id"
            for place, resource in items(item, "allocatedResourcesStatus", at)
            for where, device in items(resource, "resources", place)
            if text_at(device, "health", where) != _HEALTHY
        )
    return ContainerStatus(id=runtime_id or None if is_running else None, unhealthy=unhealthy)


def _pod_shared_memory(spec: Object, annotations: Object) -> PodSharedMemory:
    volumes: dict[str, ShmLimit] = {}
    for at, item in items(spec, "volumes", "spec"):
        name = text_at(item, "name", at) or ""
        if item.get("hostPath") is not None:
            volumes[name] = SharedMemory.HOST, None
        elif item.get("emptyDir") is None:
            volumes[name] = SharedMemory.OTHER, None
        else:
            place = f"{at}.emptyDir"
            empty = object_at(item, "emptyDir", at)
            limit = empty.get("sizeLimit")
            size = None if limit is None else amount(limit, f"{place}.sizeLimit")
            is_memory = text_at(empty, "medium", place) == "Memory"
            volumes[name] = SharedMemory.MEMORY if is_memory else SharedMemory.OTHER, size
    if flag_at(spec, "hostIPC", "spec"):
        return PodSharedMemory((SharedMemory.HOST, None), volumes)
    for name in SHM_ANNOTATIONS:
        if isinstance(stated := annotations.get(name), str):
            try:
                return PodSharedMemory((SharedMemory.MEMORY, amount(stated, name)), volumes)
            except DecodeError:  # the runtime fails on such a size, so that none counts
                break
    return PodSharedMemory(volumes=volumes)


def node_status_from_object(obj: Mapping[str, Any]) -> NodeStatus:
    """Return the status of the Node *obj*.

    A node whose kubelet never reported has neither capacity nor versions. The writers of labels
    come from ``metadata.managedFields``, and are None where an answer left these out.

    Raises:
        DecodeError: *obj* is no well-formed Node; the path starts at the node.
    """
    metadata = object_at(obj, "metadata", "")
    status = object_at(obj, "status", "")
    info = object_at(status, "nodeInfo", "status")
    labels = object_at(metadata, "labels", "metadata")

    writers: dict[str, set[str]] = {}
    for at, entry in items(metadata, "managedFields", "metadata"):
        manager = text_at(entry, "manager", at) or "unknown"
        fields = object_at(entry, "fieldsV1", at)
        below = object_at(fields, "f:metadata", f"{at}.fieldsV1")
        for name in object_at(below, "f:labels", f"{at}.fieldsV1.f:metadata"):
            label = str(name).removeprefix("f:")  # of each name (Kubernetes API, FieldsV1)
            if label.startswith(LABELS_OF):
                writers.setdefault(label, set()).add(manager)
    has_writers = metadata.get("managedFields") is not None

    def resources(field: str) -> dict[str, int] | None:
        return None if status.get(field) is None else amounts(status, field, "status")

    return NodeStatus(
        kubelet_version=text_at(info, "kubeletVersion", "status.nodeInfo") or None,
        container_runtime=text_at(info, "containerRuntimeVersion", "status.nodeInfo") or None,
        capacity=resources("capacity"),
        allocatable=resources("allocatable"),
        labels={key: text for key in KEPT if (text := text_at(labels, key, "metadata.labels"))},
        label_writers={label: tuple(sorted(writers[label])) for label in sorted(writers)}
        if has_writers
        else None,
    )
