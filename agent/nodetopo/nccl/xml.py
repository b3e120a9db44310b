"""A node's topology as NCCL reads it from ``NCCL_TOPO_FILE``.

NCCL detects the same on bare metal; the file is for where detection fails: in a virtual machine
that hides the switches, in a container without all of sysfs, or on another machine. The file
takes precedence over what NCCL detects, and NCCL adds what the file leaves out, so nothing
unknown is written (rules: NCCL's xml.cc, topo.cc).
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from msgspec import Struct, field
from msgspec.structs import replace

from nodetopo.errors import UnreadableError
from nodetopo.model.gpu import Gpu
from nodetopo.model.hca import DataDirect, Hca, HcaKind, HcaPort
from nodetopo.model.numa import CpuSet
from nodetopo.model.nvlink import NvLink, PeerKind
from nodetopo.model.pci import (
    GT_S_TO_GENERATION,
    PciAddress,
    PciBridge,
    PcieLink,
    PciFunction,
    PciPath,
)
from nodetopo.model.snapshot import Snapshot
from nodetopo.nccl.bandwidth import nccl_capability

MAX_VALUE = 253
"""Longest value of an attribute that NCCL reads: of a buffer of 255 (xml.h, ``MAX_STR_LEN``) the
closing quote takes a place too, and the last must stay free (xml.cc, xmlGetValue)."""

MAX_ELEMENTS = 255
"""NCCL topo.h, ``NCCL_TOPO_XML_MAX_NODES``, less the one that closing tags are read into (xml.cc,
xmlLoadSub)."""

CLASSES: Mapping[str, str] = MappingProxyType(
    {
        "bridge": "060400",
        "gpu": "030200",
        "nic": "020700",
        "data direct": "080100",
        "switch": "068000",
        "cpu": "068001",
    },
)
"""PCI classes by which NCCL distinguishes elements (topo.cc, ``kvDictPciClass``)."""

_GT_S = MappingProxyType({generation: rate for rate, generation in GT_S_TO_GENERATION.items()})

_FASTEST = 64.0
"""GT/s; NCCL takes any speed it does not know for 8 GT/s (topo.cc, ``kvDictPciGen``)."""

_EXTENDED = 15
"""CPUID leaf 1: from family 15 on, the extended family is added (AMD, Intel manuals)."""

_ARCHITECTURES = {"x86_64": "x86_64", "aarch64": "arm64", "ppc64le": "ppc64"}
"""``uname -m`` to NCCL's ``arch``."""

_HIDDEN_SWITCH = "fffffff:ffff:ff"
"""NCCL's value for a switch that the driver hides."""

_NO_NODE = "-1"
"""NCCL's ``numaid`` for devices whose firmware names no NUMA node, as sysfs has it."""

_CURE = "write it from a snapshot of the node: `nodetopo capture`"

_VALUE = re.compile(rf"[A-Za-z0-9 _.,:;@/+-]{{0,{MAX_VALUE}}}")


class Element(Struct):
    """One element, still growing."""

    tag: str
    attributes: dict[str, str]
    children: list["Element"] = field(default_factory=list)


