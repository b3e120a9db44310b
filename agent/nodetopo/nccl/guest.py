"""A virtual machine's devices at their places on the host, for NCCL's topology file.

A hypervisor hides the PCIe switches, so that NCCL in a guest takes all devices for equally far
apart. NCCL's maintainers advise a file with the host's PCI tree, the guest's bus ids, and switches
at bus ids that the guest does not have (NVIDIA/nccl issue 1843): NCCL reads the class of a bus id
that exists from sysfs and so turns a switch into that device (src/graph/xml.cc,
``ncclTopoGetXmlFromSys``). NVLinks, ports and everything else stay as the guest shows them.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from nodetopo.errors import InputError
from nodetopo.model.gpu import Gpu, Virtualization
from nodetopo.model.hca import DataDirect, Hca
from nodetopo.model.numa import CpuSet, CpuTopology, NumaNode
from nodetopo.model.pci import PciAddress, PciBridge, PciFunction, PciPath
from nodetopo.model.snapshot import Snapshot
from nodetopo.nccl.xml import is_function, is_in_use, switches

_LAST_DOMAIN = 0xFFFF
"""NCCL reads four digits of a PCI domain (src/graph/xml.cc, ``checkBDFFormat``)."""

_Placed = Gpu | Hca | DataDirect
T = TypeVar("T", Gpu, Hca, DataDirect)


class Match(Struct, frozen=True, kw_only=True):
    """A device of the guest and its counterpart on the host."""

    device: str  # name in the guest: GPU0, mlx5_0
    host: str | None = None  # name on the host; None where the device has no certain counterpart
    by: str | None = None  # shared identity: UUID, node GUID, or system-image GUID
    reason: str | None = None  # why there is no counterpart


class Guest(Struct, frozen=True, kw_only=True):
    """A virtual machine with the host's PCI tree."""

    # The guest's, its matched devices at their places on the host. The NUMA nodes are only fit for
    # `nccl.xml.topology_xml`: two can have the same CPUs.
    snapshot: Snapshot
    matches: tuple[Match, ...]  # all devices of the file, GPUs first, in the guest's order
    remarks: tuple[str, ...]  # facts about the file for a person, a sentence each


def on_host(guest: Snapshot, host: Snapshot) -> Guest:
    """Return *guest* with the PCI tree, the links and the CPU model of *host*.

    GPUs are matched by UUID. HCAs are matched by node GUID, and virtual functions, whose node GUID
    is their own, by the system-image GUID of their card, provided that all functions of the card
    are at one place on the host. Devices without a match stay where the guest shows them.

    A NUMA node of the host becomes the guest's node that its devices are on. If the guest does not
    tell these nodes apart, the host's node gets a free number and all CPUs that are possible.

    Raises:
        InputError: no device matches.
    """
    finder = _Finder(guest, host)
    found = _Counterparts()
    matches = []
    for gpu in guest.gpus:
        other_gpu, match = finder.gpu(gpu)
        matches.append(match)
        if other_gpu is not None:
            found.gpus[gpu.index] = other_gpu
    for hca in guest.hcas or ():
        if not is_in_use(hca) or not is_function(hca):
            continue
        other_hca, match = finder.hca(hca)
        matches.append(match)
        if other_hca is not None:
            found.hcas[hca.name] = other_hca
    if not found.gpus and not found.hcas:
        raise InputError(_nothing(matches, host), "capture the machine that this guest runs on")
    for at, one in enumerate(guest.data_directs or ()):
        if (other := _data_direct(one, host, found.hcas)) is not None:
            found.directs[at] = other
    pairs = list(found.pairs(guest))
    if all(one.path == other.path and one.pci == other.pci for one, other in pairs):
        remark = "the guest has the host's bus ids and switches: it needs no file from the host"
        return Guest(snapshot=guest, matches=tuple(matches), remarks=(remark,))
    return _moved(guest, host, found, tuple(matches))


class _Counterparts(Struct, frozen=True):
    """The host's device for a GPU by its index, an HCA by its name, Data Direct by position."""

    gpus: dict[int, Gpu] = field(default_factory=dict)
    hcas: dict[str, Hca] = field(default_factory=dict)
    directs: dict[int, DataDirect] = field(default_factory=dict)

    def pairs(self, guest: Snapshot) -> Iterator[tuple[_Placed, _Placed]]:
        """Yield each device of *guest* that has a counterpart, with it."""
        yield from ((gpu, self.gpus[gpu.index]) for gpu in guest.gpus if gpu.index in self.gpus)
        yield from ((hca, self.hcas[hca.name]) for hca in guest.hcas or () if hca.name in self.hcas)
        for at, other in self.directs.items():
            yield (guest.data_directs or ())[at], other


