"""What contains what: NUMA nodes, host bridges, switches, devices, and parts of devices."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import replace

from nodetopo.drawing.devices import Device, row_name
from nodetopo.model.gpu import Gpu, MigInstance
from nodetopo.model.hca import DataDirect
from nodetopo.model.numa import CpuSet
from nodetopo.model.nvlink import Closeness
from nodetopo.model.pci import BridgeKind, PciAddress, PciPath
from nodetopo.model.snapshot import Snapshot
from nodetopo.topology.matrix import pci_closeness, word

# Devices that are near to each other, where only their distances are known.

_LEVELS = (Closeness.PHB, Closeness.PXB, Closeness.PIX)
"""The distances inside one host bridge, widest first: each group lies inside one of the last."""


def groups(
    names: Sequence[str],
    closeness: Mapping[frozenset[str], Closeness],
) -> Mapping[str, tuple[tuple[str, str], ...]]:
    """Return for each row name its groups, outermost first, as (word, first member).

    A group is a chain of devices each at most that far from the next. Groups of one, and
    groups that hold nothing but a nearer one, are left out.
    """
    found: dict[str, list[tuple[str, tuple[str, ...]]]] = {name: [] for name in names}
    for level in _LEVELS:
        for members in _chains(names, closeness, level):
            for name in members:
                above = found[name]
                if above and above[-1][1] == members:
                    above.pop()
                if len(members) > 1:
                    above.append((word(level), members))
    return {
        name: tuple((word_, members[0]) for word_, members in chain)
        for name, chain in found.items()
    }


def _chains(
    names: Iterable[str],
    closeness: Mapping[frozenset[str], Closeness],
    level: Closeness,
) -> list[tuple[str, ...]]:
    chains: list[tuple[str, ...]] = []
    for name in names:
        near = [
            chain
            for chain in chains
            if any(
                closeness.get(frozenset((name, other)), Closeness.SYS) <= level for other in chain
            )
        ]
        chains = [chain for chain in chains if chain not in near]
        chains.append((*(member for chain in near for member in chain), name))
    return chains


# What each bridge on a way is: root port, or one side of a switch.

_AFTER = MappingProxyType(
    {
        None: BridgeKind.ROOT_PORT,
        BridgeKind.ROOT_PORT: BridgeKind.UPSTREAM,
        BridgeKind.UPSTREAM: BridgeKind.DOWNSTREAM,
        BridgeKind.DOWNSTREAM: BridgeKind.UPSTREAM,
        BridgeKind.PCI_BRIDGE: BridgeKind.PCI_BRIDGE,
    },
)
"""What stands below what: a switch is an upstream port with downstream ports behind it (PCI
Express Base Specification, 1.3.3). Conventional bridges only lead to more of themselves."""


TITLE = MappingProxyType(
    {
        BridgeKind.ROOT_PORT: "root port",
        BridgeKind.UPSTREAM: "switch upstream port",
        BridgeKind.DOWNSTREAM: "switch downstream port",
        BridgeKind.PCI_BRIDGE: "PCI bridge",
    },
)


def kinds(snapshot: Snapshot) -> Mapping[PciAddress, BridgeKind]:
    """Return the kind of every bridge that told one."""
    return {
        bridge.address: bridge.kind for bridge in snapshot.bridges or () if bridge.kind is not None
    }


def roles(path: PciPath, known: Mapping[PciAddress, BridgeKind]) -> tuple[BridgeKind, ...]:
    """Return the role of each bridge of *path*, root port first; the device has none.

    A bridge whose kind is unknown is what must stand below the one above it. In a collapsed
    path each hop is a whole switch, named by its upstream port.
    """
    if path.is_collapsed:
        return (BridgeKind.UPSTREAM,) * (len(path.hops) - 1)
    found: list[BridgeKind] = []
    for address in path.hops[:-1]:
        above = found[-1] if found else None
        found.append(known.get(address) or _AFTER[above])
    return tuple(found)


class BranchKind(StrEnum):
    """What a branch of the tree is."""

    NUMA = "numa"
    ROOT = "root"
    SWITCH = "switch"
    BRIDGE = "bridge"
    GROUP = "group"
    GPU = "gpu"
    NIC = "nic"
    DATA_DIRECT = "data-direct"
    MANAGEMENT = "nvlink-management"
    MIG = "mig"


class Branch(Struct, frozen=True, kw_only=True):
    """One place of the tree and all below it, in the order of PCI addresses."""

    kind: BranchKind
    # A NUMA node's number, or the list of nodes where a text names several; a host bridge as sysfs
    # names it; a switch's upstream port; the word of a group whose devices are that near to each
    # other where nothing says why, and its first device; a device's row. None: not reported.
    name: str | None
    address: PciAddress | None = None
    port: PciAddress | None = None  # the bridge above, the other end of this link
    device: Device | None = None
    instance: MigInstance | None = None
    children: tuple["Branch", ...] = ()

    def walk(self) -> Iterator["Branch"]:
        yield self
        for child in self.children:
            yield from child.walk()


_Levels = tuple[Branch, ...]


def containment(snapshot: Snapshot) -> tuple[Branch, ...]:
    """Return the NUMA nodes that have CPUs or devices, by number; unknown ones last.

    Where a source gives no PCI tree, devices stand in groups by their closeness instead.
    """
    # Parts of HCAs hang below theirs.
    hcas = snapshot.hcas or ()
    whole = {hca.pci for hca in hcas if hca.parent is None}
    devices: list[Device] = [*snapshot.gpus]
    devices += [hca for hca in hcas if hca.parent not in whole - {None}]
    devices += [*(snapshot.data_directs or ()), *(snapshot.management_hcas or ())]
    closeness = pci_closeness(snapshot)
    names = _numa_names(devices, snapshot, closeness)
    with_cpus = {str(node.id) for node in snapshot.numa_nodes or () if len(node.cpus)}

    def order(name: str | None) -> tuple[bool, tuple[int, ...]]:
        return name is None, () if name is None else tuple(CpuSet.parse(name))

    return tuple(
        Branch(
            kind=BranchKind.NUMA,
            name=name,
            children=_below(
                [device for device in devices if names[id(device)] == name],
                snapshot,
                closeness,
            ),
        )
        for name in sorted(with_cpus | set(names.values()), key=order)
    )


def _numa_names(
    devices: list[Device],
    snapshot: Snapshot,
    closeness: Mapping[frozenset[str], Closeness],
) -> Mapping[int, str | None]:
    """Return each device's NUMA node by ``id()``.

    One that does not tell is where the nearest device is that does, if the two are not SYS
    apart: every nearer word means the same node.
    """
    own: dict[int, str | None] = {}
    for device in devices:
        own[id(device)] = None if device.numa_node is None else str(device.numa_node)
        if device.numa_node is None and isinstance(device, Gpu) and device.numa_affinity:
            own[id(device)] = str(CpuSet.of(device.numa_affinity))
    rows = {id(device): row_name(device, snapshot) for device in devices}
    names = dict(own)
    for device in devices:
        if own[id(device)] is None:
            near = [
                (distance, position)
                for position, other in enumerate(devices)
                if own[id(other)] is not None
                and (distance := closeness.get(frozenset((rows[id(device)], rows[id(other)]))))
                not in (None, Closeness.SYS)
            ]
            names[id(device)] = own[id(devices[min(near)[1]])] if near else None
    return names


def _below(
    devices: list[Device],
    snapshot: Snapshot,
    closeness: Mapping[frozenset[str], Closeness],
) -> tuple[Branch, ...]:
    known = kinds(snapshot)
    without_path = [row_name(device, snapshot) for device in devices if device.path is None]
    near = groups(without_path, closeness)
    ordered = sorted(devices, key=lambda device: (device.pci is None, device.pci or _NOWHERE))
    placed = []
    for device in ordered:
        leaf = _leaf(device, snapshot)
        if device.path is None:
            levels = tuple(
                Branch(kind=BranchKind.GROUP, name=f"{word} {first}")
                for word, first in near[row_name(device, snapshot)]
            )
        else:
            levels = tuple(_levels(device, known))
        placed.append((levels, leaf))
    return _grow(placed)


_NOWHERE = PciAddress(0, 0, 0, 0)


def _levels(device: Device, known: Mapping[PciAddress, BridgeKind]) -> Iterator[Branch]:
    assert device.path is not None
    if device.path.root is not None:
        yield Branch(kind=BranchKind.ROOT, name=device.path.root)
    above = None
    for address, role in zip(device.path.hops, roles(device.path, known), strict=False):
        if role in (BridgeKind.UPSTREAM, BridgeKind.PCI_BRIDGE):
            kind = BranchKind.SWITCH if role is BridgeKind.UPSTREAM else BranchKind.BRIDGE
            yield Branch(kind=kind, name=str(address), address=address, port=above)
        above = address


def _grow(placed: Iterable[tuple[_Levels, Branch]]) -> tuple[Branch, ...]:
    """Return the leaves under their levels; a level stands where its first leaf does."""
    tops: list[Branch] = []
    under: dict[tuple[str, str | None], list[tuple[_Levels, Branch]]] = {}
    for levels, leaf in placed:
        if not levels:
            tops.append(leaf)
            continue
        key = (levels[0].kind, levels[0].name)
        if key not in under:
            tops.append(levels[0])
        under.setdefault(key, []).append((levels[1:], leaf))
    return tuple(
        top if top.device else replace(top, children=_grow(under[top.kind, top.name]))
        for top in tops
    )


def _leaf(device: Device, snapshot: Snapshot) -> Branch:
    hops = device.path.hops if device.path else ()
    kind = BranchKind.NIC
    if isinstance(device, Gpu):
        kind = BranchKind.GPU
    elif isinstance(device, DataDirect):
        kind = BranchKind.DATA_DIRECT
    elif device in (snapshot.management_hcas or ()):
        kind = BranchKind.MANAGEMENT
    return Branch(
        kind=kind,
        name=row_name(device, snapshot),
        address=device.pci,
        port=hops[-2] if len(hops) > 1 else None,
        device=device,
        children=_parts(device, snapshot),
    )


def _parts(device: Device, snapshot: Snapshot) -> tuple[Branch, ...]:
    """Return a GPU's MIG devices, or the virtual functions and subfunctions of an HCA."""
    if isinstance(device, Gpu):
        instances = device.mig.instances if device.mig else ()
        return tuple(
            Branch(kind=BranchKind.MIG, name=instance.profile, instance=instance)
            for instance in instances
        )
    hcas = snapshot.hcas or ()
    wholes = [hca for hca in hcas if hca.parent is None and hca.pci == device.pci is not None]
    if not wholes or device is not wholes[0]:
        return ()  # a bond shares the address of its first port, which has the parts
    return tuple(_leaf(hca, snapshot) for hca in hcas if hca.parent == device.pci)
