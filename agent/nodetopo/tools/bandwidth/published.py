"""Shares of a link's payload that programs reach, and figures that others published.

Everything is GB/s of 10^9 bytes in one direction, or a share of that. What is called a gate is the
figure below which its source calls a machine defective.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple


class Range(NamedTuple):
    """The lowest and the highest share or figure."""

    low: float
    high: float


AZURE = "Azure/azurehpc-health-checks"
NVBANDWIDTH = "NVIDIA/nvbandwidth README"
NCCL_1264 = "NVIDIA/nccl issue 1264"
ML_ENGINEERING = "stas00/ml-engineering"
DRANET = "dranet's measurements"

NVLINK = Range(0.85, 0.92)
"""Of the payload rate, by copies between two GPUs: 276 of 300 on A100, 371 to 396 of 450 on H100
and H200 (nvbandwidth README; nccl issue 1264; ml-engineering)."""

PCIE = 0.87
"""Of the rate after line code: 26.0 of 31.5 in generation 4, 55.4 of 63.0 in generation 5
(nvbandwidth README; ml-engineering)."""

NIC = 0.95
"""Of the line rate of a port: Azure's gate for 400 Gb/s is 380."""

C2C = Range(0.79, 0.85)
"""Of the payload, one direction at a time: 359 and 377 of 450 (ml-engineering, GB300)."""

THROUGH_CPU = Range(0.5, 1.0)
"""Share of the links' bandwidth through a CPU inside a socket (PHB, NODE): writes lose nothing,
reads can halve on older CPUs (Stack Overflow question 59277346; 37 of 63 through host memory, nccl
issue 1264)."""

ACROSS_SOCKETS = Range(0.15, 1.0)
"""Share of the links' bandwidth between NUMA nodes (SYS). Five publications disagree by a factor of
seven: 6.1 of 42.5 and 27.5 of 39.1 (dranet), 11 of 23 (perftest issue 241), 85 of 85 (ucx issue
11121), so it is never a single figure.
"""

ACROSS_SOCKETS_DEFAULT = 0.6
"""The value inside that range that counts where a single one is needed."""

RING = Range(0.75, 0.92)
"""Share of the payload that rings over NVLinks reach as bus bandwidth, if no figure of the product
is published: from 680 of 900 on B200 (ml-engineering) to the bandwidth of copies between two GPUs.
"""

SWITCHED: Mapping[str, Range] = MappingProxyType(
    {
        "ampere": Range(0.76, 0.79),
        "hopper": Range(0.81, 1.07),
        "blackwell": Range(0.75, 0.94),
    },
)
"""Bus bandwidth as a share of a GPU's NVLink payload, over NVSwitches, by architecture: 228 to 235
of 300; 366 by rings to 480 with NVLS of 450; 680 to 846 of 900 (Azure; ml-engineering)."""

GATE_SHARE = 0.87
"""Of the low end of the range, where no gate is published: Azure's for a pair of H100 is that share
of it, 335 of 382."""

TABLE_GATE_SHARE = 0.9
"""Share of a figure in the node's bandwidth table: below this share of its given average,
nccl-tests prints FAILED (src/util.cu, ``check_avg_bw``).
"""

WARN_SHARE = 1.05
"""Of a gate: up to there Azure's checks warn."""

PAIR_GATES: Mapping[tuple[str, int], float] = MappingProxyType(
    {("ampere", 12): 235.0, ("hopper", 18): 335.0},
)
"""Copies between two GPUs, by architecture and NVLinks (Azure)."""

BRIDGE_GATES: Mapping[tuple[str, int], float] = MappingProxyType(
    {("ampere", 12): 193.0, ("hopper", 12): 208.0},
)
"""Bus bandwidth of two cards on an NVLink bridge, by architecture and NVLinks (Azure)."""


class Whole(NamedTuple):
    """Bus bandwidth of eight GPUs behind NVSwitches: the measured figures, and the gate."""

    low: float
    high: float
    gate: float
    rings: float | None
    source: str


WHOLE_NODE: Mapping[tuple[str, int], Whole] = MappingProxyType(
    {
        ("ampere", 12): Whole(235.0, 235.0, 228.0, None, f"{AZURE}; {ML_ENGINEERING}"),
        ("hopper", 18): Whole(477.0, 480.0, 460.0, 366.0, f"{AZURE}; {ML_ENGINEERING}"),
        # No gate is published: it is the bandwidth of rings alone.
        ("blackwell", 18): Whole(846.0, 846.0, 680.0, 680.0, ML_ENGINEERING),
    },
)
"""By architecture and NVLinks of a GPU; with NVLS (in-network sums) from Hopper on."""

WHOLE_NODE_GPUS = 8

HOST_GATES: Mapping[int, float] = MappingProxyType({3: 9.0, 4: 21.0, 5: 48.0})
"""Copies between host and GPU over 16 lanes, by PCIe generation (Azure)."""

NIC_GATES: Mapping[float, float] = MappingProxyType({200.0: 180.0, 400.0: 380.0})
"""Gb/s of RDMA writes from GPU memory behind the same switch, by the port's rate (Azure)."""

NIC_GATE_H200 = 360.0
"""Gb/s of a 400 Gb/s port next to an H200 (Azure)."""

NIC_GATE_SHARE = 0.9
"""Of the line rate for other rates, the lower of the two that Azure's gates are."""
