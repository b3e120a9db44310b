"""What stands on a device's card."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from agent.cli.topo.containment import Branch, BranchKind
from agent.cli.topo.ports import port_text
from agent.model.gpu import Gpu
from agent.model.hca import DataDirect, Hca, HcaPort, LinkLayer

_MAKER = re.compile(r"^(NVIDIA |GeForce |Tesla |Graphics Device )+")
_MEMORY = re.compile(r"[ -][0-9]+ ?GB\b|\bHBM[0-9]e?\b")
_LAYER = {LinkLayer.INFINIBAND: "IB", LinkLayer.ETHERNET: "Eth"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of a card: a heading, a plain one, or a warning."""

    text: str
    is_head: bool = False
    is_bad: bool = False


def card(branches: Sequence[Branch]) -> tuple[Line, ...]:
    """Return the lines of one card; several *branches* are the functions of one PCI device."""
    if branches[0].kind is BranchKind.MANAGEMENT:
        return tuple(_management(branches))
    return tuple(line for branch in branches for line in _lines(branch))


def tip(branch: Branch) -> str:
    """Return all that is known of the device, for the pointer."""
    device = branch.device
    pci = None if device is None or device.pci is None else str(device.pci)
    words: list[str | None] = [branch.name, pci]
    if isinstance(device, Gpu):
        words += [device.product, device.uuid]
    if isinstance(device, Hca):
        words += [device.name, device.firmware and f"firmware {device.firmware}"]
        words += [port_text(port) for port in device.ports]
        words += [netdev.name for netdev in device.netdevs]
    return " · ".join(word for word in words if word)


def _management(branches: Sequence[Branch]) -> Iterator[Line]:
    """Yield only the names: no job uses these ports."""
    for branch in branches:
        yield Line(text=branch.name or "?", is_head=branch is branches[0])
    yield Line(text="for NVLink only")
    if branches[0].address is not None:
        yield Line(text=str(branches[0].address).removeprefix("0000:"))


def _lines(branch: Branch) -> Iterator[Line]:
    device = branch.device
    yield Line(text=branch.name or "?", is_head=True)
    match device:
        case Gpu():
            yield from _gpu(device)
        case Hca():
            yield from _hca(branch, device)
        case DataDirect():
            yield Line(text="Data Direct")
            yield from (Line(text=f"of {name}") for name in device.hcas)
    if device is not None and device.pci is not None:
        yield Line(text=str(device.pci).removeprefix("0000:"))


def _gpu(gpu: Gpu) -> Iterator[Line]:
    if gpu.is_lost:
        yield Line(text="lost", is_bad=True)
    if gpu.product:
        yield Line(text=_short(gpu.product))
    if gpu.memory_mib is not None:
        yield Line(text=f"{gpu.memory_mib / 1024:.0f} GiB")
    if gpu.memory_numa_node is not None:
        yield Line(text=f"is NUMA {gpu.memory_numa_node}")
    if gpu.mig is not None and gpu.is_divided:
        profiles = [instance.profile or "?" for instance in gpu.mig.instances]
        yield Line(text="MIG" if profiles else "MIG, empty")
        for profile in sorted(set(profiles)):
            yield Line(text=f"{profiles.count(profile)} x {profile}")


def _short(product: str) -> str:
    """Return the product without its maker and without the memory, which has its own line."""
    bare = _MAKER.sub("", product)
    return " ".join(_MEMORY.sub(" ", bare).split()) or product


def _hca(branch: Branch, hca: Hca) -> Iterator[Line]:
    if hca.name not in (branch.name, str(hca.pci)):
        yield Line(text=hca.name)
    yield from _ports(hca.ports)
    if branch.children:
        yield Line(text=f"+ {len(branch.children)} parts")


def _ports(ports: Sequence[HcaPort]) -> Iterator[Line]:
    texts = [_rate(port) for port in ports]
    for text in dict.fromkeys(filter(None, texts)):
        count = texts.count(text)
        yield Line(text=text if count == 1 else f"{count} x {text}")
    for port in ports:
        if port.state not in (None, "ACTIVE"):
            yield Line(text=f"port {port.number} {port.state}", is_bad=True)


def _rate(port: HcaPort) -> str:
    layer = _LAYER[port.layer] if port.layer else ""
    rate = "" if port.rate_gbps is None else f"{port.rate_gbps:g} Gb/s"
    return f"{layer} {rate}".strip()
