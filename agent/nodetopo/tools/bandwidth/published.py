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
SUPERBENCH = "microsoft/superbenchmark's test data"
DRANET = "dranet's measurements"
NCCL_TESTS_212 = "NVIDIA/nccl-tests issue 212"

NVLINK = Range(0.82, 0.92)
"""Of the payload rate, by copies between two GPUs: 276 of 300 on A100, 371 to 380 and up to 396 of
450 on H100 and H200 (nvbandwidth README; nccl issue 1264; ml-engineering)."""

NVLINK_OF: Mapping[str, Range] = MappingProxyType(
    {"volta": Range(0.85, 0.97), "ampere": Range(0.85, 0.92)},
)
"""The same where an architecture is known to differ. A V100 copies 24.2 over one link of 25 and
48.3 over two: p2pBandwidthLatencyTest on a DGX-1; no page of NVIDIA states it."""

PCIE = 0.87
"""Of the rate after line code: 26.0 of 31.5 in generation 4, 55.4 of 63.0 in generation 5
(nvbandwidth README; ml-engineering)."""

NIC = Range(0.95, 0.99)
"""Of the line rate of a port, one way: Azure's gate for 400 Gb/s is 380, and NVIDIA
names 48 to 49 GB/s of a ConnectX-7 (nccl-tests issue 267)."""

BOTH_WAYS = 0.95
"""Of twice one way: the low end of tests in both directions at once. A judgement, as nothing is
published; the acknowledgements of one direction travel with the data of the other."""

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
        "hopper": Range(0.80, 0.83),
        "blackwell": Range(0.75, 0.76),
    },
)
"""The same over NVSwitches, by architecture: 228 to 235 of 300, 364 to 370 of 450, 680 of 900
(Azure; superbenchmark's test data; nccl-tests issues 149 and 212; ml-engineering)."""

NVLS: Mapping[str, float] = MappingProxyType({"hopper": 1.07, "blackwell": 0.94})
"""Highest share of an all_reduce that the switches sum: 480 of 450, 846 of 900 (ml-engineering)."""

ALLTOALL: Mapping[str, Range] = MappingProxyType(
    {"ampere": Range(0.75, 0.79), "hopper": Range(0.75, 0.83)},
)
"""Of an alltoall over NVSwitches: 226 of 300 on A100 (superbenchmark's test data). Of H100 only the
high end is published, 370 of 450 (nccl-tests issue 212); the low end is A100's share."""

SWITCHED_SIZE = 1 << 30
"""Bytes of a message from which a low figure over NVSwitches shows a fault. A judgement: 256 MiB is
too small for the peak of H100 (nccl-tests issue 212), and half of the peak's shortfall is gone at
four times that."""

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
    """All_reduce among eight GPUs behind NVSwitches: the measured figures, and the gate."""

    low: float
    high: float
    gate: float
    source: str


WHOLE_NODE: Mapping[tuple[str, int], Whole] = MappingProxyType(
    {
        ("ampere", 12): Whole(
            230.0, 236.0, 228.0, f"{AZURE}; {ML_ENGINEERING}; {SUPERBENCH}; nccl-tests issue 149"
        ),
        ("hopper", 18): Whole(
            475.0, 480.0, 460.0, f"{AZURE}; {ML_ENGINEERING}; nccl-tests issues 272 and 290"
        ),
        # No gate is published: it is the bandwidth of rings alone.
        ("blackwell", 18): Whole(846.0, 846.0, 680.0, ML_ENGINEERING),
    },
)
"""By architecture and NVLinks of a GPU; with NVLS from Hopper on. NVIDIA calls 475 of H200 and 476
of H100 expected (nccl-tests issues 272 and 290)."""

WHOLE_NODE_GATE_H200 = 431.0
"""The gate of H200 (Azure)."""

WHOLE_NODE_SIZE = 16 << 30
"""Bytes of the message that Azure's gates and ml-engineering's figures are of."""

WHOLE_NODE_GPUS = 8

HOST_GATES: Mapping[int, float] = MappingProxyType({3: 9.0, 4: 21.0, 5: 48.0})
"""Copies between host and GPU over 16 lanes, by PCIe generation (Azure)."""

NIC_GATES: Mapping[float, float] = MappingProxyType({200.0: 180.0, 400.0: 380.0})
"""Gb/s of RDMA writes from GPU memory behind the same switch, by the port's rate (Azure)."""

NIC_GATE_H200 = 360.0
"""Gb/s of a 400 Gb/s port next to an H200 (Azure)."""

NIC_GATE_SHARE = 0.9
"""Of the line rate for other rates, the lower of the two that Azure's gates are."""


def nvlink(architecture: str | None) -> Range:
    """Return the share of the payload that copies reach over NVLinks of *architecture*."""
    return NVLINK_OF.get(architecture or "", NVLINK)
