"""NCCL's topology XML as a partial snapshot: a dump, or a file written by hand.

A dump (``NCCL_TOPO_DUMP_FILE``) holds what one job used: GPUs with their NVLinks, the HCAs
with an active port, the switches above them, and the NUMA nodes above those. Files by hand
(``NCCL_TOPO_FILE``, e.g. of clouds that hide the PCI tree) often hold no more than the tree.
The format is that of NCCL's xml.cc and topo.cc.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from agent.errors import DecodeError
from agent.model.hca import DataDirect, Hca
from agent.model.numa import CpuSet, CpuTopology, NumaNode
from agent.model.pci import PciAddress, PciBridge
from agent.model.snapshot import Kernel, ProbeIssue, Snapshot
from agent.probes.importers.nccl_xml_devices import (
    CURE,
    MACHINES,
    Devices,
    Element,
    Place,
    cpu_family,
    cpu_mask,
    find_devices,
    gpus_and_nvlinks,
    number,
    read_tree,
)

PROBE = "nccl-xml"

_KNOWN = frozenset(("system", "cpu", "pci", "gpu", "nvlink", "c2c", "nic", "net"))
_VERSION = 1
"""``NCCL_TOPO_XML_VERSION`` (xml.h); AMD's RCCL counts on its own."""

_OTHER_ROOTS = {
    "graphs": "an NCCL graph (NCCL_GRAPH_FILE), which holds rings and trees, no topology",
    "nvidia_smi_log": "the output of `nvidia-smi -q -x`",
    "topology": "an hwloc topology",
}


def parse_nccl_xml(text: str) -> Snapshot:
    """Return what the file tells of one node; what it holds beyond that becomes an issue.

    GPUs are numbered by ``dev`` where every GPU has one, else by PCI address, as NVML counts.
    A PCI path has one hop for each switch, and no root. NVLinks are ``None`` unless every GPU
    has a ``gpu`` element; NCCL writes active ones only, so each is active. An HCA that the
    file does not name is called by its PCI address. NUMA nodes without a device are not in
    the file, so ``numa_nodes`` and ``cpu.online`` hold those with one; ``numaid`` −1 is no
    node. No HCAs at all means: not known, as a job may have used none.

    Raises:
        DecodeError: not XML, not an NCCL topology, of several hosts, or with a value that
            cannot be; its path names the element, e.g. ``cpu[0].pci[2].busid``.
    """
    root = read_tree(text)
    _check_root(root)
    cpus = list(root.every("cpu"))
    nodes, node_issues = _numa_nodes(cpus)
    devices = Devices()
    for cpu in cpus:
        find_devices(cpu, _place(cpu, nodes), devices)
    gpus, nvlinks, gpu_issues = gpus_and_nvlinks(devices)
    issues = (*_strangers(root), *node_issues, *gpu_issues, *_left_out(devices))
    return Snapshot(
        kernel=_kernel(cpus),
        gpus=gpus,
        nvlinks=nvlinks,
        bridges=_bridges(devices) or None,
        numa_nodes=nodes,
        cpu=None if nodes is None else _cpu(cpus, nodes),
        hcas=_hcas(devices) or None,
        data_directs=_data_directs(devices) or None,
        issues=tuple(
            ProbeIssue(probe=PROBE, subject=subject, reason=reason) for subject, reason in issues
        ),
    )


def _check_root(root: Element) -> None:
    if root.tag != "system":
        what = _OTHER_ROOTS.get(root.tag, f"a document of another kind, {root.tag[:40]!r}")
        raise DecodeError("", f"this is {what}", CURE)
    if number(root, "version", 0, 1 << 16) is None:
        raise DecodeError("version", "missing", CURE)
    hosts = {cpu.attributes.get("host_hash") for cpu in root.every("cpu")}
    if len(hosts) > 1:
        cure = "run NCCL on one node alone to dump its topology"
        raise DecodeError("", f"the topology of {len(hosts)} hosts in one", cure)
    if root.first("cpu") is None:
        raise DecodeError("", "holds no cpu element", CURE)


