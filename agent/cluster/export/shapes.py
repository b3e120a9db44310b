"""Which machines a cluster has, by what DRA drivers publish of their GPUs and NICs.

Nodes are of one shape if their GPUs are of one product and have the same PCI addresses, NUMA nodes
and PCIe roots: then one claim fits all of them. What no driver publishes, above all NVLinks, is
taken from a machine that is known to have just these GPUs; where none is, the shape is ranked by
NUMA nodes and PCIe roots alone.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from types import MappingProxyType

from agent.cluster.node import ClusterNode
from agent.model.digits import is_digits
from agent.model.dra import NUMA_NODE, NVIDIA_DRIVER, PCIE_ROOT, PublishedDevice
from agent.model.gpu import Gpu
from agent.model.hca import Hca
from agent.model.pci import PciAddress, PciPath
from agent.model.snapshot import Snapshot
from agent.topology.published import pci_of

NIC_DRIVER = "dra.net"
"""dranet's driver of network devices (kubernetes-sigs/dranet)."""

_WHOLE = "gpu"
"""The attribute ``type`` of a whole GPU; others are MIG devices and GPUs for virtual machines
(dra-driver-nvidia-gpu ``cmd/gpu-kubelet-plugin/deviceinfo.go``)."""

_TELLING = ("nvidia.com/gpu.product", "nvidia.com/gpu.machine", "node.kubernetes.io/instance-type")
"""Labels by which nodes of one shape may be known: of GPU Feature Discovery, and of clouds."""

_OWN = ("interconnect",)
"""The same among our own labels, below their prefix."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Machines that one claim fits.

    Attributes:
        name: a part of the names of its objects, unique among the shapes of a cluster.
        snapshot: one of the machines, as far as it is known.
        nodes: those that have it, sorted; empty where the machine is none of a cluster.
        selector: labels that these nodes have and no other node with GPUs; empty where none tell.
        has_nvlinks: whether the snapshot has the NVLinks, or is known to be without.
    """

    name: str
    snapshot: Snapshot
    nodes: tuple[str, ...] = ()
    selector: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    has_nvlinks: bool = True

    @property
    def title(self) -> str:
        """What people call it: ``8x NVIDIA H100 80GB HBM3``."""
        return _title([gpu.product for gpu in self.snapshot.gpus])


def shape_of(snapshot: Snapshot) -> Shape:
    """Return the shape of one whole machine."""
    return Shape(name=_slug(_title([gpu.product for gpu in snapshot.gpus])), snapshot=snapshot)


def shapes_of(
    published: Mapping[str, Sequence[PublishedDevice]],
    nodes: Sequence[ClusterNode],
    known: Iterable[Snapshot],
    *,
    driver: str = NVIDIA_DRIVER,
    nic_driver: str | None = None,
    prefix: str,
) -> tuple[Shape, ...]:
    """Return the shapes of the nodes of which *published* has devices, the most frequent first.

    Args:
        published: the devices of each node, of all drivers.
        nodes: the nodes with their labels; may be fewer, or none.
        known: machines with all their links.
        driver: whose GPUs are asked for.
        nic_driver: whose NICs are; ``None`` for none, and nodes are then of one shape whatever
            NICs they have.
        prefix: of our own labels.
    """
    groups: dict[Snapshot, list[str]] = {}
    for node, devices in sorted(published.items()):
        snapshot = machine_of(devices, driver, nic_driver)
        if snapshot.gpus:
            groups.setdefault(snapshot, []).append(node)
    machines = tuple(known)
    labels = {node.name: node.labels for node in nodes}
    everyone = [name for names in groups.values() for name in names]
    titles = [_title([gpu.product for gpu in snapshot.gpus]) for snapshot in groups]
    shapes = []
    for (snapshot, names), title in zip(groups.items(), titles, strict=True):
        same = with_links(snapshot, machines)
        digest = f"-{_digest(snapshot)}" if titles.count(title) > 1 else ""
        shapes.append(
            Shape(
                name=f"{_slug(title)}{digest}",
                # Of a known machine the NICs may be others than these.
                snapshot=snapshot
                if same is None
                else same
                if nic_driver is None
                else replace(same, hcas=snapshot.hcas),
                nodes=tuple(names),
                selector=_selector(names, everyone, labels, prefix),
                has_nvlinks=same is not None or len(snapshot.gpus) == 1,
            )
        )
    return tuple(sorted(shapes, key=lambda shape: (-len(shape.nodes), shape.name)))


def machine_of(devices: Iterable[PublishedDevice], driver: str, nic_driver: str | None) -> Snapshot:
    """Return the machine as the *devices* of its drivers describe it.

    GPUs are those of *driver*, by PCI address, and HCAs the RDMA devices of *nic_driver*.
    """
    gpus: dict[PciAddress, PublishedDevice] = {}
    hcas: dict[PciAddress, PublishedDevice] = {}
    for device in devices:
        address = pci_of(device)
        if address is None:
            continue
        if device.driver == driver and device.attributes.get(f"{driver}/type", _WHOLE) == _WHOLE:
            gpus[address] = device
        elif device.driver == nic_driver and device.attributes.get(f"{nic_driver}/rdma") == "true":
            hcas[address] = device
    return Snapshot(
        gpus=tuple(
            Gpu(
                index=index,
                product=device.attributes.get(f"{driver}/productName"),
                pci=address,
                path=_path(device, address),
                numa_node=_numa_node(device),
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
                numa_node=_numa_node(device),
            )
            for address, device in sorted(hcas.items())
        ),
    )


def _path(device: PublishedDevice, address: PciAddress) -> PciPath | None:
    root = device.attributes.get(PCIE_ROOT)
    return None if root is None else PciPath(root=root, hops=(address,))


def _numa_node(device: PublishedDevice) -> int | None:
    text = device.attributes.get(NUMA_NODE, device.attributes.get(f"{device.driver}/numaNode"))
    return int(text) if text is not None and is_digits(text) else None


def with_links(snapshot: Snapshot, known: Iterable[Snapshot]) -> Snapshot | None:
    """Return the machine of *known* with just the GPUs of *snapshot*; ``None`` if none has them."""
    wanted = _layout(snapshot)
    return next((machine for machine in known if _layout(machine) == wanted), None)


def _layout(snapshot: Snapshot) -> object:
    """Return what two machines of one shape have in common: the GPUs as they are published."""
    return frozenset(
        (gpu.product, gpu.pci, gpu.numa_node, gpu.path and gpu.path.root) for gpu in snapshot.gpus
    )


def _title(products: Sequence[str | None]) -> str:
    kinds = sorted({product or "GPU" for product in products})
    return f"{len(products)}x {' and '.join(kinds)}"


def _slug(title: str) -> str:
    words = re.sub(r"[^a-z0-9]+", "-", title.lower().replace("nvidia", " "))
    return words.strip("-")[:60].rstrip("-")


def _digest(snapshot: Snapshot) -> str:
    """Return four digits that tell layouts of one product apart, the same at every export."""
    rows = [(str(gpu.pci), gpu.numa_node, gpu.path and gpu.path.root) for gpu in snapshot.gpus]
    rows += [
        (str(hca.pci), hca.numa_node, hca.path and hca.path.root) for hca in snapshot.hcas or ()
    ]
    return sha256(repr(rows).encode()).hexdigest()[:4]


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
