"""The attributes of a machine's devices that claims can use, as published by drivers.

A constraint over an attribute excludes devices that lack it, and only matches values of one name
(k8s.io/dynamic-resource-allocation v0.36.3 ``matchAttributeConstraint``). So a claim uses an
attribute only if all devices of its kind have it.

Sources, with the versions in which an attribute came:

- dra-driver-nvidia-gpu ``cmd/gpu-kubelet-plugin/deviceinfo.go``: ``pciBusID`` and ``pcieRoot`` of
  GPUs in v0.4.1; ``numaNode`` on main (v0.5.0-dev, August 2026), as a list by the gate
  ``DRAListTypeAttributes``;
- dranet ``pkg/inventory/db.go``: ``pcieRoot`` and its own ``dra.net/numaNode`` in v1.3.0 and
  v1.4.0; ``numaNode`` on main (August 2026), as a list by the same gate;
- dra-driver-cpu ``pkg/device``: ``dra.cpu/numaNodeID`` and ``dra.net/numaNode`` in v0.2.0;
  ``numaNode`` on main (August 2026). By default it publishes a device for each NUMA node, whose
  CPUs claims share; a device for each socket or machine has no NUMA node. In its mode
  ``individual`` each CPU is a device.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from msgspec import Struct, field
from msgspec.structs import replace

from nodetopo.model.digits import is_digits
from nodetopo.model.dra import (
    DRIVER,
    NUMA_NODE,
    NVIDIA_DRIVER,
    PCI_BUS_ID,
    PCIE_ROOT,
    PublishedDevice,
)

NIC_DRIVER = "dra.net"
"""dranet's driver of network devices (kubernetes-sigs/dranet)."""

CPU_DRIVER = "dra.cpu"
"""The driver of CPUs (kubernetes-sigs/dra-driver-cpu), which installs a class of the same name."""

NIC_NUMA_NODE = f"{NIC_DRIVER}/numaNode"
"""dranet's own attribute, which dra-driver-cpu publishes too."""

NUMA_NODES = (NUMA_NODE, NIC_NUMA_NODE)
"""Attributes with the NUMA node of a device, in order of preference."""

CPU_CAPACITY = f"{CPU_DRIVER}/cpu"
"""The CPUs of a device that represents many."""

_ASSUMED: Mapping[str, frozenset[str]] = {
    NVIDIA_DRIVER: frozenset({PCI_BUS_ID, PCIE_ROOT, NUMA_NODE}),
    DRIVER: frozenset({PCI_BUS_ID, PCIE_ROOT, NUMA_NODE}),
    NIC_DRIVER: frozenset({PCIE_ROOT, NIC_NUMA_NODE}),
    CPU_DRIVER: frozenset({NIC_NUMA_NODE}),
}
"""Attributes assumed without slices: those of the newest NVIDIA driver, and of the other drivers'
releases.
"""


class Drivers(Struct, frozen=True, kw_only=True):
    """Whose devices are claimed: of GPUs, and of NICs and CPUs where these are."""

    gpus: str = NVIDIA_DRIVER
    nics: str | None = None
    cpus: str | None = None


class Cpus(Struct, frozen=True, kw_only=True):
    """The CPUs published by their driver."""

    is_individual: bool = False  # each CPU is a device; else claims share devices of many CPUs
    # CPUs of each NUMA node; under None, devices without a NUMA node. Empty if unknown.
    by_node: Mapping[int | None, int] = field(default_factory=lambda: MappingProxyType({}))
    places: int = 0  # devices, or NUMA nodes if each CPU is a device; 0 if unknown
    largest: int = 0  # CPUs of the largest of them

    @property
    def mode(self) -> str:
        """The driver's word for it."""
        return "individual" if self.is_individual else "grouped"


