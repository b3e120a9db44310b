"""GPUs and HCAs of a container with their NUMA nodes, and NVLink inside a set of GPUs."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import combinations

from msgspec import Struct

from nodetopo.components.audit.alignment.record import NvlinkSpan
from nodetopo.components.audit.rules.gpu_pods import is_gpu_resource
from nodetopo.components.audit.rules.rdma_devices import Meaning, RdmaPools, hca_key
from nodetopo.model.gpu import Gpu
from nodetopo.model.hca import Hca
from nodetopo.model.node import unshared
from nodetopo.model.pci import PciAddress
from nodetopo.model.pod import Container
from nodetopo.model.snapshot import Snapshot
from nodetopo.rdma.identity import hca_keys
from nodetopo.topology.links import Pair, usable_nvlinks_between
from nodetopo.topology.published import ClaimedGpus


class NvlinkSets:
    """NVLink inside sets of GPUs of a snapshot, which are named by index."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._links: Mapping[Pair, int | None] = usable_nvlinks_between(snapshot)
        self._usable = tuple(gpu.index for gpu in snapshot.gpus if not gpu.is_lost)

    @property
    def is_known(self) -> bool:
        """Whether the links of every pair are known."""
        return None not in self._links.values()

    @property
    def has_any(self) -> bool:
        """Whether any two GPUs are known to be joined."""
        return any(self._links.values())

    def span(self, gpus: Collection[int]) -> NvlinkSpan | None:
        """Return how many pairs of *gpus* have NVLink; ``None`` for fewer than two, or unknown."""
        counts = [self._links[pair] for pair in combinations(sorted(gpus), 2)]
        if not counts or None in counts:
            return None
        if all(counts):
            return NvlinkSpan.ALL
        return NvlinkSpan.SOME if any(counts) else NvlinkSpan.NONE

    def groups(self, gpus: Collection[int]) -> int:
        """Return into how many groups without NVLink between them *gpus* fall."""
        return len(self._sizes(gpus))

    def fewest(self, size: int, among: Iterable[int] | None = None) -> int:
        """Return the fewest such groups that *size* GPUs *among* these, or all, can have."""
        left, groups = size, 0
        for count in self._sizes(self._usable if among is None else among):
            if left <= 0:
                break
            left -= count
            groups += 1
        return groups + max(left, 0)

    def _sizes(self, gpus: Iterable[int]) -> list[int]:
        """Return the sizes of the groups, largest first."""
        group = {gpu: {gpu} for gpu in gpus}
        for a, b in combinations(sorted(group), 2):
            if self._links.get((a, b)) and group[a] is not group[b]:
                group[a] |= group[b]
                group.update(dict.fromkeys(group[a], group[a]))
        unique = {min(members): len(members) for members in group.values()}
        return sorted(unique.values(), reverse=True)


_RDMA = re.compile("rdma|hca|infiniband|roce|mlnx|mellanox", re.IGNORECASE)
"""Names of resources of the RDMA shared device plugin (``rdma/…``) and, as operators choose them,
of the SR-IOV network device plugin."""


_NODE = re.compile("[0-9]{1,4}")
"""The number of a NUMA node; Linux has 1,024 at most (CONFIG_NODES_SHIFT)."""


Nodes = tuple[int, ...]


class HeldGpu(Struct, frozen=True, kw_only=True):
    """A GPU that a container holds all or a part of.

    Attributes:
        name: ``GPU<index>``, or the device's id if the snapshot lacks the GPU.
        gpu: ``None`` if the snapshot lacks it.
        is_whole: neither a MIG device nor a replica.
        node: its NUMA node; ``None`` if unknown.
        claim: its ResourceClaim; ``None`` for a device plugin's GPU.
    """

    name: str
    gpu: Gpu | None
    is_whole: bool
    node: int | None
    claim: str | None = None


class HeldHca(Struct, frozen=True, kw_only=True):
    """An HCA that a container holds.

    Attributes:
        name: of the RDMA device, or the device's id if the snapshot lacks the HCA.
        node: its NUMA node; ``None`` if unknown.
        at: its position in the snapshot; for a hidden virtual function, such as one moved into a
            pod, the position of another function of the card; ``None`` without either.
        is_open: the container may have got every HCA of the pool instead.
    """

    name: str
    node: int | None
    at: int | None = None
    is_open: bool = False


