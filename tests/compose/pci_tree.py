"""The PCI tree of a machine, described from the host bridges down to the cards.

::

    gpu = switch(PEX_GEN5, leaf("gpu0", H100.card))
    below = port(switch(PEX_GEN5, leaf("nic0", CONNECTX_7.card), gpu))
    build(host, root(0x15, below, model=SAPPHIRE_RAPIDS_PORT), iommu=IommuType.IDENTITY)

Bus numbers are given out as firmware does it, depth first from the root's own bus, unless a
port says which bus is below it. From the place of each card follow its path, the bridges above
it with their kinds, and its facts in sysfs.
"""

from collections.abc import Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from nodetopo.model.pci import (
    BridgeKind,
    IommuType,
    PciAddress,
    PciBridge,
    PcieLink,
    PciFunction,
    PciPath,
)
from tests.compose.host import Host

ACS_CAN = 0x1F
"""Source validation, translation blocking, request and completion redirect, upstream
forwarding: what ports can do."""


class BridgeModel(Struct, frozen=True, kw_only=True):
    """A make of bridge: its PCI ids, and what its ports can do at most."""

    vendor: str
    device: str
    link: PcieLink
    subsystem_vendor: str = "0000"
    subsystem_device: str = "0000"
    max_payload: int = 256


class Leaf(Struct, frozen=True):
    """A function at the end of a path, by the name it is looked up with."""

    name: str
    card: PciFunction
    device: int = 0
    function: int = 0
    numa_node: int | None = None


class Port(Struct, frozen=True):
    """A root port, or a switch's downstream port, with what is plugged into it.

    Attributes:
        device: its number on the bus it is on; ``None``: the next free one.
        bus: the one below it; ``None``: the next free one.
        link: of the port; ``None``: that of what is plugged in.
        model: where it differs from its neighbours'.
        function: of a device with several ports.
    """

    below: "tuple[Leaf | Switch, ...]"
    device: int | None = None
    bus: int | None = None
    link: PcieLink | None = None
    model: BridgeModel | None = None
    acs: int | None = None
    function: int = 0


class Switch(Struct, frozen=True):
    """A PCIe switch: an upstream port and, on the bus behind it, its downstream ports."""

    model: BridgeModel
    ports: tuple[Port, ...]
    link: PcieLink
    bus: int | None = None


class Root(Struct, frozen=True):
    """A host bridge and its root ports; leaves stand on its bus themselves."""

    bus: int
    below: tuple[Port | Leaf, ...]
    model: BridgeModel
    node: int | None
    domain: int


class Place(Struct, frozen=True, kw_only=True):
    """Where a leaf came to be."""

    path: PciPath
    function: PciFunction
    numa_node: int | None

    @property
    def pci(self) -> PciAddress:
        """Its address."""
        return self.path.hops[-1]


class PciTree(Struct, frozen=True, kw_only=True):
    """All leaves by name, and every bridge."""

    places: Mapping[str, Place]
    all_bridges: Mapping[PciAddress, PciBridge]

    def __getitem__(self, name: str) -> Place:
        return self.places[name]

    def named(self, prefix: str) -> tuple[Place, ...]:
        """Return the places of the leaves ``<prefix><number>``, by number."""
        numbered = {
            int(name.removeprefix(prefix)): place
            for name, place in self.places.items()
            if name.startswith(prefix) and name.removeprefix(prefix).isdecimal()
        }
        return tuple(numbered[number] for number in sorted(numbered))

    def in_one_group(self, first: str, *others: str) -> "PciTree":
        """Return the tree with *others* in the IOMMU group of *first*."""
        group = self.places[first].function.iommu_group
        places = dict(self.places)
        for name in others:
            function = replace(places[name].function, iommu_group=group)
            places[name] = replace(places[name], function=function)
        return replace(self, places=places)

    def bridges(self, paths: Iterable[PciPath | None]) -> tuple[PciBridge, ...]:
        """Return the bridges above the ends of *paths*, by address."""
        above = {hop for path in paths if path is not None for hop in path.hops[:-1]}
        return tuple(self.all_bridges[address] for address in sorted(above))


def leaf(
    name: str, card: PciFunction, *, device: int = 0, function: int = 0, node: int | None = None
) -> Leaf:
    """Return a function; *node* is the NUMA node that it names itself, if its root names none."""
    return Leaf(name, card, device, function, node)


def port(
    *below: Leaf | Switch,
    device: int | None = None,
    bus: int | None = None,
    link: PcieLink | None = None,
    model: BridgeModel | None = None,
    acs: int | None = None,
    function: int = 0,
) -> Port:
    """Return a port with a switch, or with the functions of one device, plugged into it."""
    return Port(below, device, bus, link, model, acs, function)


