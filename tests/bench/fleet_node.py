"""A Node object of the size that a GPU node's has: 18 KB, of which images take most."""

from typing import Any

_LABELS = {
    "beta.kubernetes.io/arch": "amd64",
    "beta.kubernetes.io/os": "linux",
    "kubernetes.io/arch": "amd64",
    "kubernetes.io/os": "linux",
    "node.kubernetes.io/instance-type": "gpu-8x",
    "topology.kubernetes.io/region": "region-1",
    "topology.kubernetes.io/zone": "zone-1",
    **{f"feature.node.kubernetes.io/cpu-cpuid.FEATURE{number}": "true" for number in range(40)},
}
"""What the kubelet, the cloud and Node Feature Discovery write."""

_IMAGES = 50
"""A kubelet reports that many (kubelet configuration, nodeStatusMaxImages)."""

_CAPACITY = {
    "cpu": "224",
    "ephemeral-storage": "3600Gi",
    "hugepages-1Gi": "0",
    "hugepages-2Mi": "0",
    "memory": "2113409948Ki",
    "nvidia.com/gpu": "8",
    "pods": "110",
}
_CONDITIONS = {
    "MemoryPressure": "False",
    "DiskPressure": "False",
    "PIDPressure": "False",
    "Ready": "True",
}
_WHEN = "2026-01-01T00:00:00Z"


def node(name: str) -> dict[str, Any]:
    """Return the Node *name* as its kubelet left it, without labels of ours."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {**_LABELS, "kubernetes.io/hostname": name},
            "annotations": {
                "node.alpha.kubernetes.io/ttl": "0",
                "volumes.kubernetes.io/controller-managed-attach-detach": "true",
            },
        },
        "spec": {"podCIDR": "10.1.0.0/24", "providerID": f"cloud:///zone-1/{name}"},
        "status": {
            "capacity": _CAPACITY,
            "allocatable": _CAPACITY,
            "conditions": [_condition(*item) for item in _CONDITIONS.items()],
            "addresses": [{"type": "Hostname", "address": name}],
            "images": [_image(number) for number in range(_IMAGES)],
        },
    }


def _condition(kind: str, status: str) -> dict[str, Any]:
    return {
        "type": kind,
        "status": status,
        "lastHeartbeatTime": _WHEN,
        "lastTransitionTime": _WHEN,
        "reason": f"Kubelet{kind}",
        "message": f"kubelet says {status} of {kind}",
    }


def _image(number: int) -> dict[str, Any]:
    place = f"registry.example.com/team-{number:02}/workload-{number:02}"
    return {
        "names": [f"{place}@sha256:{number:064x}", f"{place}:v1.{number}.0"],
        "sizeBytes": 1_000_000_000 + number,
    }
