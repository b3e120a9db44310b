"""NCCL's topology XML as a partial snapshot: a dump, or a file written by hand.

A dump (``NCCL_TOPO_DUMP_FILE``) holds the hardware of one job: GPUs with their NVLinks, the HCAs
with an active port, the switches above them, and the NUMA nodes above those. Files by hand
(``NCCL_TOPO_FILE``, e.g. of clouds that hide the PCI tree) often only hold the tree. The format
follows NCCL's xml.cc and topo.cc.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from msgspec.structs import replace

from nodetopo.errors import DecodeError
from nodetopo.formats.pasted import body
from nodetopo.model.gpu import C2c, Gpu
from nodetopo.model.hca import Hca
from nodetopo.model.limits import (
    MAX_INDEX,
    MAX_LISTED_CPUS,
    MAX_NUMA_NODE,
    MAX_NUMA_NODES,
    MAX_NVLINKS,
    MAX_SPEED_MBPS,
)
from nodetopo.model.numa import CpuSet, CpuTopology, NumaNode
from nodetopo.model.nvlink import NvLink, PeerKind
from nodetopo.model.pci import PciAddress
from nodetopo.model.probe_issue import GPUS, ProbeIssue
from nodetopo.model.snapshot import Kernel, Snapshot
from nodetopo.tools.importers.nccl_xml_devices import (
    CURE,
    Devices,
    Element,
    FoundGpu,
    TreePlace,
    cpu_mask,
    find_devices,
    number,
    peer_kind,
    read_address,
    read_function,
    read_tree,
)
from nodetopo.topology.links import loops

PROBE = "nccl-xml"

HIDDEN_TARGET = "fffffff:ffff:ff"
"""NVLink target that NCCL writes for a switch that the driver hides (NCCL xml.cc)."""

MACHINES: Mapping[str, str] = MappingProxyType(
    {"x86_64": "x86_64", "arm64": "aarch64", "ppc64": "ppc64le"},
)
"""NCCL's ``arch`` (topo.cc, ``kvDictCpuArch``) to the kernel's ``uname -m``."""

_KNOWN = frozenset(("system", "cpu", "pci", "gpu", "nvlink", "c2c", "nic", "net"))

_VERSION = 1
"""``NCCL_TOPO_XML_VERSION`` (xml.h); AMD's RCCL has separate versions."""

_FIRST = re.compile(r"<system\b")
"""The root, which a prompt, a fence or prose can precede in a paste."""

_EXTENDED = 15
"""CPUID leaf 1: the extended family counts only where the family is 15 (AMD, Intel manuals)."""

Issue = tuple[str, str]
"""Subject and reason."""


def parse_nccl_xml(text: str) -> Snapshot:
    """Return the node described by the file; unknown content becomes an issue.

    GPUs are numbered by ``dev`` if every GPU has one, else by PCI address, like NVML. A PCI path
    has one hop for each switch, and no root. NVLinks are None unless every GPU has a ``gpu``
    element; NCCL writes active ones only, so each is active. An HCA without a name is called by its
    PCI address. NUMA nodes without a device are not in the file, so ``numa_nodes`` and
    ``cpu.online`` only have nodes with devices; ``numaid`` −1 is no node. Without HCAs they are
    unknown, as a job might have used none; likewise without GPUs, with an issue (AWS's files name
    only the switches; AMD's GPUs are left out).

    Raises:
        DecodeError: not XML, not an NCCL topology, of several hosts, or with an impossible value;
            its path names the element, e.g. ``cpu[0].pci[2].busid``.
    """
    root = read_tree(body(text, _FIRST, "</system>"))
    version = _checked_version(root)
    cpus = list(root.every("cpu"))
    if len(cpus) > MAX_NUMA_NODES:
        problem = f"one more than the {MAX_NUMA_NODES} NUMA nodes that Linux has"
        raise DecodeError(cpus[MAX_NUMA_NODES].at, problem, CURE)
    nodes, node_issues = _numa_nodes(cpus)
    cpus_of_node = {node.id: node.cpus for node in nodes or ()}
    devices = Devices()
    for cpu in cpus:
        node = _numa_id(cpu)
        own = None if node is None else cpus_of_node.get(node)
        find_devices(cpu, TreePlace(numa_node=node, cpus=own, hops=()), devices)
    gpus, nvlinks, gpu_issues = _gpus_and_nvlinks(list(devices.gpus.values()))
    issues = [*_file_issues(root, version), *node_issues, *gpu_issues]
    for (subject, reason), count in sorted(devices.left_out.items()):
        issues.append((subject, f"{reason}, {count} left out"))
    for address, times in sorted(devices.seen.items()):
        if times > 1:
            issues.append((str(address), f"stands at {times} places"))
    machine = MACHINES.get(cpus[0].attributes.get("arch", ""))
    bridges = {bridge.address: bridge for bridge in reversed(devices.bridges)}
    directs = {direct.pci: direct for direct in reversed(devices.data_directs) if direct.pci}
    return Snapshot(
        kernel=None if machine is None else Kernel(machine=machine),
        gpus=gpus,
        nvlinks=nvlinks,
        bridges=tuple(bridges[address] for address in sorted(bridges)) or None,
        numa_nodes=nodes,
        cpu=None if nodes is None else _cpu(cpus[0], nodes),
        hcas=_hcas(devices) or None,
        data_directs=tuple(directs[address] for address in sorted(directs)) or None,
        issues=tuple(
            ProbeIssue(probe=PROBE, subject=subject, reason=reason) for subject, reason in issues
        ),
    )