def topology_xml(snapshot: Snapshot) -> str:
    """Return NCCL's topology file for *snapshot*: CPUs, switches, GPUs, NVLinks, HCAs.

    A switch is one element, named by its upstream port, and root ports are left out, as in NCCL.
    Links are given at their maximum, as GPUs slow them down when idle. Only active NVLinks are
    written, and HCAs with a port that is not known to be down; not ``rank`` and ``gdr``, which
    NCCL decides. Where the NVLinks are not known no ``gpu`` element is written, so that NCCL
    detects them itself.

    Raises:
        UnreadableError: there is no device, the place of a device in the PCI tree is not known,
            or the file would exceed NCCL's limits.
    """
    hcas = [hca for hca in snapshot.hcas or () if is_in_use(hca)]
    directs = snapshot.data_directs or ()
    devices: list[Gpu | Hca | DataDirect] = [*snapshot.gpus, *hcas, *directs]
    if not devices:
        raise UnreadableError("there is no GPU and no HCA to write a topology of", _CURE)
    for device in devices:
        is_bound = not isinstance(device, Hca) or is_function(device)
        if is_bound and (device.path is None or device.pci is None):
            name = "a Data Direct function" if isinstance(device, DataDirect) else device.name
            raise UnreadableError(f"the place of {name} in the PCI tree is not known", _CURE)

    tree = _Tree(snapshot)
    for gpu in snapshot.gpus:
        element = tree.function(gpu, PciFunction(pci_class=CLASSES["gpu"]))
        if snapshot.nvlinks is not None:
            element.children.append(_gpu(gpu, snapshot))
    for hca in hcas:
        if is_function(hca):
            parent = tree.function(hca, PciFunction(pci_class=CLASSES["nic"]))
        else:
            parent = tree.first_cpu()
        if nets := list(_nets(hca)):
            nic = next((child for child in parent.children if child.tag == "nic"), None)
            if nic is None:
                nic = Element("nic", {})
                parent.children.append(nic)
            nic.children += nets
    for direct in directs:
        element = tree.function(direct, PciFunction(pci_class=CLASSES["data direct"]))
        nets = [Element("net", {"name": f"{name}_dma"}) for name in direct.hcas]
        element.children += [Element("nic", {}, nets)] if nets else []
    return text(tree.system())


def is_in_use(hca: Hca) -> bool:
    """Return whether NCCL would use *hca*: it leaves out ports that are not active."""
    return not hca.ports or any(map(_is_up, hca.ports))


def switches(path: PciPath) -> tuple[PciAddress, ...]:
    """Return the switches above a device, the uppermost first, each as its upstream port.

    NCCL keeps every second hop, from the device up (xml.cc), which drops each switch's downstream
    port and the root port.
    """
    return path.hops[:-1] if path.is_collapsed else path.hops[-3::-2][::-1]


def is_function(hca: Hca) -> bool:
    """Return whether NCCL can place *hca*: for it a subfunction is no PCI device."""
    return hca.pci is not None and hca.kind is not HcaKind.SUBFUNCTION


def text(root: Element) -> str:
    """Return *root* and all below it, indented by two blanks as NCCL's dumps are.

    NCCL's own parser is not a full XML parser (xml.cc, xml.h): no prolog, no tabs, one space
    before each attribute, one element on a line, no escapes, so what would need an escape is
    refused. At most 16 attributes of 253 characters, 255 elements for a host.

    Raises:
        UnreadableError: more elements than NCCL reads, or a value that it cannot hold.
    """
    lines = _lines(root, "")
    count = sum(1 for line in lines if not line.lstrip().startswith("</"))
    if count > MAX_ELEMENTS:
        problem = f"the topology has {count} elements, NCCL reads {MAX_ELEMENTS}"
        raise UnreadableError(problem, "let NCCL detect it")
    return "".join(f"{line}\n" for line in lines)


def _lines(element: Element, indent: str) -> list[str]:
    for value in element.attributes.values():
        if _VALUE.fullmatch(value) is None:
            problem = f"{value[:40]!r} cannot stand in a file for NCCL, which knows no escapes"
            raise UnreadableError(problem, "rename the device, or correct the snapshot")
    attributes = "".join(f' {name}="{value}"' for name, value in element.attributes.items())
    opening = f"{indent}<{element.tag}{attributes}"
    if not element.children:
        return [f"{opening}/>"]
    inner = [line for child in element.children for line in _lines(child, f"{indent}  ")]
    return [f"{opening}>", *inner, f"{indent}</{element.tag}>"]


