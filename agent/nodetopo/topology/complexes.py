"""GPU–NIC complexes: which GPUs and HCAs belong together, and what their ports must be set to.

A complex is what RDMA to and from GPU memory goes through. On machines of NVIDIA's own design the
bridges of a complex need certain Access Control Services flags, or the traffic is refused or
takes the way through the CPU. The layouts that are known, and the flags that they need, are those
of rdma-core's ``rdma_topo`` (kernel-boot/rdma_topo, 2026): docs/internals/topology.md compares
the two field by field.

::

    data-direct   root port ─ switch ┬─ port ─ Data Direct function of a ConnectX-8
                                     └─ port ─ switch ─ port ─ GPU       (the HCA is elsewhere)
    inline        root port ─ … ─ switch ┬─ port ─ … ─ HCA
                                         └─ port ─ switch ─ port ─ GPU
    switch        any other switch with GPUs and HCAs below it
    numa          GPUs and HCAs that share no switch, only a NUMA node

Flags are written as the kernel's parameter ``pci=config_acs=`` takes them, the highest bit first:
direct translated, egress control, upstream forwarding, completion redirect, request redirect,
translation blocking, source validation; ``1`` set, ``0`` clear, ``x`` as it is (kernel
Documentation/admin-guide/kernel-parameters.txt).
"""

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import replace

from nodetopo.model.gpu import Gpu
from nodetopo.model.hca import DataDirect, Hca, HcaKind
from nodetopo.model.pci import PciAddress, PciBridge, PciPath
from nodetopo.model.snapshot import Snapshot
from nodetopo.topology.path import shared_hops


class ComplexKind(StrEnum):
    """How the GPUs and HCAs of a complex are joined."""

    DATA_DIRECT = "data-direct"
    INLINE = "inline"
    SWITCH = "switch"
    NUMA = "numa"


class PortMake(StrEnum):
    """Bridges whose flags are known, by PCI ids."""

    GRACE = "Grace root port"
    VERA = "Vera root port"
    CONNECTX = "ConnectX switch port"
    BLUEFIELD = "BlueField-3 switch port"


MAKES: Mapping[tuple[str, str], PortMake] = MappingProxyType(
    {
        ("10de", "22b1"): PortMake.GRACE,
        ("10de", "22b2"): PortMake.GRACE,
        ("10de", "22b8"): PortMake.GRACE,
        ("10de", "2f95"): PortMake.VERA,
        ("10de", "2f96"): PortMake.VERA,
        ("15b3", "1979"): PortMake.CONNECTX,
        ("15b3", "197c"): PortMake.CONNECTX,
        ("15b3", "197b"): PortMake.BLUEFIELD,
    },
)
"""Vendor and device of a bridge → what it is (pci.ids; rdma_topo, ``pci_device_types``)."""

CONNECTX = frozenset({("15b3", "1021"), ("15b3", "1023"), ("15b3", "1025")})
"""ConnectX-7, -8 and -9 (pci.ids): the HCAs of the layouts that are known. BlueField-3 is for
storage and management on these machines."""

ISOLATED, ISOLATED_VERA = "xx111x1", "xx101x1"
"""Flags set by the kernel at boot (drivers/pci/pci.c, pci_std_enable_acs); a Vera root port cannot
redirect completions.
"""

OPEN = "xx000x0"
"""Nothing is turned away: for jobs on bare metal behind a switch that HCA and GPU share."""

DIRECT = "x0x00xx"
"""Nothing on the way between peers is turned away; the rest is as firmware and kernel have it."""

DIRECT_TRANSLATED = 0x40
"""The flag that lets requests through whose addresses were translated beforehand (ATS): a node
that sets it on purpose does not make the detour."""

_TRANSLATED = "1x111x1"
"""Isolated, but for requests that were translated beforehand: for virtual machines with ATS."""

_DATA_DIRECT_PORT, _GPU_PORT, _ONE_GROUP = "xx110x1", "xx101x1", "xx111x0"
"""Data Direct's requests go straight to the GPU, and the GPU's answers straight back; all else
goes up. A root port without source validation puts all below it into one IOMMU group."""


class PortRole(StrEnum):
    """The function of a port in its complex."""

    ROOT = "root port"
    DATA_DIRECT = "to Data Direct"
    GPU = "to the GPU"
    HCA = "to the HCA"
    ABOVE = "above the switch"
    BELOW = "below the switch"
    OTHER = "elsewhere"


