"""One short text of every form of file, as its tool prints it, with its name and the cure.

The texts are composed: layouts from the tools' manuals and sources, names and numbers invented.
"""

import json
from typing import NamedTuple

from nodetopo.formats.signatures import Reader
from nodetopo.machines.bundled import machine
from nodetopo.model.codec import encode
from tests.tools.bandwidth import logs
from tests.tools.importers.nccl_xml_text import DUMP
from tests.tools.importers.topo_m_text import PCI_LEGEND, TEXT

A100 = machine("dgx-a100")
KUBERNETES = (Reader.MIGRATE, Reader.OBJECTS)
"""Take any object of Kubernetes: those that say nothing to them are listed or warned of."""


class Example(NamedTuple):
    """A text, the words for it, words of the cure, and the readers that take it."""

    text: str
    what: str
    cure: str
    readers: tuple[Reader, ...] = ()


def _object(kind: str, version: str = "v1") -> str:
    return f"apiVersion: {version}\nkind: {kind}\nmetadata:\n  name: one\n"


CAPTURE = "run `nodetopo capture -o FILE` on the node"
MATRIX = "save the output of `nvidia-smi topo -m` and name it with --topo-m"
LOGS = "`nodetopo nccl check` reads the output of nccl-tests"
NVIDIA_ONLY = "nodetopo reads nodes with NVIDIA GPUs only"
P2P = " \tGPU0\tGPU1\t\n GPU0\tX\tGNS\t\n GPU1\tGNS\tX\t\n\nLegend:\n\n  X    = Self\n"
SMI_XML = "<?xml version='1.0' ?>\n<!DOCTYPE nvidia_smi_log SYSTEM 'nvsmi_device_v13.dtd'>\n"
LISTED = "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-00000000-0000-0000-0000-000000000001)\n"
NCCL = "node-a:71:71 [0] NCCL INFO Bootstrap: Using eth0:192.0.2.1<0>\n"
LSPCI = "17:00.0 3D controller: NVIDIA Corporation GH100 [H100 SXM5 80GB] (rev a1)\n"

