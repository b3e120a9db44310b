"""The PCI devices of an hwloc XML with their paths, as far as a test of levels needs them."""

from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree as ET

from nodetopo.model.gpu import Gpu
from nodetopo.model.hca import Hca
from nodetopo.model.pci import PciAddress, PciPath
from nodetopo.model.snapshot import Snapshot

_NVIDIA_GPU = ("0302", "10de")
_MELLANOX_HCA = ("0207", "15b3")


def read(file: Path) -> Snapshot:
    """GPUs and InfiniBand HCAs of the machine by PCI address, their nodes as hwloc has them."""
    gpus: list[Gpu] = []
    hcas: list[Hca] = []
    for path, kind, node in sorted(
        _devices(ET.parse(file).getroot(), None, None, ()), key=_address
    ):
        if kind == _NVIDIA_GPU:
            gpus.append(Gpu(index=len(gpus), path=path, numa_node=node))
        elif kind == _MELLANOX_HCA:
            hcas.append(Hca(name=f"mlx5_{len(hcas)}", path=path, numa_node=node))
    return Snapshot(gpus=tuple(gpus), hcas=tuple(hcas))


Device = tuple[PciPath, tuple[str, str], int | None]


def _address(device: Device) -> PciAddress:
    return device[0].hops[-1]


def _devices(
    element: ET.Element,
    node: int | None,
    root: str | None,
    hops: tuple[PciAddress, ...],
) -> Iterator[Device]:
    nodes = [
        int(child.attrib["os_index"])
        for child in element
        if child.tag == "object" and child.get("type") == "NUMANode"
    ]
    node = nodes[0] if len(nodes) == 1 else node
    if element.get("bridge_type") == "0-1":
        root = f"pci{element.attrib['bridge_pci'].replace('[', '')[:7]}"
    if "pci_busid" in element.attrib:
        hops = (*hops, PciAddress.parse(element.attrib["pci_busid"]))
    if element.get("type") == "PCIDev":
        words = element.attrib["pci_type"].split()
        yield PciPath(root=root, hops=hops), (words[0], words[1][1:5]), node
    for child in element:
        yield from _devices(child, node, root, hops)