class Port(Struct, frozen=True, kw_only=True):
    """A bridge and its Access Control Services."""

    address: PciAddress
    role: PortRole
    make: PortMake | None = None  # None for all others
    control: int | None = None  # the register now, 0 without the capability
    has_acs: bool | None = None  # it has the capability
    # Flags as of `config_acs`; None where any will do, or none are known.
    expected: str | None = None

    @property
    def wanted(self) -> int | None:
        """The expected register; ``None`` if unknown."""
        if self.expected is None or self.control is None:
            return None
        return with_flags(self.control, self.expected)

    @property
    def is_right(self) -> bool | None:
        """Whether every flag is as expected; ``None`` if unknown."""
        return None if self.wanted is None else self.wanted == self.control


class Complex(Struct, frozen=True, kw_only=True):
    """GPUs, HCAs and the bridges that join them."""

    kind: ComplexKind
    gpus: tuple[Gpu, ...]  # ascending by index
    hcas: tuple[Hca, ...]  # by address; physical functions, and bonds
    data_direct: DataDirect | None = None  # through which its HCAs reach the GPU
    numa_node: int | None = None  # of its first HCA, else of its first GPU
    switch: PciAddress | None = None  # upstream port of the shared switch
    root_port: PciAddress | None = None  # above that switch
    ports: tuple[Port, ...] = ()  # on the way, from the root port down
    doubt: str | None = None  # why its layout is unknown; no flags are expected then

    @property
    def has_ats(self) -> bool | None:
        """Whether its first HCA has Address Translation Services; ``None`` is unknown."""
        function = self.hcas[0].function if self.hcas else None
        return None if function is None else function.has_ats


class Complexes(Struct, frozen=True, kw_only=True):
    """All complexes of a node."""

    # The kind that decides the flags of the machine; None where there is no complex, or only such
    # whose flags are not known.
    layout: ComplexKind | None = None
    # The HCAs are set up to be handed to virtual machines, which decides the flags of the inline
    # layout: they have Address Translation Services; None where they differ, or that is not known.
    for_virtual_machines: bool | None = None
    complexes: tuple[Complex, ...] = ()  # by their first GPU
    others: tuple[Port, ...] = ()  # ports in no complex whose flags are known, by address
    # lone_gpus, lone_hcas: in no complex
    lone_gpus: tuple[Gpu, ...] = ()
    lone_hcas: tuple[Hca, ...] = ()

    @property
    def ports(self) -> tuple[Port, ...]:
        """Every port once, by address."""
        all_ports = {port.address: port for port in self.others}
        all_ports |= {port.address: port for it in self.complexes for port in it.ports}
        return tuple(all_ports[address] for address in sorted(all_ports))


def complexes(snapshot: Snapshot, *, for_virtual_machines: bool | None = None) -> Complexes:
    """Return the complexes of a node.

    Args:
        for_virtual_machines: whether the node hands its HCAs and GPUs to virtual machines;
            ``None``: as the HCAs of the inline layout are set up.
    """
    found = _Finder(snapshot)
    layout, members = found.layout, found.members()
    if layout is ComplexKind.INLINE and for_virtual_machines is None:
        ats = {it.has_ats for it in members if it.kind is ComplexKind.INLINE}
        for_virtual_machines = ats.pop() if len(ats) == 1 else None
    elif layout is not ComplexKind.INLINE:
        for_virtual_machines = None
    finished = tuple(
        replace(it, ports=tuple(found.ports(it, for_virtual_machines))) for it in members
    )
    own = {port.address for it in finished for port in it.ports if port.expected is not None}
    others = tuple(found.others(own, for_virtual_machines))
    elsewhere = {port.address: port.expected for port in others}
    finished = tuple(
        replace(
            it,
            ports=tuple(
                port
                if port.expected or it.doubt
                else replace(port, expected=elsewhere.get(port.address))
                for port in it.ports
            ),
        )
        for it in finished
    )
    inside = {port.address for it in finished for port in it.ports}
    used_gpus = {gpu.index for it in finished for gpu in it.gpus}
    used_hcas = {hca.name for it in finished for hca in it.hcas}
    return Complexes(
        layout=layout,
        for_virtual_machines=for_virtual_machines,
        complexes=finished,
        others=tuple(port for port in others if port.address not in inside),
        lone_gpus=tuple(gpu for gpu in snapshot.gpus if gpu.index not in used_gpus),
        lone_hcas=tuple(hca for hca in _physical(snapshot) if hca.name not in used_hcas),
    )


def with_flags(control: int, flags: str) -> int:
    """Return *control* with *flags* set and cleared, as ``pci=config_acs=`` would."""
    for bit, flag in enumerate(reversed(flags)):
        if flag == "1":
            control |= 1 << bit
        elif flag == "0":
            control &= ~(1 << bit)
    return control