def _nothing(matches: Sequence[Match], host: Snapshot) -> str:
    reasons = "; ".join(f"{match.device}: {match.reason}" for match in matches[:2])
    unlisted = len(host.unlisted_gpus) or (0 if host.gpus else len(host.pci_gpus or ()))
    held = ""
    if unlisted:
        drivers = sorted({gpu.driver for gpu in host.unlisted_gpus if gpu.driver})
        held = (
            f"; {unlisted} GPUs of the host are "
            f"{'held by ' + ', '.join(drivers) if drivers else 'not listed by its NVIDIA driver'}, "
            "so that their UUIDs are not known: capture it before devices are passed through"
        )
    what = (
        f"no device of the guest is one of the host's ({reasons})"
        if reasons
        else ("the guest has no GPU and no HCA")
    )
    return what + held


class _Finder:
    """Finds the counterparts on the host."""

    def __init__(self, guest: Snapshot, host: Snapshot) -> None:
        self._host = host
        self._uuids = Counter(map(_uuid, guest.gpus))
        self._node_guids = Counter(_guid(hca.node_guid) for hca in guest.hcas or ())

    def gpu(self, gpu: Gpu) -> tuple[Gpu | None, Match]:
        uuid = _uuid(gpu)
        found = [other for other in self._host.gpus if _uuid(other) == uuid]
        virtual = gpu.virtualization is Virtualization.VGPU or (
            gpu.function is not None and gpu.function.vgpu_host is not None
        )
        if uuid is None or gpu.pci is None:
            reason = f"its {'UUID' if uuid is None else 'bus id'} is not known"
        elif self._uuids[uuid] > 1:
            reason = f"{self._uuids[uuid]} GPUs of the guest have its UUID {uuid}"
        elif not found:
            reason = f"the host has no GPU {uuid}"
            if virtual:
                reason += ": a vGPU has a UUID that its host does not list"
        elif len(found) > 1:
            reason = f"{len(found)} GPUs of the host have its UUID {uuid}"
        elif found[0].path is None:
            reason = f"the place of the host's {found[0].name} in the PCI tree is not known"
        else:
            return found[0], Match(device=gpu.name, host=found[0].name, by="UUID")
        return None, Match(device=gpu.name, reason=reason)

    def hca(self, hca: Hca) -> tuple[Hca | None, Match]:
        node, card = _guid(hca.node_guid), _guid(hca.sys_image_guid)
        if node is None and card is None:
            return None, Match(device=hca.name, reason="its GUIDs are not known")
        # Copies of a virtual function's node GUID are common, so that it decides only once.
        ways = [("system-image GUID", card)]
        if self._node_guids[node] == 1:
            ways.insert(0, ("node GUID", node))
        for by, guid in ways:
            found = [other for other in self._host.hcas or () if _identity(other, by) == guid]
            if guid is None or not found:
                continue
            names = " and ".join(other.name for other in found)
            cards = {_guid(other.sys_image_guid) for other in found} - {None}
            if by == "node GUID" and card is not None and cards - {card}:
                reason = f"it has the node GUID of the host's {names} and another system-image GUID"
            elif None in (places := {_place(other) for other in found}):
                reason = f"the place of the host's {names} in the PCI tree is not known"
            elif len(places) > 1:
                reason = f"its {by} is the one of the host's {names}, which are at different places"
            else:
                return found[0], Match(device=hca.name, host=found[0].name, by=by)
            return None, Match(device=hca.name, reason=reason)
        known = [
            f"{name} {guid}" for name, guid in (("node", node), ("system-image", card)) if guid
        ]
        reason = f"the host has no HCA with the GUIDs {', '.join(known)}"
        return None, Match(device=hca.name, reason=reason)


def _uuid(gpu: Gpu) -> str | None:
    return gpu.uuid.lower().replace("gpu-", "GPU-") if gpu.uuid else None


def _guid(guid: str | None) -> str | None:
    """Return *guid*, ``None`` for one of zeros: a virtual function to which none was assigned."""
    return guid.lower() if guid and guid.strip("0:") else None


def _identity(hca: Hca, by: str) -> str | None:
    return _guid(hca.node_guid if by == "node GUID" else hca.sys_image_guid)


