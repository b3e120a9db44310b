"""The devices of an NCCL topology: what each ``pci`` and ``nic`` element is, and where."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from agent.errors import DecodeError
from agent.model.gpu import C2c, Gpu
from agent.model.hca import DataDirect, Hca, HcaPort
from agent.model.numa import CpuSet
from agent.model.nvlink import NvLink, PeerKind
from agent.model.pci import PciAddress, PciBridge, PciPath
from agent.probes.importers import nccl_xml_values as values
from agent.probes.importers.nccl_xml_tree import CURE, Element

DATA_DIRECT_SUFFIX = "_dma"
"""What NCCL appends to an HCA's name on its Data Direct function (net_ib, ``_dma``)."""

FUSED = "+"
"""Joins the names of HCAs that NCCL uses as one (``NCCL_NET_MERGE_LEVEL``)."""

_MAX_LINKS = 64
"""More NVLinks than any GPU has; 18 is the most so far."""

_MAX_INDEX = 9999
_MAX_SPEED_MBPS = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where an element stands: its NUMA node, that node's CPUs, the switches above it."""

    numa_node: int | None
    cpus: CpuSet | None
    hops: tuple[PciAddress, ...]

    def path(self, address: PciAddress) -> PciPath:
        """Return the path of a function here; the format names no root."""
        return PciPath(root=None, hops=(*self.hops, address), is_collapsed=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundGpu:
    """A GPU's ``pci`` element, and its ``gpu`` element where there is one."""

    address: PciAddress
    place: Place
    pci: Element
    gpu: Element | None


@dataclass(slots=True)
class Devices:
    """What has been found so far, in the order of the file.

    Attributes:
        seen: how often each PCI address stands in the file.
        left_out: how many elements of a kind were not kept, by (subject, reason).
    """

    gpus: dict[PciAddress, FoundGpu] = field(default_factory=dict)
    hcas: list[Hca] = field(default_factory=list)
    data_directs: list[DataDirect] = field(default_factory=list)
    bridges: list[PciBridge] = field(default_factory=list)
    seen: Counter[PciAddress] = field(default_factory=Counter)
    left_out: Counter[tuple[str, str]] = field(default_factory=Counter)


def find_devices(parent: Element, place: Place, devices: Devices) -> bool:
    """Add every device below *parent*, a ``cpu`` or ``pci``; return whether there was one.

    Raises:
        DecodeError: an element has no PCI address, or a value that cannot be.
    """
    found = False
    for nic in parent.every("nic") if parent.tag == "cpu" else ():
        # NCCL hangs what is no PCI function under the first CPU, which tells no place.
        hcas = list(_hcas(nic, None, replace(place, numa_node=None), devices))
        devices.hcas += hcas
        found = found or bool(hcas)
    for pci in parent.every("pci"):
        found = _find_at(pci, place, devices) or found
    return found


def _find_at(pci: Element, place: Place, devices: Devices) -> bool:
    address = values.address(pci, "busid")
    devices.seen[address] += 1
    is_bridge = pci.first("pci") is not None
    is_device = _add_device(pci, address, place, devices, is_bridge=is_bridge)
    if is_bridge:
        below = replace(place, hops=(*place.hops, address))
        is_used = find_devices(pci, below, devices)
        if is_used:
            devices.bridges.append(_bridge(pci, address, place))
        return is_used or is_device
    return is_device


def _add_device(
    pci: Element,
    address: PciAddress,
    place: Place,
    devices: Devices,
    *,
    is_bridge: bool,
) -> bool:
    """Add what *pci* is besides a bridge, if anything."""
    kind = values.pci_class(pci)
    if pci.first("gpu") is not None or kind.startswith("03"):
        return _add_gpu(pci, address, place, devices)
    if kind == values.DATA_DIRECT_CLASS:
        devices.data_directs.append(_data_direct(pci, address, place))
        return True
    if pci.first("nic") is not None or kind.startswith("02"):
        devices.hcas += _nic(pci, address, place, devices)
        return True
    if not is_bridge:
        what = f"of class {kind}" if kind else "without a class"
        devices.left_out["pci", f"a function {what}, neither GPU nor NIC"] += 1
    return False


def _add_gpu(pci: Element, address: PciAddress, place: Place, devices: Devices) -> bool:
    gpu = pci.first("gpu")
    vendor = values.function(pci).vendor
    # RCCL writes an AMD GPU's instruction set as `gcn`, and its links as `xgmi`.
    is_other = gpu is not None and ("gcn" in gpu.attributes or gpu.first("xgmi") is not None)
    if is_other or vendor not in (None, "10de"):
        devices.left_out["gpu", "a GPU of another vendor"] += 1
        return False
    if address in devices.gpus:
        devices.left_out["gpu", "a second GPU of one PCI address"] += 1
        return False
    devices.gpus[address] = FoundGpu(address=address, place=place, pci=pci, gpu=gpu)
    return True


def _bridge(pci: Element, address: PciAddress, place: Place) -> PciBridge:
    function = values.function(pci)
    return PciBridge(
        address=address,
        vendor=function.vendor,
        device=function.device,
        subsystem_vendor=function.subsystem_vendor,
        subsystem_device=function.subsystem_device,
        numa_node=place.numa_node,
        link=function.link,
    )


def _data_direct(pci: Element, address: PciAddress, place: Place) -> DataDirect:
    names = [net.attributes.get("name", "") for nic in pci.every("nic") for net in nic.every("net")]
    return DataDirect(
        pci=address,
        path=place.path(address),
        function=values.function(pci),
        numa_node=place.numa_node,
        hcas=tuple(sorted({name.removesuffix(DATA_DIRECT_SUFFIX) for name in names if name})),
    )


def _nic(pci: Element, address: PciAddress, place: Place, devices: Devices) -> Iterator[Hca]:
    """Yield the HCAs of a function: as its nets name them, or one called by its address."""
    nic = pci.first("nic")
    if nic is not None and nic.first("net") is not None:
        yield from _hcas(nic, pci, place, devices)
    else:
        yield _hca(str(address), pci, place)


def _hcas(nic: Element, pci: Element | None, place: Place, devices: Devices) -> Iterator[Hca]:
    """Yield one HCA with one port for each net."""
    for net in nic.every("net"):
        name = net.attributes.get("name", "").strip()
        port = values.number(net, "port", 0, 255)
        if not name:
            devices.left_out["net", "an interface without a name"] += 1
        elif FUSED in name:
            devices.left_out["net", "HCAs fused into one"] += 1
        elif port == 0:
            # Ports of HCAs count from 1; the 0 is that of NCCL's socket transport.
            devices.left_out["net", "an interface without RDMA"] += 1
        else:
            yield _with_port(_hca(name, pci, place), net, port)


def _hca(name: str, pci: Element | None, place: Place) -> Hca:
    if pci is None:
        return Hca(name=name, numa_node=place.numa_node)
    address = values.address(pci, "busid")
    return Hca(
        name=name,
        pci=address,
        path=place.path(address),
        function=values.function(pci),
        numa_node=place.numa_node,
    )


def _with_port(hca: Hca, net: Element, port: int | None) -> Hca:
    """Return *hca* with what its net says: NCCL's speed is in Mb/s."""
    guid = values.system_image_guid(net)
    if port is None:
        return replace(hca, sys_image_guid=guid)
    speed = values.number(net, "speed", 0, _MAX_SPEED_MBPS)
    rate = speed / 1000 if speed else None
    return replace(hca, sys_image_guid=guid, ports=(HcaPort(number=port, rate_gbps=rate),))


def gpus_and_nvlinks(
    devices: Devices,
) -> tuple[tuple[Gpu, ...], tuple[NvLink, ...] | None, list[tuple[str, str]]]:
    """Return the GPUs by index, their NVLinks by (gpu, link), and what was wrong with them.

    Raises:
        DecodeError: a value that cannot be.
    """
    indices, issues = _indices(list(devices.gpus.values()))
    found = sorted(zip(indices, devices.gpus.values(), strict=True), key=lambda pair: pair[0])
    elements = [gpu.gpu for _, gpu in found]
    are_links_known = bool(elements) and all(element is not None for element in elements)
    if not are_links_known and any(element is not None for element in elements):
        issues.append(("nvlink", "not every GPU has a gpu element, so links are left out"))
    gpus = tuple(_gpu(index, gpu) for index, gpu in found)
    links = tuple(link for index, gpu in found for link in _nvlinks(index, gpu.gpu))
    return gpus, links if are_links_known else None, issues


def _indices(gpus: list[FoundGpu]) -> tuple[list[int], list[tuple[str, str]]]:
    """Return each GPU's index: its ``dev``, or its place among all by PCI address."""
    given = [_index(gpu) for gpu in gpus]
    known = [index for index in given if index is not None]
    if len(known) == len(gpus) and len(set(known)) == len(known):
        return known, []
    position = {address: at for at, address in enumerate(sorted(gpu.address for gpu in gpus))}
    issues = [("gpu", "dev is not given once for each, GPUs are counted by PCI address")]
    return [position[gpu.address] for gpu in gpus], issues if known else []


def _index(gpu: FoundGpu) -> int | None:
    return None if gpu.gpu is None else values.number(gpu.gpu, "dev", 0, _MAX_INDEX)


def _gpu(index: int, gpu: FoundGpu) -> Gpu:
    sm = None if gpu.gpu is None else values.number(gpu.gpu, "sm", 10, 999)
    capability = None if sm is None else divmod(sm, 10)
    return Gpu(
        index=index,
        pci=gpu.address,
        path=gpu.place.path(gpu.address),
        function=values.function(gpu.pci),
        architecture=None if capability is None else values.architecture(capability),
        compute_capability=capability,
        numa_node=gpu.place.numa_node,
        cpu_affinity=gpu.place.cpus or None,
        c2c=None if gpu.gpu is None else _c2c(gpu.gpu),
    )


def _c2c(gpu: Element) -> C2c | None:
    element = gpu.first("c2c")
    if element is None:
        return None
    return C2c(
        is_enabled=True,
        links=values.number(element, "count", 0, _MAX_LINKS),
        speed_mbps=values.number(element, "bw", 0, _MAX_SPEED_MBPS),
    )


def _nvlinks(index: int, gpu: Element | None) -> Iterator[NvLink]:
    """Yield as many links as the element counts; their numbers are ours, the file has none."""
    number = 0
    for element in gpu.every("nvlink") if gpu is not None else ():
        count = values.number(element, "count", 0, _MAX_LINKS)
        if count is None or number + count > _MAX_LINKS:
            raise DecodeError(f"{element.at}.count", "missing, or more than a GPU has", CURE)
        is_hidden = element.attributes.get("target") == values.HIDDEN_TARGET
        peer = None if is_hidden else values.address(element, "target")
        kind = PeerKind.SWITCH if is_hidden else values.peer_kind(element)
        for _ in range(count):
            yield NvLink(gpu=index, link=number, is_active=True, peer=peer, peer_kind=kind)
            number += 1
