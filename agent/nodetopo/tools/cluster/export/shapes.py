"""The machines of a cluster, by their GPUs and NICs in DRA drivers' slices.

Nodes are of one shape if their GPUs are of one product and have the same PCI addresses, NUMA nodes
and PCIe roots: then one claim fits all of them. Unpublished facts, mainly NVLinks, are taken from a
known machine with the same GPUs; without one, the shape is ranked by NUMA nodes and PCIe roots
alone.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from types import MappingProxyType

from msgspec import Struct, field
from msgspec.structs import replace

from nodetopo.model.codec import encode
from nodetopo.model.digits import is_digits
from nodetopo.model.dra import DRIVER, PCIE_ROOT, PublishedDevice
from nodetopo.model.gpu import Gpu
from nodetopo.model.hca import Hca
from nodetopo.model.pci import PciAddress, PciPath
from nodetopo.model.snapshot import Snapshot
from nodetopo.tools.cluster.export.offered import Drivers, Offered, assumed, numa_node_of, offered
from nodetopo.tools.cluster.node import ClusterNode
from nodetopo.topology.published import pci_of

_WHOLE = "gpu"
"""The attribute ``type`` of a whole GPU; others are MIG devices and GPUs for virtual machines
(dra-driver-nvidia-gpu ``cmd/gpu-kubelet-plugin/deviceinfo.go``)."""

_SET = "gpu-set"
"""The same attribute of a set of GPUs of our driver (:mod:`devices`)."""

_TELLING = ("nvidia.com/gpu.product", "nvidia.com/gpu.machine", "node.kubernetes.io/instance-type")
"""Labels that can identify nodes of one shape: of GPU Feature Discovery, and of clouds."""

_OWN = ("interconnect",)
"""The same for our labels, below their prefix."""


class Shape(Struct, frozen=True, kw_only=True):
    """Machines that share claims."""

    name: str  # part of the names of its objects, unique among the shapes of a cluster
    snapshot: Snapshot  # the known facts of one of the machines
    offered: Offered  # claimable attributes of its devices
    nodes: tuple[str, ...] = ()  # of this shape, sorted; empty if the machine is not in a cluster
    # Labels that only these nodes with GPUs have; empty if none do.
    selector: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    has_nvlinks: bool = True  # the snapshot has the NVLinks, or is known to be without

    @property
    def title(self) -> str:
        """The display name: ``8x NVIDIA H100 80GB HBM3``."""
        return _title([gpu.product for gpu in self.snapshot.gpus])


def shape_of(snapshot: Snapshot, drivers: Drivers | None = None) -> Shape:
    """Return the shape of one whole machine; its offer is read from its slices, or assumed."""
    own = drivers or Drivers()
    found = offered_by(snapshot.published or (), own)
    return Shape(
        name=_slug(_title([gpu.product for gpu in snapshot.gpus])),
        snapshot=snapshot,
        offered=found if found.gpus else assumed(own),
    )


def shapes_of(
    published: Mapping[str, Sequence[PublishedDevice]],
    nodes: Sequence[ClusterNode],
    known: Iterable[Snapshot],
    *,
    drivers: Drivers | None = None,
    prefix: str,
) -> tuple[Shape, ...]:
    """Return the shapes of the nodes in *published*, the most frequent first.

    Args:
        published: the devices of each node, of all drivers.
        nodes: the nodes with their labels; can be fewer, or empty.
        drivers: of the requested devices; without NICs, the shape does not depend on the NICs, and
            likewise for CPUs.
    """
    own = drivers or Drivers()
    groups: dict[tuple[Snapshot, str], list[str]] = {}
    offers: dict[tuple[Snapshot, str], Offered] = {}
    for node, devices in sorted(published.items()):
        snapshot = machine_of(devices, own.gpus, own.nics)
        if not snapshot.gpus:
            continue
        offer = offered_by(devices, own)
        key = (snapshot, "" if offer.cores is None else offer.cores.mode)
        groups.setdefault(key, []).append(node)
        offers[key] = offers[key].with_others(offer) if key in offers else offer
    machines = tuple(known)
    labels = {node.name: node.labels for node in nodes}
    everyone = [name for names in groups.values() for name in names]
    shapes = []
    for (key, names), name in zip(groups.items(), _names(tuple(groups)), strict=True):
        snapshot = key[0]
        same = with_links(snapshot, machines)
        shapes.append(
            Shape(
                name=name,
                # The NICs of a known machine can differ from these.
                snapshot=snapshot
                if same is None
                else same
                if own.nics is None
                else replace(same, hcas=snapshot.hcas),
                nodes=tuple(names),
                selector=_selector(names, everyone, labels, prefix),
                has_nvlinks=same is not None or len(snapshot.gpus) == 1,
                offered=offers[key],
            )
        )
    return tuple(sorted(shapes, key=lambda shape: (-len(shape.nodes), shape.name)))


def offered_by(devices: Iterable[PublishedDevice], drivers: Drivers) -> Offered:
    """Return the claimable attributes of one node's *devices*."""
    every = tuple(devices)
    sets = (
        device.attributes.get(f"{DRIVER}/gpus", "")
        for device in every
        if device.driver == drivers.gpus == DRIVER
        and device.attributes.get(f"{DRIVER}/type") == _SET
    )
    return offered(
        (device for device in every if _is_gpu(device, drivers.gpus)),
        (device for device in every if _is_rdma(device, drivers.nics)),
        None
        if drivers.cpus is None
        else (device for device in every if device.driver == drivers.cpus),
        sets=frozenset(int(size) for size in sets if is_digits(size)),
    )


