"""Pods: the allow-listed part of them that placement depends on."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from agent.model.numa import CpuSet


class ContainerKind(StrEnum):
    """Which list of the pod a container stands in; a sidecar is a restarting init container."""

    APP = "app"
    INIT = "init"
    SIDECAR = "sidecar"


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignedDevices:
    """Devices of one resource that the kubelet gave to a container (PodResources API)."""

    resource: str
    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignedMemory:
    """Memory that the Memory Manager pinned for a container (PodResources API)."""

    kind: str
    size_bytes: int
    numa_nodes: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """One container.

    Attributes:
        requests, limits: resource → amount; CPU in millicores, everything else in its base
            unit (bytes, devices). ``None``: this source does not carry the spec.
        devices, cpus, memory: what the kubelet assigned. *cpus* holds exclusive CPUs only,
            empty when the container shares; ``None`` everywhere means not reported.
    """

    name: str
    kind: ContainerKind = ContainerKind.APP
    requests: Mapping[str, int] | None = None
    limits: Mapping[str, int] | None = None
    devices: tuple[AssignedDevices, ...] | None = None
    cpus: CpuSet | None = None
    memory: tuple[AssignedMemory, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """One pod, running or only described by a manifest.

    Attributes:
        qos_class: ``status.qosClass`` where the API server reported it.
        requests, limits: pod-level resources (``spec.resources``), same units as a
            container's; ``None`` when the pod states none.
    """

    namespace: str
    name: str
    uid: str | None = None
    phase: str | None = None
    qos_class: str | None = None
    containers: tuple[Container, ...] = ()
    requests: Mapping[str, int] | None = None
    limits: Mapping[str, int] | None = None
