"""ResourceSlices of one machine, as releases of DRA drivers publish them.

Each function names where its facts stand in the driver's source. GPUs come in a random order, as
NVIDIA's driver ranges over a map.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from random import Random
from typing import Any, Literal

import yaml

from nodetopo.model.pci import PciPath
from nodetopo.model.snapshot import Snapshot

Json = dict[str, Any]

_ROOT = Path(__file__).parents[4]

_STANDARD = "resource.kubernetes.io"

Nvidia = Literal["v0.4.1", "main", "main, lists"]
Dranet = Literal["v1.3.0", "v1.4.0", "main", "main, lists"]
Cpus = Literal["v0.2.0", "main"]
Mode = Literal["individual", "numanode", "socket", "machine"]

NVIDIA: tuple[Nvidia, ...] = ("v0.4.1", "main", "main, lists")
DRANET: tuple[Dranet, ...] = ("v1.3.0", "v1.4.0", "main", "main, lists")

NVIDIA_CLASS: Json = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceClass",
    "metadata": {"name": "gpu.nvidia.com"},
    "spec": {
        "selectors": [
            {
                "cel": {
                    "expression": "device.driver == 'gpu.nvidia.com' && "
                    "device.attributes['gpu.nvidia.com'].type == 'gpu'"
                }
            }
        ]
    },
}
"""dra-driver-nvidia-gpu main (August 2026) ``deviceclass-gpu.yaml`` of its chart."""

CPU_CLASS: Json = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceClass",
    "metadata": {"name": "dra.cpu"},
    "spec": {"selectors": [{"cel": {"expression": 'device.driver == "dra.cpu"'}}]},
}
"""dra-driver-cpu v0.2.0 ``manifests/base/deviceclass-dracpu.part.yaml``."""

CHANNEL_CLASS: Json = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceClass",
    "metadata": {"name": "compute-domain-default-channel.nvidia.com"},
    "spec": {
        "selectors": [
            {
                "cel": {
                    "expression": "device.driver == 'compute-domain.nvidia.com' && "
                    "device.attributes['compute-domain.nvidia.com'].type == 'channel' && "
                    "device.attributes['compute-domain.nvidia.com'].id == 0"
                }
            }
        ]
    },
}
"""dra-driver-nvidia-gpu main (August 2026) ``deviceclass-compute-domain-default-channel.yaml``."""


def nvidia_gpus(machine: Snapshot, node: str, release: Nvidia, *, seed: int = 0) -> Json:
    """Return the slice of NVIDIA's driver of GPUs.

    ``cmd/gpu-kubelet-plugin/deviceinfo.go``: v0.4.1 has ``pciBusID`` and ``pcieRoot``, main (August
    2026) also ``numaNode``, as a list of one with its gate ``DRAListTypeAttributes``. Devices are
    named after the minor number.
    """
    devices = []
    for gpu in machine.gpus:
        attributes = {
            "type": {"string": "gpu"},
            "uuid": {"string": gpu.uuid},
            "productName": {"string": gpu.product},
            "brand": {"string": "Nvidia"},
            "architecture": {"string": gpu.architecture or "Hopper"},
            "cudaComputeCapability": {"version": "9.0.0"},
            "cudaDriverVersion": {"version": "13.0.0"},
            "driverVersion": {"version": "580.95.5"},
            f"{_STANDARD}/pciBusID": {"string": str(gpu.pci)},
            **_root(gpu.path),
        }
        if release != "v0.4.1":
            attributes |= _numa_node(gpu.numa_node, release)
        memory = {"memory": {"value": f"{gpu.memory_mib or 81920}Mi"}}
        devices.append({"name": f"gpu-{gpu.index}", "attributes": attributes, "capacity": memory})
    Random(seed).shuffle(devices)
    return _slice(node, "gpu.nvidia.com", devices)


def dranet(machine: Snapshot, node: str, release: Dranet) -> Json:
    """Return the slice of dranet: the RDMA NICs of *machine*, and an interface without hardware.

    ``pkg/inventory/db.go`` and ``pkg/apis/attributes.go``: v1.3.0 and v1.4.0 have the standard
    ``pcieRoot`` and their own ``dra.net/numaNode``; main (August 2026) adds the standard
    ``numaNode``, with its gate ``DRAListTypeAttributes`` as a list. None has ``pciBusID``.
    """
    devices: list[Json] = [
        {"name": "net-bond0", "attributes": {"dra.net/rdma": {"bool": False}}},
    ]
    for hca in machine.hcas or ():
        attributes: Json = {
            "dra.net/pciAddress": {"string": str(hca.pci)},
            "dra.net/rdma": {"bool": True},
            "dra.net/rdmaDevice": {"string": hca.name},
            **_root(hca.path),
        }
        if hca.numa_node is not None:
            attributes["dra.net/numaNode"] = {"int": hca.numa_node}
        if release in {"main", "main, lists"}:
            attributes |= _numa_node(hca.numa_node, release)
        name = f"pci-{str(hca.pci).replace(':', '-').replace('.', '-')}"
        devices.append({"name": name, "attributes": attributes})
    return _slice(node, "dra.net", devices)


def cpus(machine: Snapshot, node: str, release: Cpus, mode: Mode) -> Json:
    """Return the slice of dra-driver-cpu.

    v0.2.0 ``pkg/driver/dra_hooks.go`` has ``dra.cpu/numaNodeID`` and ``dra.net/numaNode``, main
    (August 2026) ``pkg/device/builder.go`` the standard ``numaNode`` too. Mode ``individual`` has a
    device for each CPU; the others have one for each NUMA node (the default), each socket or the
    machine, whose CPUs claims share. Here a socket is a NUMA node, and no CPU is reserved.
    """
    sets = {each.id: each.cpus for each in machine.numa_nodes or () if len(each.cpus)}
    devices: list[Json] = []
    if mode == "individual":
        numbered = ((cpu, number) for number, its in sets.items() for cpu in its)
        for cpu, number in sorted(numbered):
            own = {"dra.cpu/cpuID": {"int": cpu}, "dra.cpu/socketID": {"int": number}}
            places = {**own, **_cpu_places(number, release)}
            devices.append({"name": f"cpudev{cpu:03}", "attributes": places, "capacity": {}})
        return _slice(node, "dra.cpu", devices)
    groups: Iterable[tuple[str, int, Json]] = (
        (
            f"cpudev{'numa' if mode == 'numanode' else 'socket'}{number:03}",
            len(its),
            {
                "dra.cpu/socketID": {"int": number},
                **(_cpu_places(number, release) if mode == "numanode" else {}),
            },
        )
        for number, its in sets.items()
    )
    if mode == "machine":
        groups = (("cpudevmachine", sum(map(len, sets.values())), {}),)
    for name, count, attributes in groups:
        devices.append(
            {
                "name": name,
                "attributes": {**attributes, "dra.cpu/numCPUs": {"int": count}},
                "capacity": {"dra.cpu/cpu": {"value": str(count)}},
                "allowMultipleAllocations": True,
            }
        )
    return _slice(node, "dra.cpu", devices)


def ours(
    machine: Snapshot, node: str, *, has_sets: bool = True, sizes: tuple[int, ...] = ()
) -> list[Json]:
    """Return the slices of our driver: sets with counters, or as before 1.37 single GPUs."""
    from nodetopo.components.dra.devices import Conditions  # noqa: PLC0415 - can be dropped
    from nodetopo.components.dra.form import Form  # noqa: PLC0415 - same
    from nodetopo.components.dra.pool import Pool  # noqa: PLC0415 - same
    from nodetopo.components.dra.slices import changes  # noqa: PLC0415 - same

    pool = Pool.of(machine, machine.gpus, form=Form(has_sets=has_sets, sizes=sizes))
    groups = pool.groups((), Conditions())
    return [dict(it) for it in changes(node, None, pool.counter_sets, groups, {}).applied]


def our_classes() -> list[Json]:
    """Return the classes of our driver, as they are installed."""
    file = _ROOT / "deploy" / "daemonset" / "components" / "dra" / "classes.yaml"
    return list(yaml.safe_load_all(file.read_text("utf-8")))


def channels(node: str, count: int = 2048) -> Json:
    """Return the slice of NVIDIA's driver of ComputeDomains.

    dra-driver-nvidia-gpu main (August 2026) ``cmd/compute-domain-kubelet-plugin``: *count* IMEX
    channels are known (2048 by default in the kernel module), of which channel 0 is published, and
    a device for the daemon; attributes are ``type`` and ``id``.
    """
    assert count > 0
    devices: list[Json] = [
        {"name": f"{kind}-0", "attributes": {"type": {"string": kind}, "id": {"int": 0}}}
        for kind in ("channel", "daemon")
    ]
    return _slice(node, "compute-domain.nvidia.com", devices)


def channel_claim() -> Json:
    """Return the spec of a claim for a channel, as the controller of ComputeDomains writes it.

    dra-driver-nvidia-gpu main (August 2026)
    ``templates/compute-domain-workload-claim-template.tmpl.yaml``.
    """
    parameters = {
        "apiVersion": "resource.nvidia.com/v1beta1",
        "kind": "ComputeDomainChannelConfig",
        "domainID": "0f4a9c0e-8a54-4a52-9df5-6b1d4a3c2e10",
        "allocationMode": "Single",
    }
    opaque = {"driver": "compute-domain.nvidia.com", "parameters": parameters}
    name = "compute-domain-default-channel.nvidia.com"
    return {
        "devices": {
            "requests": [{"name": "channel", "exactly": {"deviceClassName": name}}],
            "config": [{"requests": ["channel"], "opaque": opaque}],
        }
    }


def _slice(node: str, driver: str, devices: list[Json]) -> Json:
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{node}-{driver}"},
        "spec": {"driver": driver, "pool": pool, "nodeName": node, "devices": devices},
    }


def _root(path: PciPath | None) -> Json:
    return {} if path is None else {f"{_STANDARD}/pcieRoot": {"string": path.root}}


def _numa_node(node: int | None, release: str) -> Json:
    if node is None:
        return {}
    value = {"ints": [node]} if release.endswith("lists") else {"int": node}
    return {f"{_STANDARD}/numaNode": value}


def _cpu_places(number: int, release: Cpus) -> Json:
    own = {"dra.cpu/numaNodeID": {"int": number}, "dra.net/numaNode": {"int": number}}
    return own if release == "v0.2.0" else {**own, **_numa_node(number, release)}


def places_of(slices: Iterable[Mapping[str, Any]]) -> dict[str, int | None]:
    """Return the NUMA node of each device of *slices*, by name, whatever its driver calls it."""
    names = (f"{_STANDARD}/numaNode", "dra.net/numaNode", "dra.cpu/numaNodeID")
    found: dict[str, int | None] = {}
    for each in slices:
        for device in each["spec"]["devices"]:
            values = [device["attributes"][it] for it in names if it in device["attributes"]]
            first = values[0] if values else {}
            found[device["name"]] = first.get("int", (first.get("ints") or [None])[0])
    return found