def cpu_mask(cpus: CpuSet, highest: int) -> str | None:
    """Return sysfs's ``cpumap`` form for a machine whose last CPU is *highest*.

    ``None`` where the value would be too long for NCCL, beyond 896 CPUs.
    """
    mask = sum(1 << cpu for cpu in cpus.cpus)
    groups = [f"{mask >> 32 * at & 0xFFFFFFFF:08x}" for at in range(highest // 32 + 1)]
    text = ",".join(reversed(groups))
    return text if len(text) <= MAX_VALUE else None


def cpu_family(family: int) -> int:
    """Return NCCL's family + 16 × extended family, from Linux's family + extended family."""
    if family <= _EXTENDED:
        return family
    return _EXTENDED + ((family - _EXTENDED) << 4)


def narrowest(one: PcieLink | None, other: PcieLink | None) -> PcieLink | None:
    """Return the best common link of two ends, if known."""
    ends = [end for end in (one, other) if end is not None]
    generations = [value for end in ends if (value := end.max_generation or end.generation)]
    widths = [value for end in ends if (value := end.max_width or end.width)]
    if not generations and not widths:
        return None
    return PcieLink(generation=min(generations, default=None), width=min(widths, default=None))


def link_attributes(link: PcieLink | None) -> dict[str, str]:
    """Return ``link_speed`` per lane and ``link_width``, what is known of them."""
    attributes = {}
    rate = None if link is None or link.generation is None else _GT_S.get(link.generation)
    if rate is not None:
        attributes["link_speed"] = f"{min(rate, _FASTEST):.1f} GT/s PCIe"
    if link is not None and link.width is not None:
        attributes["link_width"] = str(link.width)
    return attributes


def net_guid(sys_image_guid: str | None) -> str | None:
    """Return NCCL's ``guid``: the bytes of sysfs's ``946d:ae03:0050:709a`` in reverse."""
    digits = (sys_image_guid or "").replace(":", "")
    try:
        number = int.from_bytes(bytes.fromhex(digits), "little")
    except ValueError:
        return None
    return f"0x{number:x}" if number and len(digits) == 16 else None


class _Tree:
    """The ``cpu`` elements, which grow branch by branch."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._bridges = {bridge.address: bridge for bridge in snapshot.bridges or ()}
        self._functions: dict[tuple[int | None, tuple[PciAddress, ...]], Element] = {}
        self._cpus: dict[int | None, Element] = {}
        for node in snapshot.numa_nodes or ():
            if len(node.cpus):  # NCCL drops those without a device
                self.cpu(node.id)

    def system(self) -> Element:
        """Return the root, with its CPUs by NUMA node; CPUs without one come last."""
        order = sorted(self._cpus, key=lambda node: (node is None, node or 0))
        return Element("system", {"version": "1"}, [self._cpus[node] for node in order])

    def cpu(self, node: int | None) -> Element:
        if node in self._cpus:
            return self._cpus[node]
        snapshot = self._snapshot
        known = snapshot.numa_nodes or ()
        highest = max((cpu for entry in known for cpu in entry.cpus.cpus), default=0)
        masks = {entry.id: cpu_mask(entry.cpus, highest) for entry in known if len(entry.cpus)}
        arch = _ARCHITECTURES.get(snapshot.kernel.machine or "") if snapshot.kernel else None
        attributes = {
            "numaid": _NO_NODE if node is None else str(node),
            "affinity": None if node is None else masks.get(node),
            "arch": arch,
        }
        if snapshot.cpu is not None and arch in (None, "x86_64"):
            family = snapshot.cpu.family
            attributes["vendor"] = snapshot.cpu.vendor
            attributes["familyid"] = None if family is None else str(cpu_family(family))
            attributes["modelid"] = _text(snapshot.cpu.model_number)
        self._cpus[node] = Element("cpu", _known(attributes))
        return self._cpus[node]

    def first_cpu(self) -> Element:
        """Return the element under which NCCL puts virtual devices."""
        return self.cpu(min(self._cpus, key=lambda node: (node is None, node or 0), default=None))

    def function(self, device: Gpu | Hca | DataDirect, default: PciFunction) -> Element:
        """Return the ``pci`` element of *device*, under the switches of its path."""
        assert device.path is not None
        assert device.pci is not None
        above = switches(device.path)
        parent = self.cpu(device.numa_node)
        for depth, address in enumerate(above, 1):
            known = self._bridges.get(address, PciBridge(address=address))
            bridge = PciFunction(
                pci_class=CLASSES["bridge"],
                vendor=known.vendor,
                device=known.device,
                subsystem_vendor=known.subsystem_vendor,
                subsystem_device=known.subsystem_device,
            )
            attributes = _pci(address, bridge, self._narrowest(known.link, device.path, address))
            parent = self._child(parent, device.numa_node, above[:depth], attributes)
        function = device.function or default
        if function.pci_class is None:
            function = replace(function, pci_class=default.pci_class)
        link = device.pcie if isinstance(device, Gpu) and device.pcie else None
        attributes = _pci(
            device.pci, function, self._narrowest(link or function.link, device.path, device.pci)
        )
        return self._child(parent, device.numa_node, (*above, device.pci), attributes)

    def _child(
        self,
        parent: Element,
        node: int | None,
        hops: tuple[PciAddress, ...],
        attributes: dict[str, str],
    ) -> Element:
        key = (node, hops)
        if key not in self._functions:
            self._functions[key] = Element("pci", attributes)
            parent.children.append(self._functions[key])
        return self._functions[key]

    def _narrowest(
        self, link: PcieLink | None, path: PciPath, address: PciAddress
    ) -> PcieLink | None:
        """Return the best that both ends of the link above *address* can do."""
        at = path.hops.index(address) if address in path.hops else 0
        # In a collapsed path the hop above is a switch's far side, not the other end.
        if path.is_collapsed or at == 0:
            return narrowest(link, None)
        above = self._bridges.get(path.hops[at - 1])
        return narrowest(link, above.link if above else None)


def _pci(address: PciAddress, function: PciFunction, link: PcieLink | None) -> dict[str, str]:
    ids = {
        "class": function.pci_class,
        "vendor": function.vendor,
        "device": function.device,
        "subsystem_vendor": function.subsystem_vendor,
        "subsystem_device": function.subsystem_device,
    }
    hexadecimal = {name: f"0x{value}" for name, value in ids.items() if value is not None}
    return {"busid": str(address), **hexadecimal, **link_attributes(link)}


def _gpu(gpu: Gpu, snapshot: Snapshot) -> Element:
    """Return the ``gpu`` element, with one ``nvlink`` element for each far end."""
    counts = Counter(
        target
        for link in snapshot.nvlinks or ()
        if link.gpu == gpu.index and link.is_active
        if (target := _far_end(link, snapshot)) is not None
    )
    children = [
        Element("nvlink", _known({"target": target, "count": str(count), "tclass": tclass}))
        for (target, tclass), count in counts.items()
    ]
    if gpu.c2c is not None and gpu.c2c.is_enabled:
        c2c = {"bw": _text(gpu.c2c.speed_mbps), "count": _text(gpu.c2c.links)}
        children.append(Element("c2c", _known(c2c)))
    attributes = {"dev": str(gpu.index), "sm": _text(nccl_capability(gpu))}
    return Element("gpu", _known(attributes), children)


def _far_end(link: NvLink, snapshot: Snapshot) -> tuple[str, str | None] | None:
    """Return address and class of the far end; ``None`` where NCCL could not use it."""
    if link.peer is None:
        is_switch = link.peer_kind is PeerKind.SWITCH
        return (_HIDDEN_SWITCH, f"0x{CLASSES['switch']}") if is_switch else None
    peer = next((gpu for gpu in snapshot.gpus if gpu.pci == link.peer), None)
    if peer is not None:
        own = peer.function.pci_class if peer.function else None
        return str(link.peer), f"0x{own or CLASSES['gpu']}"
    kind = None if link.peer_kind is None else CLASSES[link.peer_kind.value]
    return str(link.peer), None if kind is None else f"0x{kind}"


def _nets(hca: Hca) -> Iterator[Element]:
    """Yield one element for each port in use; none for an HCA that only has an address."""
    guid = net_guid(hca.sys_image_guid)
    if hca.name == str(hca.pci) and not hca.ports and guid is None:
        return
    for port in filter(_is_up, hca.ports):
        speed = None if port.rate_gbps is None else str(round(port.rate_gbps * 1000))
        attributes = {"name": hca.name, "speed": speed, "port": str(port.number), "guid": guid}
        yield Element("net", _known(attributes))
    if not hca.ports:
        yield Element("net", _known({"name": hca.name, "guid": guid}))


def _is_up(port: HcaPort) -> bool:
    return port.state in (None, "ACTIVE")


def _text(value: int | None) -> str | None:
    return None if value is None else str(value)


def _known(attributes: dict[str, str | None]) -> dict[str, str]:
    return {name: value for name, value in attributes.items() if value is not None}