def as_flags(control: int) -> str:
    """Return a register in the form of the flags."""
    return f"{control & 0x7F:07b}"


def isolation(make: PortMake | None) -> str:
    """Return the flags that the kernel gives a port at boot."""
    return ISOLATED_VERA if make is PortMake.VERA else ISOLATED


def kernel_argument(found: Complexes) -> str | None:
    """Return the kernel's parameter that sets the flags at boot.

    Ports that need what the kernel sets by itself are left out, and those behind other switches
    that turn nobody away as they are. ``None`` where none is left.
    """
    settings = [
        f"{port.expected}@{port.address}"
        for port in found.ports
        if port.expected is not None
        and port.expected != isolation(port.make)
        and (port.expected != DIRECT or not port.is_right)
    ]
    return f"pci=config_acs={';'.join(settings)}" if settings else None


class _Finder:
    """Finds the complexes of one snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._bridges: Mapping[PciAddress, PciBridge] = {
            bridge.address: bridge for bridge in snapshot.bridges or ()
        }
        self._hcas = _physical(snapshot)
        self.layout = self._layout()

    def members(self) -> tuple[Complex, ...]:
        """Return the complexes without their ports; each GPU and HCA is in one at most."""
        gpus = list(self._snapshot.gpus)
        hcas = list(self._hcas)
        found: list[Complex] = []

        def take(some: Iterable[Complex]) -> None:
            for it in some:
                found.append(it)
                gpus[:] = [gpu for gpu in gpus if gpu not in it.gpus]
                hcas[:] = [hca for hca in hcas if hca not in it.hcas]

        take(self._data_direct())
        if self.layout is ComplexKind.INLINE:
            take(self._inline(gpus))
        take(self._behind_switches(gpus, hcas))
        take(self._on_numa_nodes(gpus, hcas))
        return tuple(sorted(found, key=lambda it: [gpu.index for gpu in it.gpus] or [len(gpus)]))

    def ports(self, it: Complex, is_virtual: bool | None) -> Iterator[Port]:
        """Yield the ports of a complex with the flags that its own layout asks for."""
        devices = [*it.gpus, *it.hcas, *((it.data_direct,) if it.data_direct else ())]
        if it.kind is ComplexKind.NUMA:
            devices = [one for one in devices if one.path is not None]
        elif it.kind is ComplexKind.DATA_DIRECT:
            devices = [one for one in devices if not isinstance(one, Hca)]
        below = {hop: one for one in reversed(devices) if one.path for hop in one.path.hops[:-1]}
        for address in sorted(below):
            role = self._role(it, address, below[address])
            yield self._port(address, role, self._expected(it, role, address, is_virtual))

    def others(self, own: Iterable[PciAddress], is_virtual: bool | None) -> Iterator[Port]:
        """Yield the ports that a known layout wants isolated, or open, whatever is below them.

        Without NVIDIA's root ports a node of GPUs that share only a NUMA node is any server, whose
        firmware and kernel decide.
        """
        makes = {self._make(address) for address in self._bridges}
        is_known = self.layout in (ComplexKind.DATA_DIRECT, ComplexKind.INLINE) or (
            self.layout is ComplexKind.NUMA and makes & {PortMake.GRACE, PortMake.VERA}
        )
        for address in sorted(set(self._bridges) - set(own)) if is_known else ():
            make = self._make(address)
            bridge = self._bridges[address]
            is_without = bridge.has_acs is False
            is_in_doubt = bridge.has_acs is None and bridge.acs_control is not None  # an old file
            if make is None or is_without or is_in_doubt:
                continue
            expected: str | None = isolation(make)
            if self.layout is ComplexKind.INLINE and not is_virtual:
                expected = None if is_virtual is None else OPEN
            yield self._port(address, PortRole.OTHER, expected)

    def _layout(self) -> ComplexKind | None:
        """Return what rdma_topo takes the machine for; ``switch`` is ours."""
        if self._snapshot.data_directs:
            return ComplexKind.DATA_DIRECT
        paths = [gpu.path for gpu in self._snapshot.gpus if gpu.path is not None]
        if any(len(path.hops) == _BELOW_ROOT_PORT and not path.is_collapsed for path in paths):
            return ComplexKind.NUMA
        return ComplexKind.INLINE if any(map(self._shared_switch, paths)) else None

    def _data_direct(self) -> Iterator[Complex]:
        named = {hca.name: hca for hca in self._hcas}
        for direct in self._snapshot.data_directs or ():
            hcas = tuple(sorted((named[it] for it in direct.hcas if it in named), key=_by_address))
            hops = direct.path.hops if direct.path else ()
            near = tuple(
                gpu
                for gpu in self._snapshot.gpus
                if gpu.path and direct.path and shared_hops(gpu.path, direct.path)
            )
            doubt = None
            if not hops or not any(gpu.path for gpu in self._snapshot.gpus):
                doubt = "the places of Data Direct and GPUs on the PCI bus are not known"
            elif not hcas:
                doubt = "no HCA names the card of its Data Direct function"
            elif len(near) != 1:
                doubt = f"{len(near)} GPUs share a root port with its Data Direct function"
            elif not self._is_known_data_direct(direct.path, near[0].path):
                doubt = "Data Direct and GPU are not wired in a way that is known"
            yield Complex(
                kind=ComplexKind.DATA_DIRECT,
                gpus=near,
                hcas=hcas,
                data_direct=direct,
                numa_node=_numa_node(hcas, (*near, direct)),
                switch=hops[1] if len(hops) > _BELOW_ROOT_PORT else None,
                root_port=hops[0] if len(hops) > 1 else None,
                doubt=doubt,
            )

    def _is_known_data_direct(self, direct: PciPath | None, gpu: PciPath | None) -> bool:
        """Return whether both hang on one ConnectX switch, as the module's picture shows."""
        if direct is None or gpu is None:
            return False
        ports = (*direct.hops[1:-1], *gpu.hops[1:-1])
        return (
            (len(direct.hops), len(gpu.hops)) == (_DATA_DIRECT_HOPS, _GPU_HOPS)
            and direct.hops[:2] == gpu.hops[:2]
            and self._make(direct.hops[0]) is PortMake.GRACE
            and all(self._make(port) is PortMake.CONNECTX for port in ports)
        )

    def _inline(self, gpus: Iterable[Gpu]) -> Iterator[Complex]:
        by_switch: dict[PciAddress, list[Gpu]] = {}
        for gpu in gpus:
            switch = self._shared_switch(gpu.path) if gpu.path else None
            if switch is not None:
                by_switch.setdefault(switch, []).append(gpu)
        for switch, near in sorted(by_switch.items()):
            hcas = tuple(
                hca
                for hca in self._hcas
                if _is_connectx(hca) and hca.path and switch in hca.path.hops[:-1]
            )
            root = near[0].path.hops[0] if near[0].path else switch
            ways = {hca.path.hops[hca.path.hops.index(switch) + 1] for hca in hcas if hca.path}
            doubt = None
            if len(near) > 1 or len(ways) > 1:
                doubt = f"{len(near)} GPUs and {len(ways)} adapters below one switch"
            elif self._make(root) is not None:
                doubt = f"below a {self._make(root)}"
            yield Complex(
                kind=ComplexKind.INLINE,
                gpus=tuple(near),
                hcas=hcas,
                numa_node=_numa_node(hcas, near),
                switch=switch,
                root_port=root,
                doubt=doubt,
            )

    def _shared_switch(self, path: PciPath) -> PciAddress | None:
        """Return the ConnectX switch two above a GPU, if there is a ConnectX below it too."""
        above = path.hops[:-1]
        if len(above) < _INLINE_BRIDGES + 1 or not all(
            self._make(port) is PortMake.CONNECTX for port in above[-_INLINE_BRIDGES:]
        ):
            return None
        switch = above[-_INLINE_BRIDGES]
        near = (hca for hca in self._hcas if hca.path and switch in hca.path.hops[:-1])
        return switch if any(map(_is_connectx, near)) else None

    def _behind_switches(self, gpus: Iterable[Gpu], hcas: Iterable[Hca]) -> Iterator[Complex]:
        """Yield what shares a switch: each GPU with the HCAs that share most of its way."""
        hcas = tuple(hcas)
        groups: dict[PciAddress, list[Gpu]] = {}
        for gpu in gpus:
            shared = [shared_hops(gpu.path, hca.path) for hca in hcas if gpu.path and hca.path]
            if gpu.path and any(shared):
                groups.setdefault(gpu.path.hops[max(shared) - 1], []).append(gpu)
        for switch, near in sorted(groups.items()):
            own = tuple(hca for hca in hcas if hca.path and switch in hca.path.hops[:-1])
            path = near[0].path
            yield Complex(
                kind=ComplexKind.SWITCH,
                gpus=tuple(near),
                hcas=own,
                numa_node=_numa_node(own, near),
                switch=switch,
                root_port=path.hops[0] if path and not path.is_collapsed else None,
            )

    def _on_numa_nodes(self, gpus: Iterable[Gpu], hcas: Iterable[Hca]) -> Iterator[Complex]:
        """Yield what shares a NUMA node only; of NVIDIA's CPUs with ConnectX alone."""
        makes = {self._make(address) for address in self._bridges}
        is_nvidia = bool(makes & {PortMake.GRACE, PortMake.VERA})
        nodes: dict[int, tuple[list[Gpu], list[Hca]]] = {}
        for gpu in gpus:
            if gpu.numa_node is not None:
                nodes.setdefault(gpu.numa_node, ([], []))[0].append(gpu)
        for hca in hcas:
            if hca.numa_node in nodes and (_is_connectx(hca) or not is_nvidia):
                nodes[hca.numa_node][1].append(hca)
        for node, (near, own) in sorted(nodes.items()):
            if own:
                yield Complex(
                    kind=ComplexKind.NUMA, gpus=tuple(near), hcas=tuple(own), numa_node=node
                )

    def _role(self, it: Complex, address: PciAddress, device: Gpu | Hca | DataDirect) -> PortRole:
        hops = device.path.hops if device.path else ()
        if hops and address == hops[0] and address != it.switch:
            return PortRole.ROOT
        below = hops.index(address) - hops.index(it.switch) if it.switch in hops else 0
        if below <= 0:
            return PortRole.ABOVE
        if below > 1:
            return PortRole.BELOW
        if isinstance(device, DataDirect):
            return PortRole.DATA_DIRECT
        return PortRole.GPU if isinstance(device, Gpu) else PortRole.HCA

    def _expected(
        self, it: Complex, role: PortRole, address: PciAddress, is_virtual: bool | None
    ) -> str | None:
        if it.doubt is not None:
            return None
        if it.kind is ComplexKind.DATA_DIRECT:
            return _DATA_DIRECT_FLAGS.get(role)
        if it.kind is ComplexKind.SWITCH and role in (PortRole.GPU, PortRole.HCA, PortRole.BELOW):
            bridge = self._bridges.get(address)
            control = None if bridge is None else bridge.acs_control
            return None if control is not None and control & DIRECT_TRANSLATED else DIRECT
        if it.kind is not ComplexKind.INLINE or is_virtual is None:
            return None
        if role not in (PortRole.ROOT, PortRole.GPU, PortRole.HCA):
            return None
        if not is_virtual:
            return OPEN
        return _TRANSLATED if role is PortRole.HCA else isolation(self._make(address))

    def _port(self, address: PciAddress, role: PortRole, expected: str | None) -> Port:
        bridge = self._bridges.get(address)
        return Port(
            address=address,
            role=role,
            make=self._make(address),
            control=None if bridge is None else bridge.acs_control,
            has_acs=None if bridge is None else bridge.has_acs,
            expected=expected,
        )

    def _make(self, address: PciAddress) -> PortMake | None:
        bridge = self._bridges.get(address)
        return None if bridge is None else MAKES.get((bridge.vendor or "", bridge.device or ""))