class DevicePlaces:
    """Looks up the devices of a snapshot.

    The snapshot's topology takes precedence over NUMA nodes reported by a plugin to the kubelet.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._cpu_nodes = {
            node.id: node.cpus for node in snapshot.numa_nodes or () if len(node.cpus)
        }
        # Firmware seldom states the node of a device where there is only one.
        self._only: Nodes = tuple(self._cpu_nodes) if len(self._cpu_nodes) == 1 else ()
        self._gpus = dict(_gpu_ids(snapshot.gpus))
        self._all_gpus = snapshot.gpus
        self._all_hcas = snapshot.hcas or ()
        self._claimed = ClaimedGpus(snapshot)
        self._hcas = dict(_hca_ids(self._all_hcas))
        self._pools = RdmaPools(snapshot)
        self._reported = _reported_nodes(snapshot)

    def gpus(self, container: Container) -> tuple[HeldGpu, ...]:
        """Return the GPUs of *container*, each once, by index; unknown ones last."""
        held: dict[str, HeldGpu] = {}
        for resource, name in _ids(container):
            original = unshared(name)
            gpu = self._gpus.get(original)
            if gpu is None and not is_gpu_resource(resource):
                continue
            label = name if gpu is None else gpu.name
            node = None if gpu is None else self.gpu_node(gpu)
            is_whole = gpu is not None and name == gpu.uuid
            before = held.get(label)
            held[label] = HeldGpu(
                name=label,
                gpu=gpu,
                is_whole=is_whole and (before is None or before.is_whole),
                node=self.reported(resource, name) if node is None else node,
            )
        for claimed in container.claimed or ():
            positions = self._claimed.gpus(claimed)
            if positions is None:
                held[claimed.name] = HeldGpu(
                    name=claimed.name, gpu=None, is_whole=False, node=None, claim=claimed.claim
                )
            for at in positions or ():
                gpu = self._all_gpus[at]
                held[gpu.name] = HeldGpu(
                    name=gpu.name,
                    gpu=gpu,
                    is_whole=not self._claimed.is_part(claimed),
                    node=self.gpu_node(gpu),
                    claim=claimed.claim,
                )
        return tuple(
            sorted(
                held.values(),
                key=lambda it: (it.gpu is None, it.gpu.index if it.gpu else 0, it.name),
            )
        )

    def hcas(self, container: Container) -> tuple[HeldHca, ...]:
        """Return the HCAs of *container*, each once, by name.

        A device of the RDMA shared device plugin is a number and means every HCA of its pool: it
        has no place, and is left out.
        """
        held: dict[str, HeldHca] = {}
        for resource, device in _ids(container):
            key, meaning = hca_key(device), self._pools.meaning(resource, device)
            if meaning is Meaning.EVERY:
                for member in self._pools.members(resource):
                    hca = self._all_hcas[member]
                    held[hca.name] = HeldHca(name=hca.name, node=hca.numa_node, at=member)
                continue
            at = self._hcas.get(key)
            name = device if at is None else self._all_hcas[at].name
            node = None if at is None else self._all_hcas[at].numa_node
            if at is None:
                reported = self._reported.get((resource, device))
                is_hca = PciAddress.parse_or_none(key) is not None or reported
                if not is_hca or not _RDMA.search(resource):
                    continue
                at = self._card_of(key)
            held[name] = HeldHca(
                name=name,
                node=self.reported(resource, device) if node is None else node,
                at=at,
                is_open=meaning is Meaning.OPEN,
            )
        for claimed in container.claimed or ():
            at = self._claimed.hca(claimed)
            if at is not None:
                hca = self._all_hcas[at]
                held[hca.name] = HeldHca(name=hca.name, node=hca.numa_node, at=at)
        return tuple(held[name] for name in sorted(held))

    def _card_of(self, key: str) -> int | None:
        """Return the position of a function on the same bus, which is behind the same port.

        On the host bridge's own bus there are functions of several devices.
        """
        address = PciAddress.parse_or_none(key)
        return next(
            (
                at
                for at, hca in enumerate(self._all_hcas)
                if address is not None
                and hca.pci is not None
                and (hca.pci.domain, hca.pci.bus) == (address.domain, address.bus)
                and hca.path is not None
                and len(hca.path.hops) > 1
            ),
            None,
        )

    def gpu_node(self, gpu: Gpu) -> int | None:
        """Return the NUMA node of *gpu* by the topology; ``None`` if unknown."""
        if gpu.numa_node in self._cpu_nodes:
            return gpu.numa_node
        near = self._only or tuple(
            node
            for node, cpus in self._cpu_nodes.items()
            if gpu.cpu_affinity is not None and len(cpus & gpu.cpu_affinity)
        )
        return near[0] if len(near) == 1 else None

    def reported(self, resource: str, name: str) -> int | None:
        """Return the kubelet's only NUMA node of a device; ``None`` for none or several.

        A plugin that does not know reports several or none.
        """
        nodes = self._only or self._reported.get((resource, name), ())
        return nodes[0] if len(nodes) == 1 else None

    def lacks_node(self, container: Container) -> bool:
        """Return whether a plugin reported no NUMA node for a GPU or HCA of *container*."""
        return any(
            self._reported.get((resource, name)) == ()
            for resource, name in _ids(container)
            if is_gpu_resource(resource) or hca_key(name) in self._hcas or _RDMA.search(resource)
        )


def _gpu_ids(gpus: Iterable[Gpu]) -> Iterator[tuple[str, Gpu]]:
    for gpu in gpus:
        yield gpu.id, gpu
        for instance in gpu.mig.instances if gpu.mig is not None else ():
            yield instance.uuid, gpu


def _hca_ids(hcas: Sequence[Hca]) -> Iterator[tuple[str, int]]:
    """Yield the names that device plugins give to HCAs: of the device, its PCI function, its net.

    Positions are in *hcas*. The SR-IOV network device plugin names PCI addresses.
    """
    for at, hca in enumerate(hcas):
        yield from ((netdev.name, at) for netdev in hca.netdevs)
    for at, hca in enumerate(hcas):
        if hca.pci is not None:
            yield str(hca.pci), at
        yield hca.name, at
    keys = hca_keys(hcas)
    yield from ((keys[hca.name], at) for at, hca in enumerate(hcas))


def _reported_nodes(snapshot: Snapshot) -> Mapping[tuple[str, str], Nodes]:
    """Return the NUMA nodes that the kubelet has for each device, by resource and id."""
    reported: dict[tuple[str, str], set[int]] = {}
    state = snapshot.kubelet_state
    for held in () if state is None or state.devices is None else state.devices.held:
        for key, names in held.ids.items():
            for name in names:
                nodes = reported.setdefault((held.resource, name), set())
                nodes.update({int(key)} if _NODE.fullmatch(key) else ())
    for device in () if snapshot.offer is None else snapshot.offer.devices:
        reported.setdefault((device.resource, device.id), set()).update(device.numa_nodes)
    return {device: tuple(sorted(nodes)) for device, nodes in reported.items()}


def _ids(container: Container) -> Iterator[tuple[str, str]]:
    return ((devices.resource, name) for devices in container.devices or () for name in devices.ids)
