"""What DRA drivers publish of a machine, and what the allocator of Kubernetes makes of a claim.

The allocator is imitated as far as exported claims need it: alternatives in their order, devices in
the order of the slices, exhaustively (k8s.io/dynamic-resource-allocation v0.36.3 ``structured``).
Of CEL only the expressions that are exported are understood.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import combinations
from random import Random
from typing import Any

from nodetopo.model.gpu import Gpu
from nodetopo.model.hca import Hca
from nodetopo.model.snapshot import Snapshot

_STANDARD = "resource.kubernetes.io"


def slices(
    snapshot: Snapshot, node: str, *, seed: int = 0, nics: bool = False
) -> list[dict[str, Any]]:
    """Return the ResourceSlices of NVIDIA's driver on *node*, its GPUs in an order of their own.

    With *nics* also those of dranet.
    """
    gpus = [_gpu(gpu) for gpu in snapshot.gpus]
    Random(seed).shuffle(gpus)
    found = [_slice(node, "gpu.nvidia.com", gpus)]
    if nics:
        found.append(_slice(node, "dra.net", [_nic(hca) for hca in snapshot.hcas or ()]))
    return found


def _slice(node: str, driver: str, devices: list[dict[str, Any]]) -> dict[str, Any]:
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{node}-{driver}"},
        "spec": {"driver": driver, "pool": pool, "nodeName": node, "devices": devices},
    }


def _gpu(gpu: Gpu) -> dict[str, Any]:
    attributes = {
        "type": {"string": "gpu"},
        "uuid": {"string": gpu.uuid},
        "productName": {"string": gpu.product},
        **_place(gpu),
    }
    return {"name": f"gpu-{gpu.index}", "attributes": attributes}


def _nic(hca: Hca) -> dict[str, Any]:
    attributes = {"rdma": {"bool": True}, **_place(hca)}
    return {
        "name": f"pci-{str(hca.pci).replace(':', '-').replace('.', '-')}",
        "attributes": attributes,
    }


def _place(device: Gpu | Hca) -> dict[str, Any]:
    attributes: dict[str, Any] = {f"{_STANDARD}/pciBusID": {"string": str(device.pci)}}
    if device.path is not None:
        attributes[f"{_STANDARD}/pcieRoot"] = {"string": device.path.root}
    if device.numa_node is not None:
        attributes[f"{_STANDARD}/numaNode"] = {"int": device.numa_node}
    return attributes


_IN = re.compile(r'dra\.pciBusID in \[(?P<all>[^]]*)\]|dra\.pciBusID == (?P<one>"[^"]*")')
_NODE = re.compile(r"dra\.numaNode == (?P<node>\d+)")


def taken(
    spec: Mapping[str, Any], devices: Sequence[Mapping[str, Any]], free: Collection[str]
) -> tuple[str, ...] | None:
    """Return the names of the *free* devices that a claim with one request gets."""
    (request,) = spec["devices"]["requests"]
    rules = spec["devices"].get("constraints", [])
    for each in request.get("firstAvailable") or [request["exactly"]]:
        names = {request["name"], f"{request['name']}/{each.get('name')}"}
        matched = [rule["matchAttribute"] for rule in rules if names & {*rule["requests"]}]
        fitting = [it for it in devices if it["name"] in free and _selected(each, it)]
        for chosen in combinations(fitting, each["count"]):
            if all(len({_value(it, name) for it in chosen}) == 1 for name in matched):
                return tuple(it["name"] for it in chosen)
    return None


def _selected(request: Mapping[str, Any], device: Mapping[str, Any]) -> bool:
    for selector in request.get("selectors", []):
        expression = selector["cel"]["expression"]
        if (match := _IN.search(expression)) is not None:
            addresses = re.findall(r'"([^"]*)"', match["all"] or match["one"])
            if _value(device, f"{_STANDARD}/pciBusID") not in addresses:
                return False
        elif (match := _NODE.search(expression)) is not None:
            if _value(device, f"{_STANDARD}/numaNode") != int(match["node"]):
                return False
        else:
            raise AssertionError(f"an expression of another kind: {expression}")
    return True


def _value(device: Mapping[str, Any], name: str) -> object:
    (value,) = device["attributes"][name].values()
    found: object = value
    return found


def free_sets(devices: Sequence[Mapping[str, Any]], least: int) -> Iterator[tuple[str, ...]]:
    """Yield every set of at least *least* devices that may be free."""
    names = [it["name"] for it in devices]
    for count in range(least, len(names) + 1):
        yield from combinations(names, count)
