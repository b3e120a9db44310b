"""Devices of a ResourceSlice as JSON: GPUs, sets of GPUs, MIG devices; their counters and taints.

Fields and limits: k8s.io/api v0.36 ``resource/v1`` types.go.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType

from msgspec import Struct, field

from nodetopo.components.dra.attributes import Attributes, Json, mebibytes, value
from nodetopo.components.dra.sets import GpuSet
from nodetopo.model.dra import DRIVER, best_mark
from nodetopo.model.gpu import Gpu, MigInstance
from nodetopo.model.gpu_health import HealthView
from nodetopo.model.pci import PciAddress

GPUS = "gpus"
"""The counter set of whole GPUs. Every GPU has a counter of 1, which each device with it consumes;
``count`` counts them all, for quota by number of GPUs."""

COUNT = "count"

MOST_GPUS = 31
"""With counters: of the 32 of a set (``ResourceSliceMaxCountersPerCounterSet``) one is
:data:`COUNT`."""

MOST_MARKS = 12
"""Most attributes of :func:`marked`: a device has 32 attributes and capacities, a single GPU 18
others (``ResourceSliceMaxAttributesAndCapacitiesPerDevice``)."""

UNHEALTHY = f"{DRIVER}/unhealthy"
"""The key of the taint of devices with a GPU that is not healthy; its value is the reason."""

HELD = f"{DRIVER}/held"
"""The key of the taint of devices with a GPU that a pod has by a device plugin."""

FOREIGN = f"{DRIVER}/published-twice"
"""The key of the taint of devices with a GPU that another driver publishes; its value is that."""

_LONGEST_TAINT = 63
"""Characters of a taint's value; the limit is a label value's."""


class Conditions(Struct, frozen=True, kw_only=True):
    """The current conditions of GPUs, all by id."""

    # A missing GPU is presumed sound.
    health: HealthView = field(default_factory=lambda: MappingProxyType({}))
    # (GPU, key of the taint) → begin, RFC 3339
    since: Mapping[tuple[str, str], str] = field(default_factory=lambda: MappingProxyType({}))
    held: frozenset[str] = frozenset()  # by a device plugin
    # GPUs that another driver also publishes → its name.
    foreign: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    evicts: bool = False  # pods with an unhealthy GPU are evicted

    @property
    def barred(self) -> frozenset[str]:
        """The GPUs that no new claim can get."""
        return frozenset(gpu for gpu, _ in self.tainted)

    @property
    def tainted(self) -> frozenset[tuple[str, str]]:
        """Each condition, by GPU and key of its taint."""
        unsound = (gpu for gpu, verdict in self.health.items() if not verdict.is_healthy)
        kinds = ((UNHEALTHY, unsound), (HELD, self.held), (FOREIGN, self.foreign))
        return frozenset((gpu, key) for key, gpus in kinds for gpu in gpus)


def set_device(
    each: GpuSet, gpus: Mapping[str, Gpu], attributes: Attributes, *, is_counted: bool
) -> Json:
    """Return the device of *each*, a single GPU or a set; *gpus* are all of the node by id."""
    members = [gpus[name] for name in each.gpus]
    device: Json = {
        "name": each.name,
        "attributes": (
            attributes.of_gpu(members[0]) if each.is_single else attributes.of_set(members)
        ),
    }
    memory = [gpu.memory_mib for gpu in members]
    if None not in memory:
        device["capacity"] = {"memory": mebibytes(sum(size or 0 for size in memory))}
    return {**device, **consumption(members)} if is_counted else device


def marked(device: Json, sizes: Iterable[int]) -> Json:
    """Return *device*, a GPU, with the marks that it is one of the best for claims of *sizes*."""
    marks = {best_mark(size): {"bool": True} for size in sizes}
    return {**device, "attributes": {**device["attributes"], **marks}} if marks else device


def mig_device(gpu: Gpu, instance: MigInstance, attributes: Attributes) -> Json:
    """Return the device of a MIG device whose place on its GPU is known.

    It consumes no counter: the GPU is partitioned already, and parts do not overlap. A GPU in MIG
    mode is no device itself: a container could not compute on it.
    """
    assert gpu.pci is not None, "the caller looks"
    name = f"mig-{_dashed(gpu.pci)}-{instance.gpu_instance}-{instance.compute_instance}"
    device: Json = {"name": name, "attributes": attributes.of_mig(gpu, instance)}
    if instance.memory_mib is not None:
        device["capacity"] = {"memory": mebibytes(instance.memory_mib)}
    return device


def admin_device(gpu: Gpu, attributes: Attributes) -> Json:
    """Return the device that lets pods monitor *gpu* while others use it.

    It consumes no counter, because the allocator checks counters for claims with admin access too
    (k8s.io/dynamic-resource-allocation v0.37 ``structured``).
    """
    assert gpu.pci is not None, "the caller looks"
    return {"name": f"admin-{_dashed(gpu.pci)}", "attributes": attributes.of_admin(gpu)}


def claimed_device(name: str, gpus: Iterable[Gpu]) -> Json:
    """Return a device that only holds the counters of *gpus* for its existing claim.

    No DeviceClass selects its type, so that no other claim gets it.
    """
    attributes = {"type": {"string": "claimed"}, "gpus": {"int": 0}}
    return {"name": name, "attributes": attributes, **consumption(list(gpus))}


def counter_sets(singles: Iterable[Gpu]) -> list[Json]:
    """Return the shared counters that devices of *singles* consume."""
    counters = {counter(gpu): value(1) for gpu in singles}
    if not counters:
        return []
    return [{"name": GPUS, "counters": {COUNT: value(len(counters)), **counters}}]


def consumption(gpus: Collection[Gpu]) -> Json:
    """Return the field of a device that consumes *gpus*."""
    counters = {COUNT: value(len(gpus)), **{counter(gpu): value(1) for gpu in gpus}}
    return {"consumesCounters": [{"counterSet": GPUS, "counters": counters}]}


def counter(gpu: Gpu) -> str:
    """Return the name of the counter of a whole GPU, after its PCI address."""
    assert gpu.pci is not None, "a GPU without an address is not published"
    return f"gpu-{_dashed(gpu.pci)}"


def tainted(device: Json, gpus: Sequence[str], now: Conditions) -> Json:
    """Return *device* with the taints of its *gpus*: of each kind the one that began first."""
    taints: list[Json] = []
    conditions = now.tainted
    for key in (UNHEALTHY, HELD, FOREIGN):
        found = [gpu for gpu in gpus if (gpu, key) in conditions]
        if not found:
            continue
        gpu = min(found, key=lambda gpu: now.since.get((gpu, key), "~"))
        is_evicting = key == UNHEALTHY and now.evicts
        taint = {"key": key, "value": _taint_value(gpu, key, now)}
        taint["effect"] = "NoExecute" if is_evicting else "NoSchedule"
        if (since := now.since.get((gpu, key))) is not None:
            taint["timeAdded"] = since
        taints.append(taint)
    return {**device, "taints": taints} if taints else device


def _taint_value(gpu: str, key: str, now: Conditions) -> str:
    if key == UNHEALTHY:
        return now.health[gpu].reason or "Unknown"
    return "device-plugin" if key == HELD else _label_value(now.foreign[gpu])


def _label_value(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "-", text)[:_LONGEST_TAINT].strip("._-")


def _dashed(address: PciAddress) -> str:
    return str(address).replace(":", "-").replace(".", "-")
