"""Pools of HCAs: what a resource such as ``rdma/hca_shared_devices_a`` stands for.

The terms are those of Mellanox' shared plugin, whose configuration file describes the same
(k8s-rdma-shared-dev-plugin, README.md and pkg/types/types.go); the modes are ours.
"""

from enum import StrEnum

from msgspec import Struct, field


class SharingMode(StrEnum):
    """What a container gets for the devices of a pool that the kubelet gave it.

    ``shared``: every healthy HCA of the pool, whatever the number asked for, as from the shared
    plugin.
    ``chosen``: the HCAs whose devices it was given; other containers can be given them as well.
    ``exclusive``: the same, where each HCA is one device, and in one container at a time.
    """

    SHARED = "shared"
    CHOSEN = "chosen"
    EXCLUSIVE = "exclusive"


class Selectors(Struct, frozen=True, kw_only=True):
    """Which HCAs a pool takes: those that match one value of each list that is not empty.

    Values are compared as they are written, except for the case of letters in *vendors* and
    *device_ids*.
    """

    # vendors, device_ids: PCI ids of the HCA's function, four hex digits: 15b3
    vendors: tuple[str, ...] = ()
    device_ids: tuple[str, ...] = ()
    drivers: tuple[str, ...] = ()  # kernel drivers of that function: mlx5_core
    if_names: tuple[str, ...] = ()  # network interfaces: ens1f0, ibs3
    link_types: tuple[str, ...] = ()  # of its interfaces or ports: ether, infiniband
    # RDMA devices: mlx5_0; nodetopo's addition, for HCAs without network interface.
    hcas: tuple[str, ...] = ()


class Pool(Struct, frozen=True, kw_only=True):
    """One resource and the HCAs that it stands for."""

    resource: str  # whole name: rdma/hca_shared_devices_a
    # How many devices are advertised (`rdmaHcaMax`); 0 is none, and `exclusive` pools advertise one
    # for each HCA, this many at most.
    most: int
    # Empty: every HCA that is not for management or storage.
    selectors: Selectors = field(default_factory=Selectors)
    mode: SharingMode = SharingMode.SHARED
    with_issm: bool = True  # containers also get the subnet manager's devices, issm<N>
    # The kubelet is given the NUMA node of a `shared` pool too, whose devices stand for no HCA in
    # particular.
    with_numa: bool = False

    @property
    def reports_numa(self) -> bool:
        """Whether the kubelet is given the NUMA nodes of devices."""
        return self.with_numa or self.mode is not SharingMode.SHARED


class RdmaConfig(Struct, frozen=True, kw_only=True):
    """The content of an RDMA configuration file."""

    pools: tuple[Pool, ...]  # in the order of the file; no two have the same resource
    warnings: tuple[str, ...] = ()  # what the file says and is not followed, a sentence each
