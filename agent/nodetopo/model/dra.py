"""Dynamic Resource Allocation (DRA): what drivers publish for a node, and what claims got of it.

Sources: k8s.io/api v0.36 ``resource/v1`` types.go (ResourceSlice, Device), and the kubelet's
PodResources API (``DynamicResource``).
"""

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import TypeAlias

from msgspec import Struct, field

API = "/apis/resource.k8s.io/v1"
"""The API since Kubernetes 1.34; earlier releases serve only beta versions, which differ."""

SLICES = f"{API}/resourceslices"
"""Where ResourceSlices are; they have no namespace."""

DRIVER = "nodetopo.io"
"""Our own driver, and the domain of the attributes that it publishes."""

STANDARD = "resource.kubernetes.io"
"""The domain of attributes that all drivers use alike (k8s.io/dynamic-resource-allocation
``deviceattribute``)."""

PCI_BUS_ID = f"{STANDARD}/pciBusID"
PCIE_ROOT = f"{STANDARD}/pcieRoot"
NUMA_NODE = f"{STANDARD}/numaNode"

NVIDIA_DRIVER = "gpu.nvidia.com"
"""NVIDIA's driver of GPUs and MIG devices (kubernetes-sigs/dra-driver-nvidia-gpu)."""


DeviceKey: TypeAlias = tuple[str, str, str]
"""A claim's name of a device: driver, pool and device."""


def best_mark(size: int) -> str:
    """Return the attribute of :data:`DRIVER` that only the best *size* free GPUs of a node have."""
    return f"best{size}"


class PublishedDevice(Struct, frozen=True, kw_only=True):
    """One device of a ResourceSlice."""

    # driver, pool, name: together, these name it in claims
    driver: str
    pool: str
    name: str
    # By full name (`resource.kubernetes.io/pciBusID`); an attribute without a domain belongs to the
    # driver's. Numbers, truth values and lists are as JSON writes them; `values` takes lists apart.
    attributes: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    counters: tuple[str, ...] = ()  # shared ones that it consumes, as <set>/<counter>, sorted
    taints: tuple[str, ...] = ()  # as <key>=<value>:<effect>, in the slice's order
    # Quantities by full name, as the slice has them.
    capacity: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    is_shared: bool = False  # several claims can have shares of it (`allowMultipleAllocations`)

    @property
    def key(self) -> DeviceKey:
        """The name that claims use."""
        return self.driver, self.pool, self.name

    def values(self, name: str) -> tuple[str, ...]:
        """Return the values of the attribute *name*: one or a list's; empty without it.

        Lists are alpha since Kubernetes 1.36 (KEP-6072, gate ``DRAListTypeAttributes``): devices
        are equal in an attribute if their lists have a value in common, and a single value counts
        as a list of one.
        """
        text = self.attributes.get(name)
        listed = _listed(text)
        if listed is None:
            return () if text is None else (text,)
        return tuple(it if isinstance(it, str) else json.dumps(it) for it in listed)

    def is_list(self, name: str) -> bool:
        """Return whether the attribute *name* is a list."""
        return _listed(self.attributes.get(name)) is not None


def _listed(text: str | None) -> list[object] | None:
    """Return the values of a list; ``None`` for an attribute of one value, or none."""
    try:
        found = json.loads(text) if text is not None and text.startswith("[") else None
    except ValueError:
        return None
    return found if isinstance(found, list) else None


class PublishedPool(Struct, frozen=True, kw_only=True):
    """A pool of devices, by the slices of its newest generation.

    The scheduler allocates nothing of a pool that lacks slices (k8s.io/dynamic-resource-allocation
    v0.36.3 ``structured``).
    """

    # driver, name: together, these name it
    driver: str
    name: str
    nodes: tuple[str, ...] = ()  # its slices' `nodeName`, sorted
    # How its other slices select nodes: `allNodes`, `nodeSelector`, `perDeviceNodeSelection`;
    # sorted.
    selects_by: tuple[str, ...] = ()
    devices: int = 0  # number of devices in these slices
    slices: int = 1
    expected: int | None = None  # slices that there have to be; None where no slice says
    # Devices are in compatibility groups, which only a scheduler with the gate
    # `DRADeviceCompatibilityGroups` (alpha in 1.37) understands.
    has_groups: bool = False

    @property
    def is_complete(self) -> bool:
        """Whether all slices of the pool's newest generation are known."""
        return self.expected is None or self.slices >= self.expected

    @property
    def title(self) -> str:
        """The pool's name for people."""
        return f"the pool {self.name} of {self.driver}"


class ClaimedDevice(Struct, frozen=True, kw_only=True):
    """One device that a container has by a ResourceClaim (PodResources ``DynamicResource``)."""

    driver: str
    pool: str
    name: str
    # namespace, claim: of the ResourceClaim
    namespace: str
    claim: str
    cdi_devices: tuple[str, ...] = ()  # what its driver handed to the container runtime

    @property
    def key(self) -> DeviceKey:
        """The same as :attr:`PublishedDevice.key` of the device."""
        return self.driver, self.pool, self.name
