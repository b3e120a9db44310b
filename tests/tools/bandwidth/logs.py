"""Logs as nccl-tests, perftest, nvbandwidth and cuda-samples print them, made for a machine.

The layouts are those of NVIDIA/nccl-tests ``src/util.cu`` and ``src/common.cu``,
linux-rdma/perftest ``src/perftest_parameters.c``, NVIDIA/nvbandwidth ``output.cpp`` and
``json_output.cpp``.
"""

import json
from collections.abc import Sequence

from nodetopo.model.snapshot import Snapshot

GIB = 1 << 30


def nccl_tests(
    snapshot: Snapshot,
    gpus: Sequence[int],
    busbw: float,
    *,
    test: str = "all_reduce_perf",
    hosts: Sequence[str] = ("node-a",),
    largest: int = 8 * GIB,
    wrong: int = 0,
    layout: str = "new",
    tail: str = "",
) -> str:
    """Return a log of *test* on *gpus* of each host, which reaches *busbw* at its largest message.

    Args:
        layout: ``new`` is 2.17 and later, ``middle`` 2.10 to 2.13 (bus alone, no name), ``old``
            2.0 (no group, no root, ``error``).
    """
    lines = []
    if layout == "new":
        lines += ["# nccl-tests version 2.17.6 nccl-headers=22807 nccl-library=22807"]
        lines += [f"# Collective test starting: {test}"]
    lines += [
        f"# nThread 1 nGpus 1 minBytes 1024 maxBytes {largest} step: 2(factor) warmup iters: 5"
    ]
    lines += ["#", "# Using devices"]
    addresses = {gpu.index: gpu.pci for gpu in snapshot.gpus}
    rank = 0
    for host in hosts:
        for number, index in enumerate(gpus):
            pci = addresses[index]
            assert pci is not None
            where = f"0x{pci.bus:02x}"
            group = "" if layout == "old" else "Group  0 "
            if layout == "new":
                where = f"{pci.domain:04x}:{pci.bus:02x}:{pci.device:02x}"
            lines.append(
                f"#  Rank {rank:2} {group}Pid {4000 + rank:6} on {host:>10} device {number:2} "
                f"[{where}] NVIDIA H100 80GB HBM3"
            )
            rank += 1
    count = len(gpus) * len(hosts)
    lines.append("#")
    if layout == "old":
        half = "  time   algbw   busbw  error"
        lines.append(f"#       size         count      type   redop  {half}   {half}")
    else:
        half = "  time   algbw   busbw #wrong"
        lines.append(f"#       size         count      type   redop    root   {half}   {half}")
    lines.append("#        (B)    (elements)                               (us)  (GB/s)  (GB/s)")
    factor = (2 * (count - 1) / count if test == "all_reduce_perf" else 0) or 1.0
    for size, share in ((1024, 0.001), (largest // 4, 0.9), (largest, 1.0)):
        root = "" if layout == "old" else "      -1"
        bad = "0e+00" if layout == "old" else str(wrong)
        cells = ""
        for part in (share, share * 0.99):
            cells += f"  {100.5:7}  {busbw * part / factor:6.2f}  {busbw * part:6.2f}  {bad:>6}"
        lines.append(f"{size:12}  {size // 4:12}     float     sum{root}{cells}")
    lines.append(f"# Out of bounds values : {wrong} {'FAILED' if wrong else 'OK'}")
    lines.append(f"# Avg bus bandwidth    : {busbw / 2:g} ")
    return "\n".join(lines) + f"\n{tail}"


def without_ranks(text: str, *ranks: int) -> str:
    """Return *text* without the lines of *ranks*, as a terminal that scrolled leaves it."""
    return "".join(
        line
        for line in text.splitlines(keepends=True)
        if not any(f"#  Rank {rank:2} " in line for rank in ranks)
    )


def nccl_json(snapshot: Snapshot, gpus: Sequence[int], busbw: float) -> str:
    """Return what ``-J`` writes."""
    addresses = {gpu.index: gpu.pci for gpu in snapshot.gpus}
    devices = [
        {
            "rank": rank,
            "group": 0,
            "pid": 7,
            "hostname": "node-a",
            "device": rank,
            "device_hex": str(addresses[index])[:-2],
            "device_info": "NVIDIA H100 80GB HBM3",
        }
        for rank, index in enumerate(gpus)
    ]
    half = {"time": 12.0, "alg_bw": busbw / 2, "bus_bw": busbw, "nwrong": 0.0}
    row = {"size": GIB, "count": GIB // 4, "type": "float", "redop": "sum", "root": "    -1"}
    return json.dumps(
        {
            "version": 1,
            "args": ["./all_reduce_perf", "-J", "report.json"],
            "config": {"nthreads": 1, "devices": devices},
            "results": [{**row, "out_of_place": half, "in_place": half}],
            "out_of_bounds": {"count": 0, "okay": True},
            "average_bus_bandwidth": {"bandwidth": busbw},
        }
    )


def perftest(
    hca: str,
    average: float,
    *,
    gpu: str | None = None,
    unit: str = "Gb",
    test: str = "RDMA_Write BW",
    size: int = 65536,
) -> str:
    """Return a log of ``ib_write_bw``; *gpu* is ``bus:device`` of a GPU whose memory it uses."""
    lines = []
    if gpu is not None:
        lines += ["initializing CUDA", "Listing all CUDA devices in system:"]
        lines += ["CUDA device 0: PCIe address is FE:00", f"CUDA device 1: PCIe address is {gpu}"]
        lines += ["", "Picking device No. 1", "[pid = 36, dev = 1] device name = [NVIDIA H100]"]
    rule = "-" * 87
    lines += [rule, f"                    {test} Test"]
    lines += [f" Dual-port       : OFF\t\tDevice         : {hca}"]
    lines += [" Number of qps   : 1\t\tTransport type : IB", " Mtu             : 4096[B]"]
    lines += [rule, " local address: LID 0x01 QPN 0x0c2b PSN 0x1f4a RKey 0x1 VAddr 0x7f1", rule]
    lines += [
        f" #bytes     #iterations    BW peak[{unit}/sec]    BW average[{unit}/sec]   MsgRate[Mpps]"
    ]
    lines += [
        f" {size:<7}    5000             {average + 1:<7.2f}            {average:<7.2f}\t\t     0.7"
    ]
    return "\n".join([*lines, rule, ""])


def nvbandwidth(
    snapshot: Snapshot,
    pairs: dict[tuple[int, int], float],
    default: float,
    *,
    host: float | None = None,
    has_addresses: bool = True,
) -> str:
    """Return the text of two tests; *pairs* have a bandwidth of their own, all others *default*."""
    lines = ["nvbandwidth Version: v0.8", "Built from Git version: v0.8", ""]
    lines += ["CUDA Runtime Version: 12080", "Driver Version: 570.124.06", "", "node-a"]
    for gpu in snapshot.gpus:
        where = f" ({gpu.pci.domain:08x}:{str(gpu.pci)[5:10]})" if gpu.pci and has_addresses else ""
        lines.append(f"Device {gpu.index}: NVIDIA H100 80GB HBM3{where}")
    indices = [gpu.index for gpu in snapshot.gpus]
    head = "  " + "".join(f"{index:>10}" for index in indices)
    if host is not None:
        lines += ["", "Running host_to_device_memcpy_ce."]
        lines += ["memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)", head]
        lines += [" 0" + "".join(f"{host:10.2f}" for _ in indices), ""]
        lines += [f"SUM host_to_device_memcpy_ce {host * len(indices):.2f}"]
    lines += ["", "Running device_to_device_memcpy_write_ce."]
    lines += ["memcpy CE GPU(row) <- GPU(column) bandwidth (GB/s)", head]
    for a in indices:
        cells = "".join(
            "       N/A" if a == b else f"{pairs.get((a, b), default):10.2f}" for b in indices
        )
        lines.append(f"{a:2}{cells}")
    lines += ["", "SUM device_to_device_memcpy_write_ce 12345.00", ""]
    lines += ["Running device_to_device_latency_sm."]
    lines += ["Device to Device Latency SM GPU(row) <-> GPU(column) (ns)", head]
    lines += [f" 0{'    600.00' * len(indices)}", "", "SUM device_to_device_latency_sm 1.00", ""]
    return "\n".join(lines)


def nvbandwidth_json(snapshot: Snapshot, default: float) -> str:
    """Return the same pairs as ``--json`` prints them."""
    indices = [gpu.index for gpu in snapshot.gpus]
    listed = [
        f"{gpu.index}: NVIDIA H100 ({gpu.pci.domain:08x}:{str(gpu.pci)[5:10]}): (node-a)"
        for gpu in snapshot.gpus
        if gpu.pci
    ]
    rows = [["N/A" if a == b else f"{default}" for b in indices] for a in indices]
    case = {
        "name": "device_to_device_memcpy_read_ce",
        "status": "Passed",
        "bandwidth_description": "memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)",
        "bandwidth_matrix": rows,
        "sum": 1.0,
    }
    waived = {"name": "multinode_device_to_device_memcpy_read_ce", "status": "Waived"}
    report = {"version": "v0.8", "GPU Device list": listed, "testcases": [waived, case]}
    return json.dumps({"nvbandwidth": report})


def p2p_test(snapshot: Snapshot, width: float) -> str:
    """Return what p2pBandwidthLatencyTest of cuda-samples prints."""
    lines = ["[P2P (Peer-to-Peer) GPU Bandwidth Latency Test]"]
    for gpu in snapshot.gpus:
        assert gpu.pci is not None
        lines.append(
            f"Device: {gpu.index}, NVIDIA H100, pciBusID: {gpu.pci.bus:x}, "
            f"pciDeviceID: {gpu.pci.device:x}, pciDomainID:{gpu.pci.domain:x}"
        )
    indices = [gpu.index for gpu in snapshot.gpus]
    lines += ["", "P2P Connectivity Matrix", "     D\\D     0     1", "     0\t     1     1"]
    for title, share in (
        ("Unidirectional P2P=Disabled Bandwidth Matrix (GB/s)", 0.1),
        ("Unidirectional P2P=Enabled Bandwidth (P2P Writes) Matrix (GB/s)", 1.0),
        ("Bidirectional P2P=Enabled Bandwidth Matrix (GB/s)", 2.0),
        ("P2P=Enabled Latency (P2P Writes) Matrix (us)", 0.01),
    ):
        lines += [title, "   D\\D" + "".join(f"{index:6} " for index in indices)]
        for a in indices:
            cells = "".join(f"{2500.0 if a == b else width * share:6.2f} " for b in indices)
            lines.append(f"{a:6} {cells}")
    return "\n".join([*lines, ""])