def _checked_version(root: Element) -> int:
    """Return the version of an NCCL topology of one host."""
    if root.tag != "system":
        raise DecodeError("", f"this is a document of another kind, {root.tag[:40]!r}", CURE)
    version = number(root, "version", 0, 1 << 16)
    if version is None:
        raise DecodeError("version", "missing", CURE)
    hosts = {cpu.attributes.get("host_hash") for cpu in root.every("cpu")}
    if len(hosts) > 1:
        cure = "run NCCL on one node alone to dump its topology"
        raise DecodeError("", f"the topology of {len(hosts)} hosts in one", cure)
    if root.first("cpu") is None:
        raise DecodeError("", "holds no cpu element", CURE)
    return version


def _file_issues(root: Element, version: int) -> Iterator[Issue]:
    """Yield an issue for another version, and one for each kind of unknown elements."""
    if version != _VERSION:
        yield "system", f"version {version}; NCCL's is {_VERSION}, AMD's RCCL writes others"
    counts: Counter[str] = Counter()
    waiting = [root]
    while waiting:
        element = waiting.pop()
        counts[element.tag] += 1
        waiting += element.children
    for tag in sorted(counts.keys() - _KNOWN):
        yield tag[:40], f"unknown element, {counts[tag]} left out"


def _numa_id(cpu: Element) -> int | None:
    node = number(cpu, "numaid", -1, MAX_NUMA_NODE)
    if node is None:
        raise DecodeError(f"{cpu.at}.numaid", "missing", CURE)
    return None if node == -1 else node


def _numa_nodes(cpus: list[Element]) -> tuple[tuple[NumaNode, ...] | None, list[Issue]]:
    """Return the nodes by id; None and an issue where the file does not give all CPUs."""
    masks: dict[int, CpuSet | None] = {}
    listed = 0
    for cpu in cpus:
        node, mask = _numa_id(cpu), cpu_mask(cpu)
        listed += len(mask or ())
        if listed > MAX_LISTED_CPUS:
            problem = f"more than {MAX_LISTED_CPUS} CPUs in the elements up to here"
            raise DecodeError(f"{cpu.at}.affinity", problem, CURE)
        if node is not None:
            earlier = masks.get(node, CpuSet())
            masks[node] = None if mask is None or earlier is None else earlier | mask
    lacking = [str(node) for node, mask in sorted(masks.items()) if mask is None]
    if lacking:
        return None, [("cpu", f"no affinity of NUMA node {', '.join(lacking)}")]
    nodes = (NumaNode(id=node, cpus=mask or CpuSet()) for node, mask in sorted(masks.items()))
    return tuple(nodes) or None, []


def _cpu(cpu: Element, nodes: tuple[NumaNode, ...]) -> CpuTopology | None:
    """Return the CPU, with the family as in Linux.

    NCCL writes family + 16 × extended family, and does not stop at 15 before it shifts (xml.cc), so
    that AMD's 25 becomes 175. A file written by hand can have 25, which NCCL never writes, and is
    used unchanged.
    """
    family = number(cpu, "familyid", 0, 1 << 16)
    model = number(cpu, "modelid", 0, 1 << 16)
    vendor = cpu.attributes.get("vendor") or None
    if vendor is None and family is None and model is None:
        return None
    if family is not None and family & 0xF == _EXTENDED:
        family = _EXTENDED + (family >> 4)
    return CpuTopology(
        online=CpuSet.of(number for node in nodes for number in node.cpus),
        vendor=vendor,
        family=family,
        model_number=model,
    )


