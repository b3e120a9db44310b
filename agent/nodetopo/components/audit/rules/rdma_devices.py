"""The meaning of RDMA resources' device ids, for every known device plugin.

- Ours: ``<key of an HCA>::<token>`` (:mod:`nodetopo.rdma.identity`). A container's devices depend
  on the pool's mode (:class:`nodetopo.rdma.pools.SharingMode`): that HCA, or every HCA of the pool.
  The id does not reveal the mode, but its NUMA nodes can (:class:`RdmaPools`).
- The SR-IOV network device plugin: a PCI address, usually of a virtual function; the container gets
  only that function (pkg/resources/pool_stub.go).
- Mellanox' shared device plugin: a number; the container gets every HCA of the pool
  (pkg/resources/server.go, Allocate), which cannot be identified.
"""

from collections.abc import Mapping
from enum import StrEnum

from nodetopo.checks.inputs import because
from nodetopo.checks.rule import Missing
from nodetopo.components.audit.rules.gpu_pods import is_gpu_resource
from nodetopo.components.audit.rules.pods.inputs import is_rdma
from nodetopo.model.digits import is_digits
from nodetopo.model.node import REPLICA
from nodetopo.model.pci import PciAddress
from nodetopo.model.snapshot import Snapshot
from nodetopo.rdma.identity import hca_keys


class Meaning(StrEnum):
    """The HCAs that a container gets for a device.

    ONE: its HCA. EVERY: all HCAs of its pool. OPEN: either. NUMBER: all HCAs of a pool with unknown
    content.
    """

    ONE = "one"
    EVERY = "every"
    OPEN = "open"
    NUMBER = "number"


class RdmaPools:
    """The resources for RDMA of a snapshot that the kubelet has."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        keys = hca_keys(snapshot.hcas or ())
        self._at = {keys[hca.name]: at for at, hca in enumerate(snapshot.hcas or ())}
        devices = snapshot.offer.devices if snapshot.offer else ()
        self._placed = {device.resource for device in devices if device.numa_nodes}
        # Our plugins report NUMA nodes of all their devices, or of none if so configured.
        self._has_nodes = any(map(is_gpu_resource, self._placed))
        self._members: dict[str, set[int]] = {}
        for device in devices:
            at = self._at.get(hca_key(device.id)) if REPLICA in device.id else None
            if at is not None:
                self._members.setdefault(device.resource, set()).add(at)

    def meaning(self, resource: str, device: str) -> Meaning | None:
        """Return the meaning of *device* for a container; ``None`` if its plugin is unknown.

        Our pools with HCAs on several NUMA nodes report none in mode ``shared``, and each HCA's
        node otherwise; what a pool on a single node reports does not show its mode.
        """
        if is_digits(device):
            return Meaning.NUMBER
        key = hca_key(device)
        if REPLICA not in device:
            return None if PciAddress.parse_or_none(key) is None else Meaning.ONE
        if key not in self._at and PciAddress.parse_or_none(key) is None:
            return None
        hcas = self._snapshot.hcas or ()
        nodes = {hcas[at].numa_node for at in self._members.get(resource, ())}
        if len(nodes) < 2 or None in nodes:
            return Meaning.OPEN
        if resource in self._placed:
            return Meaning.ONE
        return Meaning.EVERY if self._has_nodes else Meaning.OPEN

    def members(self, resource: str) -> tuple[int, ...]:
        """Return the positions of the allocatable HCAs of one of our pools."""
        return tuple(sorted(self._members.get(resource, ())))


def hca_key(device: str) -> str:
    """Return the HCA that an id names: its key, or its PCI address as sysfs writes it."""
    name = device.rpartition(REPLICA)[0] or device
    address = PciAddress.parse_or_none(name)
    return name if address is None else str(address)


def is_rdma_device(resource: str, device: str) -> bool:
    """Return whether *device* stands for HCAs, by the name of its resource or by its id.

    Operators choose the names of resources.
    """
    is_token = REPLICA in device and PciAddress.parse_or_none(hca_key(device)) is not None
    return is_token or is_rdma(resource)


def is_of_the_host(device: str) -> bool:
    """Return whether the HCAs for *device* stay in the host's namespace."""
    return is_digits(device) or REPLICA in device


def rdma_devices(snapshot: Snapshot) -> Mapping[str, tuple[str, ...]] | None:
    """Return resource for RDMA → ids of its devices; ``None`` if the kubelet's are unknown.

    Allocatable devices take precedence; the kubelet's checkpoint also has the healthy devices.
    """
    state = snapshot.kubelet_state.devices if snapshot.kubelet_state else None
    registered = None if state is None else state.registered
    if snapshot.offer is None and registered is None:
        return None
    ids = {name: dict.fromkeys(devices) for name, devices in (registered or {}).items()}
    for device in snapshot.offer.devices if snapshot.offer else ():
        ids.setdefault(device.resource, {})[device.id] = None
    return {
        name: tuple(ids[name])
        for name in sorted(ids)
        if ids[name] and any(is_rdma_device(name, device) for device in ids[name])
    }


def no_rdma_devices(snapshot: Snapshot) -> str | None:
    """Return why rules about devices for RDMA do not apply."""
    return "no device plugin advertises RDMA devices" if rdma_devices(snapshot) == {} else None


def missing_rdma_devices(snapshot: Snapshot) -> tuple[Missing, ...]:
    """Return "devices of the kubelet" where they are not known."""
    if rdma_devices(snapshot) is not None:
        return ()
    return (Missing("devices of the kubelet", because(snapshot, "kubelet")),)