def _is_gpu(device: PublishedDevice, driver: str) -> bool:
    """Return whether *device* is a whole GPU, except our devices for admin access."""
    kind = device.attributes.get(f"{driver}/type", _WHOLE)
    return device.driver == driver and kind == _WHOLE and pci_of(device) is not None


def _is_rdma(device: PublishedDevice, driver: str | None) -> bool:
    has_rdma = device.attributes.get(f"{driver}/rdma") == "true"
    return device.driver == driver and has_rdma and pci_of(device) is not None


def machine_of(devices: Iterable[PublishedDevice], driver: str, nic_driver: str | None) -> Snapshot:
    """Return the machine described by the *devices* of its drivers.

    GPUs come from *driver*, by PCI address, and HCAs are the RDMA devices of *nic_driver*.
    """
    gpus: dict[PciAddress, PublishedDevice] = {}
    hcas: dict[PciAddress, PublishedDevice] = {}
    for device in devices:
        address = pci_of(device)
        if address is None:
            continue
        if _is_gpu(device, driver):
            gpus[address] = device
        elif _is_rdma(device, nic_driver):
            hcas[address] = device
    return Snapshot(
        gpus=tuple(
            Gpu(
                index=index,
                product=device.attributes.get(f"{driver}/productName"),
                pci=address,
                path=_path(device, address),
                numa_node=numa_node_of(device),
            )
            for index, (address, device) in enumerate(sorted(gpus.items()))
        ),
        hcas=None
        if nic_driver is None
        else tuple(
            Hca(
                # Names differ from node to node; the address does not.
                name=str(address),
                pci=address,
                path=_path(device, address),
                numa_node=numa_node_of(device),
            )
            for address, device in sorted(hcas.items())
        ),
    )


def _path(device: PublishedDevice, address: PciAddress) -> PciPath | None:
    roots = device.values(PCIE_ROOT)
    return PciPath(root=roots[0], hops=(address,)) if roots else None


def with_links(snapshot: Snapshot, known: Iterable[Snapshot]) -> Snapshot | None:
    """Return the machine of *known* with exactly the GPUs of *snapshot*, or ``None``.

    An unpublished NUMA node, as with NVIDIA's driver v0.4, matches any.
    """
    wanted = {gpu.pci: gpu for gpu in snapshot.gpus}
    return next((machine for machine in known if _has_gpus(machine, wanted)), None)


def _has_gpus(machine: Snapshot, wanted: Mapping[PciAddress | None, Gpu]) -> bool:
    own = {gpu.pci: gpu for gpu in machine.gpus}
    # Virtual machines of all kinds have the same few addresses.
    is_virtual = machine.cpu is not None and machine.cpu.is_virtual is True
    return own.keys() == wanted.keys() and all(
        _is_as(gpu, wanted[address], is_exact=is_virtual) for address, gpu in own.items()
    )


def _is_as(gpu: Gpu, published: Gpu, *, is_exact: bool) -> bool:
    has_node = is_exact or published.numa_node is not None
    return (
        (gpu.product, gpu.path and gpu.path.root)
        == (published.product, published.path and published.path.root)
    ) and (not has_node or gpu.numa_node == published.numa_node)


def _title(products: Sequence[str | None]) -> str:
    kinds = sorted({product or "GPU" for product in products})
    return f"{len(products)}x {' and '.join(kinds)}"


def _slug(title: str) -> str:
    words = re.sub(r"[^a-z0-9]+", "-", title.lower().replace("nvidia", " "))
    return words.strip("-")[:60].rstrip("-")


def _names(layouts: Sequence[tuple[Snapshot, str]]) -> list[str]:
    """Return a name for each layout, no two the same, and the same at every export."""
    slugs = [_slug(_title([gpu.product for gpu in snapshot.gpus])) for snapshot, _ in layouts]
    names = [
        f"{slug}-{_digest(*layout)}" if slugs.count(slug) > 1 else slug
        for slug, layout in zip(slugs, layouts, strict=True)
    ]
    return [
        # They differ by something else than the places of their devices.
        f"{name}-{_hex(encode(snapshot) + mode, 8)}" if names.count(name) > 1 else name
        for name, (snapshot, mode) in zip(names, layouts, strict=True)
    ]


def _digest(snapshot: Snapshot, mode: str) -> str:
    """Return four digits that tell layouts of one product apart, the same at every export."""
    rows = [(str(gpu.pci), gpu.numa_node, gpu.path and gpu.path.root) for gpu in snapshot.gpus]
    rows += [
        (str(hca.pci), hca.numa_node, hca.path and hca.path.root) for hca in snapshot.hcas or ()
    ]
    return _hex(f"{rows!r}{mode}", 4)


def _hex(text: str, digits: int) -> str:
    return sha256(text.encode()).hexdigest()[:digits]


def _selector(
    names: Sequence[str],
    everyone: Sequence[str],
    labels: Mapping[str, Mapping[str, str]],
    prefix: str,
) -> Mapping[str, str]:
    own = set(names)
    for key in (*_TELLING, *(f"{prefix}{name}" for name in _OWN)):
        values = {labels.get(name, {}).get(key) for name in names}
        others = {labels.get(name, {}).get(key) for name in everyone if name not in own}
        if len(values) == 1 and not values & others and (value := values.pop()):
            return {key: value}
    return {}
