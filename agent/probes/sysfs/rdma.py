"""RDMA devices of `/sys/class/infiniband`, of every vendor and under any name.

Files: kernel Documentation/ABI/stable/sysfs-class-infiniband.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import inf

from agent.model.hca import DataDirect, Hca, HcaKind
from agent.model.snapshot import ProbeIssue
from agent.probes.sysfs.data_direct import read_data_directs
from agent.probes.sysfs.nvlink_management import split_management
from agent.probes.sysfs.pcie import PciTree, path_of
from agent.probes.sysfs.rdma_char_devices import read_char_devices
from agent.probes.sysfs.rdma_files import RdmaFiles
from agent.probes.sysfs.rdma_kinds import Origin, is_software, origin
from agent.probes.sysfs.rdma_netdevs import read_netdevs
from agent.probes.sysfs.rdma_ports import read_ports
from agent.probes.sysfs.tree import Root

_CLASS = "class/infiniband"
_PIECE = re.compile(r"([^0-9]+|(?=[0-9]))([0-9]{0,18})")


@dataclass(frozen=True, slots=True, kw_only=True)
class RdmaReading:
    """What one look at a node's RDMA devices gave; its parts as in the snapshot.

    Attributes:
        hcas: as the kernel registered them; software devices last. None loaded is an empty
            tuple, ``None`` only where the list could not be read.
        management_hcas: those of the NVLink fabric, which *hcas* does not hold.
        issues: by subject.
    """

    hcas: tuple[Hca, ...] | None = None
    data_directs: tuple[DataDirect, ...] | None = None
    management_hcas: tuple[Hca, ...] | None = None
    issues: tuple[ProbeIssue, ...] = ()


def read_rdma(sysfs: Root, tree: PciTree, *, counters: bool = False) -> RdmaReading:
    """Return all that sysfs says of the RDMA devices; what it does not is in the issues.

    Args:
        counters: also the error counters, which differ each time they are read. One that a
            driver refuses costs a firmware command and a line in the kernel log each time
            (prometheus/node_exporter issue 3434), so they are not for periodic scans.
    """
    files = RdmaFiles(sysfs)
    names = files.names(_CLASS)
    if names is None and files.issues:
        return RdmaReading(data_directs=read_data_directs(tree, ()), issues=files.issues)
    devices = read_char_devices(files) if names else {}
    found = [_hca(files, tree, name, devices, counters=counters) for name in names or ()]
    hcas, management = split_management(files, tree, sorted(found, key=_order))
    return RdmaReading(
        hcas=hcas,
        data_directs=read_data_directs(tree, hcas),
        management_hcas=management,
        issues=_by_subject(files.issues),
    )


def _order(hca: Hca) -> tuple[bool, float, list[tuple[str, int]]]:
    """Sort as nvidia-smi numbers its NICs: as the kernel registered them, software ones last.

    That is not the order of addresses (on an 8-GPU H200 with 10 NICs it is another one); real
    legends follow mlx5_0, mlx5_1, … mlx5_10, which drivers count up as they register. The number
    of a device's uverbs counts the same events, and survives a renaming of the device.
    """
    numbers = [int(name[6:]) for name in hca.char_devices if name.startswith("uverbs")]
    return hca.pci is None, min(numbers, default=inf), _natural(hca.name)


def _natural(name: str) -> list[tuple[str, int]]:
    """Return a key by which ``mlx5_2`` stands before ``mlx5_10``."""
    return [(text, int(number or 0)) for text, number in _PIECE.findall(name)]


def _by_subject(issues: Iterable[ProbeIssue]) -> tuple[ProbeIssue, ...]:
    """Order issues, so that the same trouble gives the same snapshot however it was read."""
    return tuple(sorted(issues, key=lambda issue: (issue.subject, issue.reason)))


def _hca(
    files: RdmaFiles,
    tree: PciTree,
    name: str,
    char_devices: Mapping[str, tuple[str, ...]],
    *,
    counters: bool,
) -> Hca:
    device = f"{_CLASS}/{name}"
    ports = read_ports(files, device, counters=counters)
    hca = Hca(
        name=name,
        hca_type=files.word(f"{device}/hca_type"),
        board_id=files.word(f"{device}/board_id"),
        firmware=files.word(f"{device}/fw_ver"),
        node_guid=files.word(f"{device}/node_guid"),
        sys_image_guid=files.word(f"{device}/sys_image_guid"),
        netdevs=read_netdevs(files, device, ports),
        ports=ports,
        char_devices=char_devices.get(name, ()),
    )
    return _placed(files, tree, device, hca)


def _placed(files: RdmaFiles, tree: PciTree, device: str, hca: Hca) -> Hca:
    if is_software(files, device):
        return replace(hca, kind=HcaKind.SOFTWARE)
    real = files.real(f"{device}/device")
    # A subfunction's device is `mlx5_core.sf.4` below its PCI function: path_of stops there.
    path = None if real is None else path_of(real)
    pci = None if path is None else path.hops[-1]
    function = None if pci is None else tree.function(pci)
    source: Origin = origin(files, device, pci, hca.netdevs)
    return replace(
        hca,
        kind=source.kind,
        parent=source.parent,
        subfunction=source.subfunction,
        pci=pci,
        path=path,
        function=None if function is None else function.facts,
        numa_node=None if function is None else function.numa_node,
    )
