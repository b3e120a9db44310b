"""PCI functions and bridges in `/sys`.

Files: kernel Documentation/ABI/testing/sysfs-bus-pci and sysfs-kernel-iommu_groups.
"""

from collections.abc import Iterator

from nodetopo.model.hca import Hca, HcaKind
from nodetopo.model.pci import (
    GT_S_TO_GENERATION,
    PciAddress,
    PciBridge,
    PcieLink,
    PciFunction,
    PciPath,
)
from nodetopo.model.snapshot import Snapshot
from nodetopo.tools.capture.archive import Entry
from tests.compose import config_space, vpd
from tests.compose.entries import file, link, real_path
from tests.compose.machine import Machine, plugged_in

BRIDGE_CLASS = "060400"
"""PCI-to-PCI bridge (PCI-SIG class codes)."""

SAYS_SO = 2
"""Functions of a card of the NVLink fabric whose VPD says what it is; the rest are silent."""

_GT_S = {generation: rate for rate, generation in GT_S_TO_GENERATION.items()}


def entries(machine: Machine) -> Iterator[Entry]:
    """Yield every function once, the bridges above GPUs and HCAs, and the IOMMU groups."""
    snapshot = machine.snapshot
    yield from _bridges(snapshot)
    seen: set[PciAddress] = set()
    for path, function, node in _functions(machine):
        address = path.hops[-1]
        if address not in seen:
            seen.add(address)
            yield from _function(path, function, node)
    yield from _virtual(snapshot)
    yield from _vital_product_data(snapshot)


def _functions(machine: Machine) -> Iterator[tuple[PciPath, PciFunction, int | None]]:
    for it in (*plugged_in(machine.snapshot), *machine.bystanders):
        if it.path is not None and it.function is not None:
            yield it.path, it.function, it.numa_node


def _bridges(snapshot: Snapshot) -> Iterator[Entry]:
    above = {
        hop: PciPath(root=it.path.root, hops=it.path.hops[:depth])
        for it in plugged_in(snapshot)
        if it.path is not None
        for depth, hop in enumerate(it.path.hops[:-1], 1)
    }
    for bridge in snapshot.bridges or ():
        yield from _bridge(above[bridge.address], bridge)


def _bridge(path: PciPath, bridge: PciBridge) -> Iterator[Entry]:
    real = real_path(path)
    yield link(f"sys/bus/pci/devices/{bridge.address}", real)
    yield from _ids(
        real,
        BRIDGE_CLASS,
        (bridge.vendor, bridge.device, bridge.subsystem_vendor, bridge.subsystem_device),
    )
    yield file(f"{real}/numa_node", -1 if bridge.numa_node is None else bridge.numa_node)
    yield from _link(real, bridge.link)
    yield Entry(path=f"{real}/config", content=config_space.of_bridge(bridge))


def _function(path: PciPath, function: PciFunction, node: int | None) -> Iterator[Entry]:
    real = real_path(path)
    yield link(f"sys/bus/pci/devices/{path.hops[-1]}", real)
    yield from _ids(
        real,
        function.pci_class,
        (
            function.vendor,
            function.device,
            function.subsystem_vendor,
            function.subsystem_device,
        ),
    )
    yield file(f"{real}/numa_node", -1 if node is None else node)
    if function.local_cpus is not None:
        yield file(f"{real}/local_cpulist", function.local_cpus)
    yield from _link(real, function.link)
    yield Entry(path=f"{real}/config", content=config_space.of_function(function))
    if function.driver is not None:
        yield link(f"{real}/driver", f"sys/bus/pci/drivers/{function.driver}")
        yield Entry(path=f"sys/bus/pci/drivers/{function.driver}")
    if function.iommu_group is not None:
        group = f"sys/kernel/iommu_groups/{function.iommu_group}"
        yield link(f"{real}/iommu_group", group)
        yield file(f"{group}/type", function.iommu_type)


def _ids(real: str, pci_class: str | None, ids: tuple[str | None, ...]) -> Iterator[Entry]:
    yield file(f"{real}/class", f"0x{pci_class}")
    names = ("vendor", "device", "subsystem_vendor", "subsystem_device")
    for name, value in zip(names, ids, strict=True):
        if value is not None:
            yield file(f"{real}/{name}", f"0x{value}")


def _link(real: str, pcie: PcieLink | None) -> Iterator[Entry]:
    """Yield the link's files; the kernel prints ``Unknown`` and 0 where a port has no link."""
    if pcie is None:
        return
    for which, generation, width in (
        ("current", pcie.generation, pcie.width),
        ("max", pcie.max_generation, pcie.max_width),
    ):
        speed = "Unknown" if generation is None else f"{_GT_S[generation]} GT/s PCIe"
        yield file(f"{real}/{which}_link_speed", speed)
        yield file(f"{real}/{which}_link_width", width or 0)


def _virtual(snapshot: Snapshot) -> Iterator[Entry]:
    """Yield the links between physical and virtual functions."""
    count: dict[PciAddress, int] = {}
    physical = {hca.pci: hca.path for hca in snapshot.hcas or () if hca.kind is not HcaKind.VIRTUAL}
    for hca in snapshot.hcas or ():
        if hca.kind is not HcaKind.VIRTUAL or hca.parent is None or hca.path is None:
            continue
        parent = physical[hca.parent]
        assert parent is not None
        number = count[hca.parent] = count.get(hca.parent, -1) + 1
        yield link(f"{real_path(hca.path)}/physfn", real_path(parent))
        yield link(f"{real_path(parent)}/virtfn{number}", real_path(hca.path))
        yield file(f"{real_path(parent)}/sriov_numvfs", number + 1)


def _vital_product_data(snapshot: Snapshot) -> Iterator[Entry]:
    """Yield those of physical Mellanox functions, which alone are read."""
    named: dict[str, Hca] = {}
    for hcas, is_management in ((snapshot.hcas, False), (snapshot.management_hcas, True)):
        for hca in hcas or ():
            named[hca.name] = hca
            is_physical = hca.kind in (HcaKind.PHYSICAL, HcaKind.BOND)
            if is_physical and hca.path is not None and hca.hca_type is not None:
                says_so = is_management and (hca.pci is None or hca.pci.function < SAYS_SO)
                content = vpd.of_hca(hca, is_management=says_so)
                yield Entry(path=f"{real_path(hca.path)}/vpd", content=content)
    for it in snapshot.data_directs or ():
        if it.path is not None and it.hcas:
            content = vpd.of_data_direct(vpd.card_of(named[it.hcas[0]]))
            yield Entry(path=f"{real_path(it.path)}/vpd", content=content)