EXAMPLES = {
    # Of nodetopo.
    "snapshot": Example(encode(A100), "a snapshot", "use --snapshot", (Reader.SNAPSHOT,)),
    "snapshot, one line": Example(
        '{"schema": "nodetopo/v1", "gpus": []}', "a snapshot", "use --snapshot", (Reader.SNAPSHOT,)
    ),
    "answer": Example(
        '{"schema": "nodetopo/nccl-check/v1", "figures": []}\n', "an answer of nodetopo", CAPTURE
    ),
    "bandwidth table": Example(
        "kind: nodetopo-bandwidth-table\nversion: 1\nunit: GB/s\n",
        "a table of measured bandwidths",
        "use --bandwidth-table",
        (Reader.TABLE,),
    ),
    # The topology, and what looks like it.
    "topo -m": Example(TEXT, "`nvidia-smi topo -m`", "use --topo-m", (Reader.TOPO_M,)),
    "topo -mp": Example(
        TEXT.replace("NV4", "PIX").partition("\nLegend")[0] + PCI_LEGEND,
        "`nvidia-smi topo -m`",
        "use --topo-m",
        (Reader.TOPO_M,),
    ),
    "topo -p2p": Example(P2P, "`nvidia-smi topo -p2p`", MATRIX),
    "AMD, types": Example(
        "       GPU0         GPU1\nGPU0   0            XGMI\nGPU1   XGMI         0\n",
        "the matrix of an AMD GPU (rocm-smi, amd-smi)",
        NVIDIA_ONLY,
    ),
    "rocm-smi": Example(
        "======= ROCm System Management Interface =======\nGPU[0]\t\t: (Topology) Numa Node: 0\n",
        "the output of rocm-smi or amd-smi",
        NVIDIA_ONLY,
    ),
    "rocm-smi, rows alone": Example(
        "GPU[0]\t\t: (Topology) Numa Node: 0\n", "the output of rocm-smi", NVIDIA_ONLY
    ),
    "ppu-smi": Example(TEXT.replace("GPU", "PPU"), "of an Alibaba PPU (ppu-smi)", NVIDIA_ONLY),
    "ppu-smi, links": Example(
        TEXT.replace("NV4", "ICN4"), "of an Alibaba PPU (ppu-smi)", NVIDIA_ONLY
    ),
    "npu-smi": Example(
        "       NPU0  NPU1\nNPU0   X  HCCS\n", "of a Huawei Ascend NPU (npu-smi)", NVIDIA_ONLY
    ),
    "xpu-smi": Example(
        "         GPU 0/0|GPU 1/0|CPU Affinity\nGPU 0/0  S      |XL8    |0-23\n",
        "of an Intel GPU (xpu-smi)",
        NVIDIA_ONLY,
    ),
    "nccl xml": Example(DUMP, "an NCCL topology", "use --nccl-xml", (Reader.NCCL_XML,)),
    "nccl graph": Example(
        '<graphs version="1"><graph id="0" pattern="4"/></graphs>',
        "an NCCL graph (NCCL_GRAPH_FILE)",
        "NCCL_TOPO_DUMP_FILE",
    ),
    "nccl graph, fenced": Example(
        '```xml\n<graphs version="1">\n</graphs>\n```\n', "an NCCL graph", "NCCL_TOPO_DUMP_FILE"
    ),
    "nvidia-smi -q -x": Example(f"{SMI_XML}<nvidia_smi_log/>\n", "`nvidia-smi -q -x`", MATRIX),
    "lstopo, XML": Example(
        "<?xml version='1.0'?>\n<!-- <nvidia_smi_log> in a comment -->\n"
        "<!DOCTYPE topology SYSTEM 'hwloc2.dtd'>\n<topology version='2.0'/>",
        "an hwloc topology (lstopo)",
        CAPTURE,
    ),
    "lstopo": Example(
        "Machine (503GB total)\n  Package L#0\n    NUMANode L#0 (P#0 251GB)\n    L3 L#0 (32MB)\n",
        "the output of `lstopo`",
        CAPTURE,
    ),
    # nvidia-smi and NCCL.
    "nvidia-smi": Example(
        "| NVIDIA-SMI 580.65.06    Driver Version: 580.65.06    CUDA Version: 13.0 |\n",
        "the output of plain `nvidia-smi`",
        MATRIX,
    ),
    "nvidia-smi -L": Example(LISTED, "the output of `nvidia-smi -L`", MATRIX),
    "nvidia-smi -q": Example(
        "\n==============NVSMI LOG==============\n\nTimestamp : Sun Nov  1 00:00:00 2026\n",
        "the output of `nvidia-smi -q`",
        MATRIX,
    ),
    "nvlink -s": Example(
        f"$ nvidia-smi nvlink -s\n{LISTED}\t Link 0: 26.562 GB/s\n",
        "the output of `nvidia-smi nvlink`",
        MATRIX,
    ),
    "nvlink -s, no link": Example(
        f"{LISTED}NVML: Unable to retrieve NVLink information as all links are inactive\n",
        "the output of `nvidia-smi nvlink`",
        MATRIX,
    ),
    "nccl info": Example(NCCL, "NCCL's own log (NCCL_DEBUG)", "NCCL_TOPO_DUMP_FILE=FILE"),
    # Bandwidth tests.
    "nccl-tests": Example(
        NCCL + logs.nccl_tests(A100, range(8), 230.0),
        "a log of nccl-tests",
        "`nodetopo nccl check FILE`",
        (Reader.LOG,),
    ),
    "nccl-tests, JSON": Example(
        json.dumps({"version": "2.17.6", "results": [], "average_bus_bandwidth": {}}),
        "a log of nccl-tests",
        "`nodetopo nccl check FILE`",
        (Reader.LOG,),
    ),
    "nvbandwidth": Example(
        logs.nvbandwidth(A100, {}, 250.0),
        "a log of nvbandwidth",
        "`nodetopo nccl check FILE`",
        (Reader.LOG,),
    ),
    "p2p test": Example(
        "[P2P (Peer-to-Peer) GPU Bandwidth Latency Test]\nDevice: 0, NVIDIA A100\n",
        "a log of p2pBandwidthLatencyTest",
        "`nodetopo nccl check FILE`",
        (Reader.LOG,),
    ),
    "perftest": Example(
        logs.perftest("mlx5_0", 190.0),
        "a log of perftest",
        "`nodetopo nccl check FILE`",
        (Reader.LOG,),
    ),
    "p2p latencies": Example(
        "P2P=Disabled Latency Matrix (us)\n   GPU     0      1\n     0   2.35  13.94\n",
        "a log of latencies",
        LOGS,
    ),
    "bandwidthTest": Example(
        "[CUDA Bandwidth Test] - Starting...\nRunning on...\n", "bandwidthTest", LOGS
    ),
    "OSU": Example("# OSU MPI-CUDA Bandwidth Test v7.4\n# Size  Bandwidth (MB/s)\n", "OSU", LOGS),
    # Tools of the host.
    "ibstat": Example(
        "CA 'mlx5_0'\n\tCA type: MT4129\n\tNumber of ports: 1\n", "`ibstat`", CAPTURE
    ),
    "ibstatus": Example(
        "Infiniband device 'mlx5_0' port 1 status:\n\tbase lid:\t 0x1\n", "`ibstatus`", CAPTURE
    ),
    "ibv_devinfo": Example(
        "hca_id:\tmlx5_0\n\ttransport:\t\t\tInfiniBand (0)\n", "`ibv_devinfo`", CAPTURE
    ),
    "ibdev2netdev": Example("mlx5_0 port 1 ==> ibs1 (Up)\n", "`ibdev2netdev`", CAPTURE),
    "rdma link": Example(
        "link mlx5_0/1 state ACTIVE physical_state LINK_UP netdev eth2\n", "`rdma link`", CAPTURE
    ),
    "lspci": Example(LSPCI, "the output of `lspci`", CAPTURE),
    "lspci -nn": Example(
        LSPCI.replace("controller", "controller [0302]"), "the output of `lspci`", CAPTURE
    ),
    "lspci -n": Example("17:00.0 0302: 10de:2330 (rev a1)\n", "the output of `lspci`", CAPTURE),
    "lspci -vmm": Example(
        "Slot:\t17:00.0\nClass:\t3D controller\nVendor:\tNVIDIA Corporation\n", "`lspci`", CAPTURE
    ),
    "lspci -vvv": Example(
        f"{LSPCI}\tSubsystem: NVIDIA Corporation Device 16c1\n\tNUMA node: 0\n", "`lspci`", CAPTURE
    ),
    "lspci -tv": Example(
        "-+-[0000:00]-+-00.0  Intel Corporation Device 09a2\n"
        " \\-[0000:15]---01.0-[16]----00.0  NVIDIA Corporation GH100\n",
        "the output of `lspci -t`",
        CAPTURE,
    ),
    "numactl -H": Example(
        "available: 2 nodes (0-1)\nnode 0 cpus: 0 1 2 3\nnode 0 size: 96512 MB\n",
        "the output of `numactl`",
        CAPTURE,
    ),
    "lscpu": Example(
        "Architecture:             x86_64\n  CPU op-mode(s):         32-bit, 64-bit\n"
        "NUMA node0 CPU(s):        0-31\n",
        "the output of `lscpu`",
        CAPTURE,
    ),
    # Kubernetes.
    "checkpoint": Example(
        '{"Data":{"PodDeviceEntries":null,"RegisteredDevices":{}},"Checksum":1}',
        "kubelet_internal_checkpoint",
        CAPTURE,
    ),
    "cpu state": Example(
        '{"policyName":"static","defaultCpuSet":"0-3","checksum":1}', "cpu_manager_state", CAPTURE
    ),
    "memory state": Example(
        '{"policyName":"None","machineState":{},"checksum":1}', "memory_manager_state", CAPTURE
    ),
    "configz": Example('{"kubeletconfig":{"enableServer":true}}', "/configz", CAPTURE),
    "pod resources": Example('{"pod_resources": []}', "PodResources", CAPTURE),
    "kubelet": Example(
        _object("KubeletConfiguration", "kubelet.config.k8s.io/v1beta1"),
        "a kubelet's configuration",
        CAPTURE,
        KUBERNETES,
    ),
    "node": Example(
        _object("Node"), "a Node of Kubernetes", "doctor --nodes", (Reader.NODES, *KUBERNETES)
    ),
    "nodes": Example(
        '{"apiVersion":"v1","kind":"NodeList","items":[]}',
        "a Node of Kubernetes",
        "doctor --nodes",
        (Reader.NODES, Reader.SLICES, Reader.CLAIMS, *KUBERNETES),
    ),
    "pod": Example(
        _object("Pod"), "a Pod of Kubernetes", "admit --manifest", (Reader.MANIFEST, *KUBERNETES)
    ),
    "list of pods": Example(
        '{\n "apiVersion": "v1",\n "items": [\n  {\n   "apiVersion": "v1",\n   "kind": "Pod",\n'
        '   "metadata": {"name": "one"}\n  }\n ],\n "kind": "List"\n}\n',
        "a Pod of Kubernetes",
        "admit --manifest",
        (Reader.MANIFEST, *KUBERNETES),
    ),
    "manifest": Example(
        _object("Deployment", "apps/v1"),
        "a manifest of Kubernetes",
        "`nodetopo migrate FILE`",
        (Reader.MANIFEST, *KUBERNETES),
    ),
    "slice": Example(
        _object("ResourceSlice", "resource.k8s.io/v1"),
        "a ResourceSlice of Kubernetes",
        "explain-claim --slices",
        (Reader.SLICES, *KUBERNETES),
    ),
    "claim": Example(
        _object("ResourceClaim", "resource.k8s.io/v1"),
        "a ResourceClaim of Kubernetes",
        "explain-claim --claim",
        (Reader.CLAIMS, *KUBERNETES),
    ),
    "cdi": Example(
        'cdiVersion: "0.6.0"\nkind: nvidia.com/gpu\ndevices: []\n', "a CDI specification", CAPTURE
    ),
    "plugin": Example(
        "version: v1\nsharing:\n  timeSlicing: {}\n",
        "a configuration of an NVIDIA program",
        "`nodetopo migrate FILE`",
        (Reader.MIGRATE,),
    ),
    "rdma resources": Example(
        '{"configList": [{"resourceName": "hca", "rdmaHcaMax": 8}]}',
        "a configuration of RDMA resources",
        "`nodetopo migrate FILE`",
        (Reader.MIGRATE,),
    ),
    "gfd": Example(
        "nvidia.com/gpu.count=8\nnvidia.com/gpu.product=NVIDIA-B200\n",
        "the output of GPU feature discovery",
        CAPTURE,
    ),
    "gfd, JSON": Example(
        '{\n  "nvidia.com/mig.capable": "true"\n}', "the output of GPU feature discovery", CAPTURE
    ),
    "get nodes": Example(
        "NAME    STATUS   ROLES    AGE   VERSION\nnode-a  Ready    <none>   1d    v1.36.0\n",
        "the table of `kubectl get nodes`",
        "`nodetopo doctor --nodes FILE`",
    ),
    "get pods": Example(
        "NAMESPACE  NAME  READY  STATUS   RESTARTS  AGE\na          b     1/1    Running  0   1d\n",
        "the table of `kubectl get pods`",
        "`nodetopo admit --manifest FILE`",
    ),
    "describe": Example(
        "Name:               node-a\nRoles:              <none>\nConditions:\n  Type  Status\n",
        "the output of `kubectl describe`",
        "kubectl get",
    ),
    "metrics": Example(
        "# HELP DCGM_FI_DEV_SM_CLOCK SM clock frequency\n# TYPE DCGM_FI_DEV_SM_CLOCK gauge\n",
        "metrics of Prometheus",
        CAPTURE,
    ),
}

BYTES = {
    "gzip": (b"\x1f\x8b\x08\x00\xff", "a gzip archive", "with --snapshot"),
    "zip": (b"PK\x03\x04\xff", "a zip archive", "unpack it"),
    "PNG": (b"\x89PNG\r\n\x1a\n", "an image", "give the text itself"),
    "JPEG": (b"\xff\xd8\xff\xe0", "an image", "give the text itself"),
    "PDF": (b"%PDF-1.7\n%\xe2\xe3", "a PDF", "give the text itself"),
}
"""By name: the first bytes of a file that is no text, the words for it, and of the cure."""