def _hcas(devices: Devices) -> tuple[Hca, ...]:
    """Return the HCAs, with all ports of each, in the order of a scanned node.

    They are sorted by address; HCAs without one come last.
    """
    merged: dict[tuple[str, PciAddress | None, int | None], Hca] = {}
    for hca in devices.hcas:
        key = (hca.name, hca.pci, hca.numa_node)
        known = merged.get(key)
        ports = {port.number: port for port in (*hca.ports, *(known.ports if known else ()))}
        ordered = tuple(ports[number] for number in sorted(ports))
        merged[key] = replace(known or hca, ports=ordered)

    def order(hca: Hca) -> tuple[bool, PciAddress, str, int]:
        return (*hca.pci_order, -1 if hca.numa_node is None else hca.numa_node)

    return tuple(sorted(merged.values(), key=order))


def _gpus_and_nvlinks(
    gpus: list[FoundGpu],
) -> tuple[tuple[Gpu, ...], tuple[NvLink, ...] | None, list[Issue]]:
    """Return the GPUs by index, their NVLinks by (gpu, link), and issues."""
    issues: list[Issue] = []
    given = [None if gpu.gpu is None else number(gpu.gpu, "dev", 0, MAX_INDEX) for gpu in gpus]
    indices = [index for index in given if index is not None]
    if len(indices) < len(gpus) or len(set(indices)) < len(indices):
        if indices:
            reason = "dev is not given once for each, GPUs are counted by PCI address"
            issues.append(("gpu", reason))
        position = {address: at for at, address in enumerate(sorted(gpu.address for gpu in gpus))}
        indices = [position[gpu.address] for gpu in gpus]
    indexed = sorted(zip(indices, gpus, strict=True), key=lambda pair: pair[0])
    with_element = sum(gpu.gpu is not None for gpu in gpus)
    if 0 < with_element < len(gpus):
        issues.append(("nvlink", "not every GPU has a gpu element, so links are left out"))
    numbered = tuple(_gpu(index, gpu) for index, gpu in indexed)
    links = tuple(link for index, gpu in indexed for link in _nvlinks(index, gpu.gpu))
    looped = Counter(link.gpu for link in loops(Snapshot(gpus=numbered, nvlinks=links)))
    if looped:
        names = ", ".join(f"GPU{index}" for index in sorted(looped))
        reason = f"{looped.total()} of {names} lead to the GPU itself, so where to is not known"
        issues.append(("nvlink", reason))
    if not gpus:
        issues.append((GPUS, "the file names none of NVIDIA's, so the node's are not known"))
    return numbered, links if 0 < with_element == len(gpus) else None, issues


def _gpu(index: int, gpu: FoundGpu) -> Gpu:
    sm = None if gpu.gpu is None else number(gpu.gpu, "sm", 10, 999)
    capability = None if sm is None else divmod(sm, 10)
    c2c = None if gpu.gpu is None else gpu.gpu.first("c2c")
    return Gpu(
        index=index,
        pci=gpu.address,
        path=gpu.place.path(gpu.address),
        function=read_function(gpu.pci),
        architecture=None if capability is None else architecture(capability),
        compute_capability=capability,
        numa_node=gpu.place.numa_node,
        cpu_affinity=gpu.place.cpus or None,
        c2c=None
        if c2c is None
        else C2c(
            is_enabled=True,
            links=number(c2c, "count", 0, MAX_NVLINKS),
            speed_mbps=number(c2c, "bw", 0, MAX_SPEED_MBPS),
        ),
    )


def architecture(capability: tuple[int, int]) -> str | None:
    """Return NVIDIA's name for the compute capability's generation (CUDA programming guide)."""
    exact = {(7, 5): "turing", (8, 9): "ada-lovelace"}
    major = {5: "maxwell", 6: "pascal", 7: "volta", 8: "ampere", 9: "hopper"}
    major |= dict.fromkeys((10, 11, 12), "blackwell")
    return exact.get(capability) or major.get(capability[0])


def _nvlinks(index: int, gpu: Element | None) -> Iterator[NvLink]:
    """Yield the number of links in the element; their numbers are ours, as the file has none."""
    next_link = 0
    for element in gpu.every("nvlink") if gpu is not None else ():
        count = number(element, "count", 0, MAX_NVLINKS)
        if count is None or next_link + count > MAX_NVLINKS:
            raise DecodeError(f"{element.at}.count", "missing, or more than a GPU has", CURE)
        is_hidden = element.attributes.get("target") == HIDDEN_TARGET
        peer = None if is_hidden else read_address(element, "target")
        kind = PeerKind.SWITCH if is_hidden else peer_kind(element)
        for _ in range(count):
            yield NvLink(gpu=index, link=next_link, is_active=True, peer=peer, peer_kind=kind)
            next_link += 1
