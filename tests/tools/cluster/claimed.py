"""ResourceClaims as the scheduler leaves them."""

from collections.abc import Mapping, Sequence
from typing import Any

from nodetopo.model.snapshot import Snapshot
from nodetopo.tools.cluster.export.dra import claim_spec

SECOND = "2026-11-23T10:00:0{}Z"


def claim(
    name: str,
    spec: Mapping[str, Any],
    devices: Sequence[str] = (),
    *,
    node: str = "n1",
    request: str = "gpus",
    driver: str = "gpu.nvidia.com",
    at: int | None = 5,
) -> dict[str, Any]:
    """Return a claim that has *devices* of *node* for its *request*, or waits where it has none.

    *at* is the second of its allocation; ``None`` where the API server keeps no time.
    """
    found: dict[str, Any] = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "batch"},
        "spec": spec,
        "status": {},
    }
    if devices:
        results = [
            {"request": request, "driver": driver, "pool": node, "device": device}
            for device in devices
        ]
        term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
        allocation: dict[str, Any] = {
            "devices": {"results": results},
            "nodeSelector": {"nodeSelectorTerms": [term]},
        }
        if at is not None:
            allocation["allocationTimestamp"] = SECOND.format(at)
        found["status"] = {"allocation": allocation}
    return found


def plain(count: int, **more: Any) -> dict[str, Any]:
    """Return the spec of a claim for any *count* GPUs; *more* are fields of its request."""
    exactly = {"deviceClassName": "gpu.nvidia.com", "allocationMode": "ExactCount", "count": count}
    return {"devices": {"requests": [{"name": "gpus", "exactly": {**exactly, **more}}]}}


def same_numa_node(count: int) -> dict[str, Any]:
    """Return the spec of a claim for *count* GPUs of one NUMA node."""
    spec = plain(count)
    constraint = {"requests": ["gpus"], "matchAttribute": "resource.kubernetes.io/numaNode"}
    spec["devices"]["constraints"] = [constraint]
    return spec


def exported(snapshot: Snapshot, count: int) -> Mapping[str, Any]:
    """Return the spec that is exported for *snapshot*."""
    return claim_spec(snapshot, count)