_BELOW_ROOT_PORT = 2
"""Hops of a function that is plugged into a root port itself."""

_DATA_DIRECT_HOPS, _GPU_HOPS = 4, 6
"""Root port, switch (two ports), function; and root port, two switches (two ports each), GPU."""

_INLINE_BRIDGES = 4
"""Bridges from the switch that GPU and HCA share down to the GPU: two switches of two ports."""

_DATA_DIRECT_FLAGS = {
    PortRole.ROOT: _ONE_GROUP,
    PortRole.DATA_DIRECT: _DATA_DIRECT_PORT,
    PortRole.GPU: _GPU_PORT,
}


def _physical(snapshot: Snapshot) -> tuple[Hca, ...]:
    """Return the HCAs that are no parts of others, by address; a kind not given counts as such."""
    kinds = (HcaKind.PHYSICAL, HcaKind.BOND, None)
    return tuple(sorted((it for it in snapshot.hcas or () if it.kind in kinds), key=_by_address))


def _by_address(hca: Hca) -> tuple[bool, PciAddress, str]:
    return hca.pci_order


def _is_connectx(hca: Hca) -> bool:
    function = hca.function
    return function is not None and (function.vendor or "", function.device or "") in CONNECTX


def _numa_node(hcas: Iterable[Hca], others: Iterable[Gpu | DataDirect]) -> int | None:
    nodes = (it.numa_node for it in (*hcas, *others))
    return next((node for node in nodes if node is not None), None)
