"""The Node object, as far as an audit needs it."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStatus:
    """What the API server has of the node.

    Attributes:
        kubelet_version: e.g. ``v1.36.3``.
        container_runtime: e.g. ``containerd://2.1.4``.
        capacity, allocatable: resource → amount; CPU in millicores, everything else in its base
            unit (bytes, devices). Extended and huge page resources, CPU and memory.
        label_writers: label → field managers that wrote it, sorted; only ``nvidia.com/`` ones.
    """

    kubelet_version: str | None = None
    container_runtime: str | None = None
    capacity: Mapping[str, int] | None = None
    allocatable: Mapping[str, int] | None = None
    label_writers: Mapping[str, tuple[str, ...]] | None = None