def switch(
    model: BridgeModel,
    *ports: "Port | Leaf | Switch",
    link: PcieLink | None = None,
    bus: int | None = None,
) -> Switch:
    """Return a switch; what is no port gets one of its own. *link* is its upstream one's."""
    plugged = tuple(it if isinstance(it, Port) else Port((it,)) for it in ports)
    return Switch(model, plugged, link or model.link, bus)


def root(
    bus: int,
    *below: Port | Leaf,
    model: BridgeModel,
    node: int | None = 0,
    domain: int = 0,
) -> Root:
    """Return a host bridge, whose first root port has number 1 where none is given."""
    return Root(bus, below, model, node, domain)


def build(host: Host, *roots: Root, iommu: IommuType | None = None, acs: int = 0) -> PciTree:
    """Return the tree of *roots*.

    Args:
        host: knows which CPUs are near a NUMA node.
        roots: the host bridges.
        iommu: the type of every IOMMU group; ``None`` without an IOMMU. Each function and
            each bridge has a group of its own, as where ACS was on when the kernel started.
        acs: the ACS control register of every bridge; 0: none has ACS.
    """
    builder = _Builder(host, acs)
    for one in roots:
        builder.root(one)
    if iommu is not None:
        builder.group(iommu)
    return PciTree(places=builder.places, all_bridges=builder.bridges)


class _Builder:
    def __init__(self, host: Host, acs: int) -> None:
        self._host = host
        self._acs = acs
        self._root: Root
        self._next_bus = 0
        self.places: dict[str, Place] = {}
        self.bridges: dict[PciAddress, PciBridge] = {}

    def root(self, one: Root) -> None:
        self._root, self._next_bus = one, one.bus + 1
        free = 1
        for it in one.below:
            if isinstance(it, Leaf):
                self._leaf(it, one.bus, ())
                continue
            device = free if it.device is None else it.device
            free = device + 1
            self._port(
                it, one.model, BridgeKind.ROOT_PORT, self._at(one.bus, device, it.function), ()
            )

    def group(self, iommu: IommuType) -> None:
        """Give every function an IOMMU group, numbered as the kernel meets them: by address."""
        everything = [*self.bridges, *(place.pci for place in self.places.values())]
        numbers = {address: number for number, address in enumerate(sorted(everything))}
        for name, place in self.places.items():
            function = replace(place.function, iommu_group=numbers[place.pci], iommu_type=iommu)
            self.places[name] = replace(place, function=function)

    def _at(self, bus: int, device: int, function: int = 0) -> PciAddress:
        return PciAddress(self._root.domain, bus, device, function)

    def _bus(self, wanted: int | None) -> int:
        bus = self._next_bus if wanted is None else wanted
        self._next_bus = max(self._next_bus, bus + 1)
        return bus

    def _port(
        self,
        one: Port,
        model: BridgeModel,
        kind: BridgeKind,
        address: PciAddress,
        above: tuple[PciAddress, ...],
    ) -> None:
        plugged = one.below[0]
        own = plugged.link if isinstance(plugged, Switch) else plugged.card.link
        self._bridge(address, one.model or model, kind, one.link or own, one.acs)
        bus, hops = self._bus(one.bus), (*above, address)
        for it in one.below:
            if isinstance(it, Switch):
                self._switch(it, bus, hops)
            else:
                self._leaf(it, bus, hops)

    def _switch(self, one: Switch, bus: int, above: tuple[PciAddress, ...]) -> None:
        upstream = self._at(bus, 0)
        self._bridge(upstream, one.model, BridgeKind.UPSTREAM, one.link, 0)
        inner, hops, free = self._bus(one.bus), (*above, upstream), 0
        for it in one.ports:
            device = free if it.device is None else it.device
            free = device + 1
            self._port(it, one.model, BridgeKind.DOWNSTREAM, self._at(inner, device), hops)

    def _bridge(
        self,
        address: PciAddress,
        model: BridgeModel,
        kind: BridgeKind,
        link: PcieLink | None,
        acs: int | None,
    ) -> None:
        assert address not in self.bridges, f"two bridges at {address}"
        self.bridges[address] = PciBridge(
            address=address,
            kind=kind,
            vendor=model.vendor,
            device=model.device,
            subsystem_vendor=model.subsystem_vendor,
            subsystem_device=model.subsystem_device,
            numa_node=self._root.node,
            link=link or model.link,
            max_payload=model.max_payload,
            acs_capability=ACS_CAN if (self._acs if acs is None else acs) else 0,
            acs_control=self._acs if acs is None else acs,
        )

    def _leaf(self, one: Leaf, bus: int, above: tuple[PciAddress, ...]) -> None:
        assert one.name not in self.places, f"two leaves {one.name}"
        address = self._at(bus, one.device, one.function)
        node = self._root.node if one.numa_node is None else one.numa_node
        domain = f"pci{self._root.domain:04x}:{self._root.bus:02x}"
        self.places[one.name] = Place(
            path=PciPath(root=domain, hops=(*above, address)),
            function=replace(one.card, local_cpus=self._host.cpus(node)),
            numa_node=node,
        )
