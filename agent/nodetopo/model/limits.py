"""How much a document can make of one node: the limits of every reader, in one place.

A document can come from a stranger. Beyond these limits it describes no node that exists, and
what is derived from it would take minutes or gigabytes: much of that grows with the square of the
number of devices. Readers refuse it before they build anything, and name the place.

Sizes of texts are each reader's own matter, as they depend on the format.
"""

from typing import Annotated, TypeAlias

from msgspec import Struct

MAX_GPUS = 256
"""The driver numbers GPUs 0 to 247 (open-gpu-kernel-modules nv-chardev-numbers.h,
``NV_MINOR_DEVICE_NUMBER_REGULAR_MAX``). The largest nodes sold have 16."""

MAX_HCAS = 1024
"""Eight ports with 127 virtual functions each, the most that ConnectX has (NVIDIA DOCA 3.1
documentation, SR-IOV). Counts Data Direct functions, and each column of a matrix but GPUs."""

MAX_NUMA_NODES = 1024
"""Linux's ``MAX_NUMNODES`` at most: ``CONFIG_NODES_SHIFT`` is up to 10 (kernel arch/x86/Kconfig,
arch/arm64/Kconfig)."""

MAX_NUMA_NODE = (1 << 16) - 1
"""Highest number of a NUMA node; ids can be sparse (POWER9: 0, 8, 250 … 255)."""

MAX_HOPS = 64
"""Functions on the way from a host bridge to a device. Four cascaded switches make ten; a PCI
domain has 256 buses, one below each bridge."""

MAX_CPUS = 1 << 16
"""CPU numbers are below it; Linux's ``NR_CPUS`` is at most 8192 (kernel arch/x86/Kconfig)."""

MAX_LISTED_CPUS = 1 << 18
"""CPUs in all the different lists of one document. A machine of 8192 CPUs lists each some five
times: online, by core, cache, socket and node. Each costs some 80 bytes of memory."""

MAX_INDEX = 9999
"""Highest index of a GPU: nvidia-smi's ``GPU<index>``, of at most four digits."""

MAX_NVLINKS = 64
"""Of one GPU; 18 is the most so far (nvml.h ``NVML_NVLINK_MAX_LINKS``)."""

MAX_PAIRED_LINKS = 999
"""In a cell of a matrix, ``NV18``: three digits."""

MAX_PORTS = 255
"""Of an HCA; the kernel counts ports from 1 (include/rdma/ib_verbs.h, at most 254)."""

MAX_SPEED_MBPS = 1 << 30
"""Megabits or megabytes per second of one link: a petabit. The fastest port has 800,000."""

MAX_LANES = 255
"""Of a PCIe link; the widest has 32, and sysfs writes 255 where it does not know."""

MAX_PAYLOAD_BYTES = 4096
"""Of a PCIe packet (PCI Express Base Specification, device control, bits 7:5 and 14:12)."""

MAX_PCI_CONTROL = (1 << 16) - 1
"""A 16-bit control register of PCI Express, such as ACS's."""

MAX_MIB = 1 << 44
"""16 EiB: what an address of 64 bits reaches."""

MAX_INT64 = (1 << 63) - 1
"""Bytes and amounts, as Kubernetes counts them (k8s.io/apimachinery ``resource.Quantity``)."""

MAX_UINT64 = (1 << 64) - 1
"""Any other whole number: the largest that NVML, sysfs or a checkpoint of the kubelet holds."""

MAX_NUMBER = 1e15
"""Any other number with a fraction, either way: seconds, of which 1e15 are 30 million years."""

MAX_ITEMS = 1 << 16
"""Any other list of a snapshot: a node has fewer CPUs."""

MAX_PAIRS = (MAX_GPUS + MAX_HCAS) * (MAX_GPUS + MAX_HCAS - 1) // 2
"""Every two of the devices of a node."""

MAX_CHARACTERS = 256 << 10
"""One text of a snapshot. The annotations of an object can have as many bytes together
(k8s.io/apimachinery ``TotalAnnotationSizeLimitB``)."""


class Range(Struct, frozen=True):
    """The whole numbers that a field can hold."""

    low: int
    high: int


class Count(Struct, frozen=True):
    """How many items a list can have."""

    least: int
    most: int


NumaId: TypeAlias = Annotated[int, Range(0, MAX_NUMA_NODE)]
NumaIds: TypeAlias = Annotated[tuple[NumaId, ...], Count(0, MAX_NUMA_NODES)]
GpuIndex: TypeAlias = Annotated[int, Range(0, MAX_INDEX)]
NvLinks: TypeAlias = Annotated[int, Range(0, MAX_NVLINKS)]
LinkNumber: TypeAlias = Annotated[int, Range(0, MAX_INDEX)]
"""An NVLink's number; a source can count the links of all GPUs together."""
Lanes: TypeAlias = Annotated[int, Range(0, MAX_LANES)]
PayloadBytes: TypeAlias = Annotated[int, Range(0, MAX_PAYLOAD_BYTES)]
PortNumber: TypeAlias = Annotated[int, Range(0, MAX_PORTS)]
SpeedMbps: TypeAlias = Annotated[int, Range(0, MAX_SPEED_MBPS)]
Mib: TypeAlias = Annotated[int, Range(0, MAX_MIB)]
Amount: TypeAlias = Annotated[int, Range(0, MAX_INT64)]
AmountOrUnlimited: TypeAlias = Annotated[int, Range(-1, MAX_INT64)]
"""-1 is no limit: as the kernel's tools, and the kubelet's ``podPidsLimit``, write it."""
