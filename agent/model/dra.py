"""Dynamic Resource Allocation (DRA): what drivers publish for a node, and what claims got of it.

Sources: k8s.io/api v0.36 ``resource/v1`` types.go (ResourceSlice, Device), and the kubelet's
PodResources API (``DynamicResource``).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeAlias

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
"""What claims name a device by: driver, pool and device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedDevice:
    """One device of a ResourceSlice.

    Attributes:
        driver, pool, name: which together name it in claims.
        attributes: by full name (``resource.kubernetes.io/pciBusID``); an attribute without a
            domain belongs to the driver's. Numbers and truth values are as JSON writes them.
        counters: the shared counters that it consumes, as ``<set>/<counter>``, sorted.
        taints: as ``<key>=<value>:<effect>``, in the slice's order.
    """

    driver: str
    pool: str
    name: str
    attributes: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), hash=False)
    counters: tuple[str, ...] = ()
    taints: tuple[str, ...] = ()

    @property
    def key(self) -> DeviceKey:
        """What claims name it by."""
        return self.driver, self.pool, self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedDevice:
    """One device that a container has by a ResourceClaim (PodResources ``DynamicResource``).

    Attributes:
        namespace, claim: of the ResourceClaim.
        cdi_devices: what its driver handed to the container runtime for it.
    """

    driver: str
    pool: str
    name: str
    namespace: str
    claim: str
    cdi_devices: tuple[str, ...] = ()

    @property
    def key(self) -> DeviceKey:
        """The same as :attr:`PublishedDevice.key` of the device."""
        return self.driver, self.pool, self.name