def _place(hca: Hca) -> tuple[object, ...] | None:
    """Return the bridges above *hca* and its NUMA node; ``None`` if unknown."""
    return None if hca.path is None else (hca.path.root, hca.path.hops[:-1], hca.numa_node)


def _data_direct(one: DataDirect, host: Snapshot, hcas: Mapping[str, Hca]) -> DataDirect | None:
    """Return the host's Data Direct function for the HCAs of *one*; *hcas* are by guest name."""
    served = {hcas[name].name if name in hcas else None for name in one.hcas}
    fitting = (it for it in host.data_directs or () if it.path is not None)
    return next((it for it in fitting if served and served <= set(it.hcas)), None)


# Places.


def _moved(
    guest: Snapshot, host: Snapshot, found: _Counterparts, matches: tuple[Match, ...]
) -> Guest:
    """Return *guest* with the devices that have a counterpart at its place."""
    pairs = list(found.pairs(guest))
    mover = _Mover(
        domains=_domains(guest, [path for _, other in pairs if (path := other.path) is not None]),
        numa=_NumaNodes(guest, pairs),
    )
    bridges = tuple(
        replace(
            bridge,
            address=mover.address(bridge.address),
            numa_node=mover.numa.number(bridge.numa_node),
        )
        for bridge in host.bridges or ()
        if bridge.address.domain in mover.domains
    )
    gpus, hcas = found.gpus, found.hcas
    snapshot = replace(
        guest,
        gpus=tuple(
            replace(mover.moved(gpu, other), pcie=other.pcie, numa_affinity=None, cpu_affinity=None)
            if (other := gpus.get(gpu.index)) is not None
            else gpu
            for gpu in guest.gpus
        ),
        hcas=guest.hcas
        and tuple(
            mover.moved(hca, hcas[hca.name]) if hca.name in hcas else hca for hca in guest.hcas
        ),
        data_directs=guest.data_directs
        and tuple(
            mover.moved(one, found.directs[at]) if at in found.directs else one
            for at, one in enumerate(guest.data_directs)
        ),
        bridges=(*(guest.bridges or ()), *bridges),
        numa_nodes=mover.numa.nodes(),
        cpu=_cpu(guest.cpu, host.cpu),
    )
    paths = [mover.path(one, other) for one, other in pairs]
    return Guest(
        snapshot=snapshot,
        matches=matches,
        remarks=(
            *mover.numa.remarks(),
            *_unknown_links(paths, bridges),
            *_shared_slots(guest, found.hcas),
        ),
    )


def _cpu(guest: CpuTopology | None, host: CpuTopology | None) -> CpuTopology | None:
    """Return the guest's CPUs with the host's model, which a hypervisor can hide."""
    if guest is None or host is None or host.vendor is None:
        return guest
    return replace(guest, vendor=host.vendor, family=host.family, model_number=host.model_number)


class _Mover(Struct, frozen=True, kw_only=True):
    """Gives devices the places of others."""

    domains: Mapping[int, int]  # host's PCI domain → guest's
    numa: "_NumaNodes"

    def address(self, address: PciAddress) -> PciAddress:
        """Return the guest's address for a bridge of the host."""
        return replace(address, domain=self.domains[address.domain])

    def path(self, one: _Placed, other: _Placed) -> PciPath:
        assert other.path is not None
        assert one.pci is not None
        above = map(self.address, other.path.hops[:-1])
        return replace(other.path, hops=(*above, one.pci))

    def moved(self, one: T, other: T) -> T:
        """Return *one* at the place of *other*, with its link, under its own address."""
        link = None if other.function is None else other.function.link
        return replace(
            one,
            path=self.path(one, other),
            function=replace(one.function or PciFunction(), link=link),
            numa_node=self.numa.number(other.numa_node),
        )


def _domains(guest: Snapshot, paths: Iterable[PciPath]) -> Mapping[int, int]:
    """Return a PCI domain that the guest does not have for each of the host's.

    Bus and device numbers stay, so that a person recognises the host's switches.
    """
    known = [
        *(device.pci for device in _devices(guest) if device.pci is not None),
        *(guest.pci_gpus or ()),
        *(bridge.address for bridge in guest.bridges or ()),
    ]
    taken = {address.domain for address in known}
    free = (domain for domain in range(_LAST_DOMAIN, -1, -1) if domain not in taken)
    wanted = sorted({hop.domain for path in paths for hop in path.hops})
    return dict(zip(wanted, free, strict=False))


