"""A Pod object of the Kubernetes API, reduced to what placement depends on."""

from collections.abc import Iterator
from dataclasses import replace

from agent.errors import DecodeError
from agent.formats.fields import Object, amounts, flag_at, items, object_at, text_at, texts_at
from agent.model.pod import Container, ContainerKind, Pod
from agent.probes.pods.pod_object_container import container
from agent.probes.pods.pod_object_shm import memory_of, shared_memories
from agent.probes.pods.pod_object_status import UNTOLD, statuses

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
