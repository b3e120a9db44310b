"""A composed machine's `/sys` and `/proc`, as far as this agent and a real kubelet read them."""

from collections.abc import Iterator
from dataclasses import dataclass
from os.path import relpath

from agent.model.hca import Hca, HcaPort
from agent.model.pci import GT_S_TO_GENERATION, PcieLink, PciPath
from agent.probes.archive import Entry, render
from tests.compose import cpus
from tests.compose.kubelet import kubelet_yaml
from tests.compose.machine import Machine, PciIds

HCA_CLASS = "020700"
"""InfiniBand controller (PCI-SIG class codes)."""

BRIDGE_CLASS = "060400"
ACS_HEADER = 0x0001_000D
"""Extended capability 000d, version 1, last of the list (PCI Express Base, 7.7.11)."""
ACS_REDIRECTS = 0x001D
"""Control: source validation, request and completion redirect, upstream forwarding."""

_GT_S = {generation: rate for rate, generation in GT_S_TO_GENERATION.items()}
_LANE = {100.0: "EDR", 400.0: "NDR"}
_PHYSICAL = {"LinkUp": 5, "Polling": 2, "Disabled": 3}
_STATE = {"DOWN": 1, "INIT": 2, "ARMED": 3, "ACTIVE": 4}


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a function is, and how it is attached."""

    path: PciPath
    numa_node: int | None
    link: PcieLink | None


def sysfs_text(machine: Machine) -> str:
    """Return the archive of *machine*."""
    return f"# {machine.shape}: written by `python -m tests.compose`\n" + render(
        [*cpus.entries(machine), *_pci(machine), *_host(machine)],
    )


def file(path: str, text: object) -> Entry:
    """Return a file of text, with the newline that every sysfs file ends in."""
    return Entry(path=path, content=f"{text}\n".encode())


def link(path: str, to: str) -> Entry:
    """Return a symbolic link, relative as sysfs writes them."""
    return Entry(path=path, target=relpath(to, path.rpartition("/")[0]))


def real_path(path: PciPath) -> str:
    """Return where the kernel keeps the function of *path*."""
    return "/".join(["sys/devices", path.root, *map(str, path.hops)])


def _host(machine: Machine) -> Iterator[Entry]:
    snapshot = machine.snapshot
    kernel = snapshot.kernel
    assert kernel is not None
    yield file("sys/class/dmi/id/product_name", snapshot.product_name)
    yield file("proc/sys/kernel/osrelease", kernel.release)
    yield file("proc/sys/kernel/arch", kernel.machine)
    yield file("proc/cmdline", kernel.command_line)
    for name, value in (kernel.sysctls or {}).items():
        yield file(f"proc/sys/{name.replace('.', '/')}", value)
    modules = (f"{name} 16384 0 - Live 0x0000000000000000" for name in kernel.modules or ())
    yield file("proc/modules", "\n".join(modules))
    assert snapshot.kubelet is not None
    yield file(snapshot.kubelet.source.removeprefix("/"), kubelet_yaml(snapshot.kubelet))


def _pci(machine: Machine) -> Iterator[Entry]:
    snapshot = machine.snapshot
    yield from _bridges(machine)
    for gpu in snapshot.gpus:
        assert gpu.path is not None
        assert gpu.pci_class is not None
        place = Place(path=gpu.path, numa_node=gpu.numa_node, link=gpu.pcie)
        yield from _function(machine, place, gpu.pci_class, machine.gpu_ids)
    for hca in snapshot.hcas or ():
        assert hca.path is not None
        assert machine.hca_ids is not None
        place = Place(path=hca.path, numa_node=hca.numa_node, link=hca.pcie)
        yield from _function(machine, place, HCA_CLASS, machine.hca_ids)
        yield from _hca(hca, machine.hca_board)
    for it in machine.bystanders:
        place = Place(path=it.path, numa_node=it.numa_node, link=it.link)
        yield from _function(machine, place, it.pci_class, it.ids)
        if it.netdev is not None:
            yield from _netdev(real_path(it.path), it.netdev, 1)


def _bridges(machine: Machine) -> Iterator[Entry]:
    snapshot = machine.snapshot
    paths = [gpu.path for gpu in snapshot.gpus] + [hca.path for hca in snapshot.hcas or ()]
    above = {
        hop: PciPath(root=path.root, hops=path.hops[:depth])
        for path in paths
        if path is not None
        for depth, hop in enumerate(path.hops[:-1], 1)
    }
    for bridge in snapshot.bridges or ():
        assert bridge.vendor is not None
        assert bridge.device is not None
        ids = PciIds(
            vendor=bridge.vendor,
            device=bridge.device,
            subsystem_vendor=bridge.vendor,
            subsystem_device="0000",
        )
        place = Place(path=above[bridge.address], numa_node=bridge.numa_node, link=bridge.link)
        yield from _function(machine, place, BRIDGE_CLASS, ids)
        yield Entry(path=f"{real_path(place.path)}/config", content=config(bridge.acs))


def _function(machine: Machine, place: Place, pci_class: str, ids: PciIds) -> Iterator[Entry]:
    real = real_path(place.path)
    nodes = {node.id: node for node in machine.snapshot.numa_nodes or ()}
    yield link(f"sys/bus/pci/devices/{place.path.hops[-1]}", real)
    yield file(f"{real}/class", f"0x{pci_class}")
    yield file(f"{real}/vendor", f"0x{ids.vendor}")
    yield file(f"{real}/device", f"0x{ids.device}")
    yield file(f"{real}/subsystem_vendor", f"0x{ids.subsystem_vendor}")
    yield file(f"{real}/subsystem_device", f"0x{ids.subsystem_device}")
    yield file(f"{real}/numa_node", -1 if place.numa_node is None else place.numa_node)
    if place.numa_node is not None:
        yield file(f"{real}/local_cpulist", nodes[place.numa_node].cpus)
    if place.link is not None:
        yield from _link(real, "current", place.link.generation, place.link.width)
        yield from _link(real, "max", place.link.max_generation, place.link.max_width)


def _link(real: str, which: str, generation: int | None, width: int | None) -> Iterator[Entry]:
    assert generation is not None
    yield file(f"{real}/{which}_link_speed", f"{_GT_S[generation]} GT/s PCIe")
    yield file(f"{real}/{which}_link_width", width)


def config(acs: bool | None) -> bytes:
    """Return a config space that ends after its ACS capability; real ones go on to 4096 bytes.

    ``None`` gives the 64 bytes that a reader without CAP_SYS_ADMIN gets.
    """
    standard = bytes(0x40)
    if acs is None:
        return standard
    control = ACS_REDIRECTS if acs else 0
    return (
        standard
        + bytes(0x100 - len(standard))
        + ACS_HEADER.to_bytes(4, "little")
        + (0x001F).to_bytes(2, "little")
        + control.to_bytes(2, "little")
    )


def _hca(hca: Hca, board: str | None) -> Iterator[Entry]:
    assert hca.path is not None
    function = real_path(hca.path)
    place = f"{function}/infiniband/{hca.name}"
    yield link(f"sys/class/infiniband/{hca.name}", place)
    yield link(f"{place}/device", function)
    yield file(f"{place}/node_type", "1: CA")
    yield file(f"{place}/hca_type", hca.hca_type)
    yield file(f"{place}/board_id", board)
    yield file(f"{place}/fw_ver", hca.firmware)
    yield file(f"{place}/node_guid", hca.node_guid)
    yield file(f"{place}/sys_image_guid", hca.sys_image_guid)
    for port in hca.ports:
        yield from _port(f"{place}/ports/{port.number}", port)
    for netdev in hca.netdevs:
        yield from _netdev(function, netdev, 32)


def _port(place: str, port: HcaPort) -> Iterator[Entry]:
    assert port.state is not None
    assert port.physical_state is not None
    assert port.rate_gbps is not None
    yield file(f"{place}/state", f"{_STATE[port.state]}: {port.state}")
    yield file(f"{place}/phys_state", f"{_PHYSICAL[port.physical_state]}: {port.physical_state}")
    yield file(f"{place}/rate", f"{port.rate_gbps:g} Gb/sec (4X {_LANE[port.rate_gbps]})")
    yield file(f"{place}/link_layer", port.layer)


def _netdev(function: str, name: str, kind: int) -> Iterator[Entry]:
    """Yield a network interface; *kind* is ARPHRD_ETHER 1 or ARPHRD_INFINIBAND 32."""
    place = f"{function}/net/{name}"
    yield link(f"sys/class/net/{name}", place)
    yield link(f"{place}/device", function)
    yield file(f"{place}/type", kind)
    yield file(f"{place}/dev_port", 0)
    yield file(f"{place}/operstate", "up")