class Offered(Struct, frozen=True, kw_only=True):
    """The attributes and features that claims can use for a shape."""

    # gpus, nics, cpus: attributes that all of these devices have
    gpus: frozenset[str]
    nics: frozenset[str] = frozenset()
    cpus: frozenset[str] = frozenset()
    # A device has its NUMA node as a list (KEP-6072). The scheduler of Kubernetes 1.36 matches
    # lists with nothing, regardless of its gates: its plugin does not pass `DRAListTypeAttributes`
    # on to the allocator (`AllocatorFeatures`); 1.37 does.
    has_lists: bool = False
    # A GPU has several NUMA nodes in a list: then GPUs on different nodes can match in `numaNode`.
    has_wide_lists: bool = False
    has_shares: bool = False  # claims share a GPU (consumable capacity), so that each gets a part
    sets: frozenset[int] | None = None  # sizes of the sets of GPUs that our driver publishes
    cores: Cpus | None = None  # None if CPUs are not claimed
    is_known: bool = True  # read from slices, not assumed

    def with_others(self, other: "Offered") -> "Offered":
        """Return the common features of both: the same machine on another node."""
        cores = self.cores
        if cores is not None and other.cores is not None:
            both = {*cores.by_node} | {*other.cores.by_node}
            least = {
                node: min(cores.by_node.get(node, 0), other.cores.by_node.get(node, 0))
                for node in both
            }
            cores = replace(
                cores,
                by_node=least,
                places=min(cores.places, other.cores.places),
                largest=min(cores.largest, other.cores.largest),
            )
        return replace(
            self,
            gpus=self.gpus & other.gpus,
            nics=self.nics & other.nics,
            cpus=self.cpus & other.cpus,
            has_lists=self.has_lists or other.has_lists,
            has_wide_lists=self.has_wide_lists or other.has_wide_lists,
            has_shares=self.has_shares or other.has_shares,
            sets=None if self.sets is None or other.sets is None else self.sets & other.sets,
            cores=cores,
        )


def assumed(drivers: Drivers) -> Offered:
    """Return the assumed features of *drivers* without their slices."""
    return Offered(
        gpus=_ASSUMED.get(drivers.gpus, frozenset({PCI_BUS_ID, PCIE_ROOT})),
        nics=_ASSUMED.get(drivers.nics or "", frozenset({PCIE_ROOT})),
        cpus=_ASSUMED.get(drivers.cpus or "", frozenset()),
        cores=None if drivers.cpus is None else Cpus(),
        is_known=False,
    )


def offered(
    gpus: Iterable[PublishedDevice],
    nics: Iterable[PublishedDevice],
    cpus: Iterable[PublishedDevice] | None,
    *,
    sets: frozenset[int],
) -> Offered:
    """Return the claimable features of one machine's devices; *cpus* are ``None`` if unwanted."""
    of_gpus, of_nics = tuple(gpus), tuple(nics)
    cores = None if cpus is None else tuple(cpus)
    return Offered(
        gpus=_common(of_gpus),
        nics=_common(of_nics),
        cpus=_common(cores or ()),
        has_lists=any(device.is_list(NUMA_NODE) for device in (*of_gpus, *of_nics, *(cores or ()))),
        has_shares=any(gpu.is_shared for gpu in of_gpus),
        has_wide_lists=any(len(gpu.values(NUMA_NODE)) > 1 for gpu in of_gpus),
        sets=sets,
        cores=None if cores is None else _cpus(cores),
    )


def numa_node_of(device: PublishedDevice) -> int | None:
    """Return the NUMA node of *device*: of a list the first, the hardware's."""
    return next(iter(numa_nodes_of(device)), None)


def numa_nodes_of(device: PublishedDevice) -> tuple[int, ...]:
    """Return the NUMA nodes that *device* is near to, by whichever attribute its driver has.

    The hardware's comes first. Empty where none is published, or one that is no node (``-1``).
    """
    own = (f"{device.driver}/numaNode", f"{device.driver}/numaNodeID")
    for name in (*NUMA_NODES, *own):
        values = device.values(name)
        if values:
            return tuple(map(int, values)) if all(map(is_digits, values)) else ()
    return ()


def _common(devices: Iterable[PublishedDevice]) -> frozenset[str]:
    names = [frozenset(device.attributes) for device in devices]
    return frozenset.intersection(*names) if names else frozenset()


def _cpus(devices: tuple[PublishedDevice, ...]) -> Cpus:
    is_individual = bool(devices) and not any(device.is_shared for device in devices)
    amounts = [_amount(device) for device in devices]
    by_node: dict[int | None, int] = {}
    for device, amount in zip(devices, amounts, strict=True):
        node = numa_node_of(device)
        by_node[node] = by_node.get(node, 0) + amount
    places = list(by_node.values()) if is_individual else amounts
    return Cpus(
        is_individual=is_individual,
        by_node=by_node,
        places=len(places),
        largest=max(places, default=0),
    )


def _amount(device: PublishedDevice) -> int:
    text = device.capacity.get(CPU_CAPACITY, "1")
    return int(text) if is_digits(text) else 0