def _strangers(root: Element) -> Iterator[tuple[str, str]]:
    """Yield an issue for the version, and one for each kind of element that we do not know."""
    version = number(root, "version", 0, 1 << 16)
    if version != _VERSION:
        yield "system", f"version {version}; NCCL's is {_VERSION}, AMD's RCCL writes others"
    counts = Counter(element.tag for element in _walk(root))
    for tag in sorted(counts.keys() - _KNOWN):
        yield tag[:40], f"unknown element, {counts[tag]} left out"


def _walk(element: Element) -> Iterator[Element]:
    yield element
    for child in element.children:
        yield from _walk(child)


def _numa_id(cpu: Element) -> int | None:
    node = number(cpu, "numaid", -1, (1 << 16) - 1)
    if node is None:
        raise DecodeError(f"{cpu.at}.numaid", "missing", CURE)
    return None if node == -1 else node


def _numa_nodes(
    cpus: list[Element],
) -> tuple[tuple[NumaNode, ...] | None, list[tuple[str, str]]]:
    """Return the nodes by id; ``None`` and an issue where the file does not give all CPUs."""
    found: dict[int, CpuSet | None] = {}
    for cpu in cpus:
        node, mask = _numa_id(cpu), cpu_mask(cpu)
        if node is not None:
            earlier = found.get(node, CpuSet())
            found[node] = None if mask is None or earlier is None else earlier | mask
    lacking = [str(node) for node, mask in sorted(found.items()) if mask is None]
    if lacking:
        return None, [("cpu", f"no affinity of NUMA node {', '.join(lacking)}")]
    nodes = (NumaNode(id=node, cpus=mask or CpuSet()) for node, mask in sorted(found.items()))
    return tuple(nodes) or None, []


def _place(cpu: Element, nodes: tuple[NumaNode, ...] | None) -> Place:
    node = _numa_id(cpu)
    known = {entry.id: entry.cpus for entry in nodes or ()}
    return Place(numa_node=node, cpus=None if node is None else known.get(node), hops=())


def _kernel(cpus: list[Element]) -> Kernel | None:
    machine = MACHINES.get(cpus[0].attributes.get("arch", ""))
    return None if machine is None else Kernel(machine=machine)


def _cpu(cpus: list[Element], nodes: tuple[NumaNode, ...]) -> CpuTopology | None:
    family = number(cpus[0], "familyid", 0, 1 << 16)
    model = number(cpus[0], "modelid", 0, 1 << 16)
    vendor = cpus[0].attributes.get("vendor") or None
    if vendor is None and family is None and model is None:
        return None
    return CpuTopology(
        online=CpuSet.of(cpu for node in nodes for cpu in node.cpus),
        vendor=vendor,
        family=None if family is None else cpu_family(family),
        model_number=model,
    )


def _bridges(devices: Devices) -> tuple[PciBridge, ...]:
    unique = {bridge.address: bridge for bridge in reversed(devices.bridges)}
    return tuple(unique[address] for address in sorted(unique))


def _hcas(devices: Devices) -> tuple[Hca, ...]:
    """Return the HCAs, the ports of one under it, in the order that rows have."""
    merged: dict[tuple[str, PciAddress | None, int | None], Hca] = {}
    for hca in devices.hcas:
        key = (hca.name, hca.pci, hca.numa_node)
        known = merged.get(key)
        ports = {port.number: port for port in (*hca.ports, *(known.ports if known else ()))}
        ordered = tuple(ports[number] for number in sorted(ports))
        merged[key] = replace(known or hca, ports=ordered)
    return tuple(sorted(merged.values(), key=_hca_order))


def _hca_order(hca: Hca) -> tuple[bool, PciAddress, str, int]:
    """Order by address, those without one last, as the rows of a scanned node are."""
    node = -1 if hca.numa_node is None else hca.numa_node
    return (*hca.pci_order, node)


def _data_directs(devices: Devices) -> tuple[DataDirect, ...]:
    unique = {direct.pci: direct for direct in reversed(devices.data_directs) if direct.pci}
    return tuple(unique[address] for address in sorted(unique))


def _left_out(devices: Devices) -> Iterator[tuple[str, str]]:
    for (subject, reason), count in sorted(devices.left_out.items()):
        yield subject, f"{reason}, {count} left out"
    for address, times in sorted(devices.seen.items()):
        if times > 1:
            yield str(address), f"stands at {times} places"