def _devices(snapshot: Snapshot) -> list[_Placed]:
    return [*snapshot.gpus, *(snapshot.hcas or ()), *(snapshot.data_directs or ())]


class _NumaNodes:
    """The host's NUMA nodes by the numbers and CPUs that the guest has for them."""

    def __init__(self, guest: Snapshot, pairs: Sequence[tuple[_Placed, _Placed]]) -> None:
        self._guest = {node.id: node for node in guest.numa_nodes or () if len(node.cpus)}
        self._is_known = guest.numa_nodes is not None
        only_node = set(self._guest) if len(self._guest) == 1 else set()
        self._on: dict[int, set[int]] = {}
        for one, other in pairs:
            if other.numa_node is not None:
                nodes = self._on.setdefault(other.numa_node, set())
                nodes |= only_node if one.numa_node is None else {one.numa_node}
        used = {device.numa_node for device in _devices(guest) if device.numa_node is not None}
        free = (number for number in count() if number not in {*self._guest, *used})
        self._numbers: dict[int, int] = {}
        for node, seen in sorted(self._on.items()):
            only = next(iter(seen)) if len(seen) == 1 else None
            is_free = only is not None and only not in self._numbers.values()
            self._numbers[node] = only if is_free and only is not None else next(free)

    def number(self, node: int | None) -> int | None:
        """Return the number for the host's *node*; ``None`` where the guest has no device of it."""
        return None if node is None else self._numbers.get(node)

    def nodes(self) -> tuple[NumaNode, ...] | None:
        """Return the guest's NUMA nodes and those that only the host tells apart, by number."""
        if not self._is_known:
            return None
        made = {
            number: NumaNode(id=number, cpus=self._cpus(node))
            for node, number in self._numbers.items()
        }
        every = {**self._guest, **{n: node for n, node in made.items() if n not in self._guest}}
        return tuple(every[number] for number in sorted(every))

    def _cpus(self, node: int) -> CpuSet:
        possible = self._on[node] & set(self._guest) or set(self._guest)
        return CpuSet.of(cpu for number in possible for cpu in self._guest[number].cpus)

    def remarks(self) -> Iterator[str]:
        """Yield a sentence about the host's nodes that the guest does not tell apart."""
        if not self._is_known:
            yield (
                "the guest's NUMA nodes are not known: NCCL reads the CPUs of each from the guest, "
                "which can number them otherwise than the host"
            )
            return
        seen = Counter(number for nodes in self._on.values() for number in nodes)
        shared = [
            node
            for node, number in self._numbers.items()
            if self._on[node] != {number} or seen[number] > 1
        ]
        if shared and self._guest:
            named = f"node{'s' if len(shared) > 1 else ''} {', '.join(map(str, shared))}"
            yield (
                f"the guest does not show which of its CPUs are on NUMA {named} of the host: "
                "NCCL does not bind threads to a part of them"
            )


def _shared_slots(guest: Snapshot, hcas: Mapping[str, Hca]) -> Iterator[str]:
    """Yield a sentence for each slot of the guest with HCAs of several cards of the host.

    Up to 2.23.4 NCCL leaves the function out of the bus id of a NIC (src/graph/topo.cc,
    ``ncclTopoAddPci``), so that all of a slot are one NIC, at the place of the first.
    """
    slots: dict[PciAddress, list[Hca]] = {}
    for hca in guest.hcas or ():
        if hca.name in hcas and hca.pci is not None:
            slots.setdefault(replace(hca.pci, function=0), []).append(hca)
    for slot, here in slots.items():
        if len({_place(hcas[hca.name]) for hca in here}) > 1:
            names = " and ".join(hca.name for hca in here)
            yield (
                f"{names} are functions of {slot} in the guest and different cards on the host: "
                "NCCL up to 2.23.4 takes them for one card; give each a slot"
            )


def _unknown_links(paths: Iterable[PciPath], bridges: Iterable[PciBridge]) -> Iterator[str]:
    """Yield a sentence about switches of which the host's snapshot has no link."""
    known = {
        bridge.address
        for bridge in bridges
        if bridge.link is not None and (bridge.link.max_generation or bridge.link.generation)
    }
    used = {address for path in paths for address in switches(path)}
    if missing := used - known:
        yield (
            f"the link of {len(missing)} switches of the host is not known: NCCL takes it for "
            "8 GT/s and 16 lanes"
        )
