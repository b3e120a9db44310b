"""The bandwidth that NCCL assumes for each kind of link: gigabytes per second, one direction.

All values: NVIDIA/nccl 2.30.7 ``src/graph/topo.h`` and ``topo.cc``. They order NCCL's choices
and are below what links reach; docs/internals/topology.md says more.
"""

from collections.abc import Mapping
from types import MappingProxyType

from nodetopo.model.gpu import C2c, Gpu
from nodetopo.model.numa import CpuTopology
from nodetopo.model.pci import PcieLink

LOCAL = 5000.0
"""Inside a device, and to a NIC that is no PCI function (LOC_BW)."""

UNKNOWN = float("inf")
"""Unknown in the snapshot: no limit during the search for routes, ``None`` in the result."""

_NVLINK: tuple[tuple[int, float], ...] = (
    (100, 40.1),
    (90, 20.6),
    (87, 20.0),
    (86, 12.0),
    (80, 20.0),
    (70, 20.0),
    (60, 18.0),
    (0, 20.0),
)
"""From this compute capability on, per link (ncclTopoNVLinkBw); GA102 (86) has slower links."""

_PCIE_LANE: Mapping[int, float] = MappingProxyType(
    {generation: 15 * 2 ** (generation - 1) / 80 for generation in range(1, 7)},
)
"""Per lane by generation (kvDictPciGen, in 100 Mb/s: 15, 30, 60, 120, 240, 480)."""

_DEFAULT_GENERATION = 3
_DEFAULT_WIDTH = 16
"""Stands in for an unreadable speed and width (kvDictPciGen's default, ncclTopoAddPci)."""

_DEFAULT_PORT_GBPS = 10.0
"""Stands in for a missing or negative speed of a port (ncclTopoAddNet)."""

_ARCHITECTURE: Mapping[str, float] = MappingProxyType(
    {"aarch64": 6.0, "arm64": 6.0, "ppc64": 32.0, "ppc64le": 32.0},
)
"""Between two NUMA nodes, by ``uname -m`` (ARM_BW, P9_BW)."""

_AMD = 16.0
_INTEL: tuple[tuple[int, float], ...] = ((0xCF, 40.0), (0x8F, 22.0), (0x55, 10.0), (0, 6.0))
"""Between two NUMA nodes, from this model of family 6 on: Emerald Rapids, Sapphire Rapids,
Skylake; before, Broadwell (ncclTopoAddCpu, ncclTopoGetInterCpuBw)."""

_ZHAOXIN, _YONGFENG = 6.0, 9.0
_YONGFENG_MODEL = (7, 0x5B)


def nvlink(gpu: Gpu) -> float:
    capability = nccl_capability(gpu)
    if capability is None:
        return UNKNOWN
    return _from(capability, _NVLINK)


def nccl_capability(gpu: Gpu) -> int | None:
    """Return the compute capability as NCCL writes it: 90 for 9.0."""
    if gpu.compute_capability is None:
        return None
    major, minor = gpu.compute_capability
    return 10 * major + minor


def c2c(link: C2c) -> float:
    """Return the bandwidth of all chip-to-chip links of a GPU (ncclTopoAddC2c)."""
    if link.links is None or link.speed_mbps is None:
        return UNKNOWN
    return link.links * link.speed_mbps / 1000


def pcie(ends: tuple[PcieLink | None, ...]) -> float:
    """Return the bandwidth of a PCIe link by the best that both *ends* support.

    NCCL 2.30.7 takes a GPU's current generation instead. GPUs slow down their links when idle,
    which is when an agent reads them; NCCL reads them when they are busy.

    Args:
        ends: an empty record where sysfs has no speed (virtual machines), which counts as
            NCCL counts it; ``None`` for an end that was not read. ``UNKNOWN`` if neither was.
    """
    known = [end for end in ends if end is not None]
    if not known:
        return UNKNOWN
    generations = [g for end in known if (g := end.max_generation or end.generation)]
    widths = [w for end in known if (w := end.max_width or end.width)]
    generation = min(generations, default=_DEFAULT_GENERATION)
    per_lane = _PCIE_LANE.get(generation, _PCIE_LANE[_DEFAULT_GENERATION])
    return per_lane * min(widths, default=_DEFAULT_WIDTH)


def port(rate_gbps: float | None) -> float:
    """Return the bandwidth of a network port of *rate_gbps* gigabits per second."""
    if rate_gbps is None:
        return UNKNOWN
    return (rate_gbps if rate_gbps > 0 else _DEFAULT_PORT_GBPS) / 8


def between_cpus(machine: str | None, cpu: CpuTopology | None) -> float:
    """Return the bandwidth between two NUMA nodes.

    Args:
        machine: ``uname -m``; unknown counts as x86 if the CPU's vendor makes only those.
        cpu: vendor, family and model as ``/proc/cpuinfo`` has them.
    """
    if machine is not None and machine in _ARCHITECTURE:
        return _ARCHITECTURE[machine]
    vendor = None if cpu is None else cpu.vendor
    if cpu is None or vendor is None:
        return UNKNOWN
    if vendor == "AuthenticAMD":
        return _AMD
    if vendor in ("CentaurHauls", "  Shanghai  ", "Shanghai"):
        return _YONGFENG if (cpu.family, cpu.model_number) == _YONGFENG_MODEL else _ZHAOXIN
    if vendor != "GenuineIntel":
        return LOCAL
    if cpu.family is None or cpu.model_number is None:
        return UNKNOWN
    model = cpu.model_number if cpu.family == 6 else 0
    return _from(model, _INTEL)


def _from(number: int, table: tuple[tuple[int, float], ...]) -> float:
    """Return the value of the highest threshold that *number* reaches, or the last value."""
    return next((value for threshold, value in table if number >= threshold), table[-1][1])
