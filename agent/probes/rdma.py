"""RDMA devices of `/sys/class/infiniband`, of every vendor and under any name.

Files: kernel Documentation/ABI/stable/sysfs-class-infiniband.
"""

import re
from pathlib import Path

from agent.model.hca import Hca, HcaPort, LinkLayer
from agent.model.pci import PciAddress
from agent.model.snapshot import ProbeIssue
from agent.probes.files import Files
from agent.probes.pcie import PciTree, path_of

_CLASS = "class/infiniband"
_STATE = re.compile(r"[0-9]+: *(\S+)")
_RATE = re.compile(r"([0-9]+(?:\.[0-9]+)?) Gb/sec.*")


def read_rdma(sysfs: Path, tree: PciTree) -> tuple[tuple[Hca, ...] | None, tuple[ProbeIssue, ...]]:
    """Return the HCAs by PCI address, then name; those without a PCI function last.

    None loaded is an empty tuple. ``None`` only where the list could not be read.
    """
    files = Files("rdma", sysfs)
    names = files.names(_CLASS)
    if names is None:
        return (None if files.issues else ()), files.issues
    hcas = [_hca(files, tree, name) for name in names]
    return tuple(sorted(hcas, key=_order)), files.issues


def _order(hca: Hca) -> tuple[bool, PciAddress, str]:
    return hca.pci is None, hca.pci or PciAddress(0, 0, 0, 0), hca.name


def _hca(files: Files, tree: PciTree, name: str) -> Hca:
    place = f"{_CLASS}/{name}"
    real = files.real(f"{place}/device")
    # A subfunction's device is `mlx5_core.sf.4` below its PCI function: path_of stops there.
    path = None if real is None else path_of(real)
    function = None if path is None else tree.function(path.hops[-1])
    return Hca(
        name=name,
        pci=None if path is None else path.hops[-1],
        path=path,
        numa_node=None if function is None else function.numa_node,
        vendor=None if function is None else function.vendor,
        device=None if function is None else function.device,
        hca_type=files.text(f"{place}/hca_type"),
        firmware=files.text(f"{place}/fw_ver"),
        node_guid=files.text(f"{place}/node_guid"),
        sys_image_guid=files.text(f"{place}/sys_image_guid"),
        netdevs=files.names(f"{place}/device/net") or (),
        ports=_ports(files, f"{place}/ports"),
        pcie=None if function is None else function.link,
    )


def _ports(files: Files, place: str) -> tuple[HcaPort, ...]:
    numbers = sorted(int(name) for name in files.names(place) or () if name.isdecimal())
    return tuple(_port(files, f"{place}/{number}", number) for number in numbers)


def _port(files: Files, place: str, number: int) -> HcaPort:
    return HcaPort(
        number=number,
        state=_match(files, f"{place}/state", _STATE),
        physical_state=_match(files, f"{place}/phys_state", _STATE),
        layer=_layer(files, f"{place}/link_layer"),
        rate_gbps=_rate(files, f"{place}/rate"),
    )


def _match(files: Files, path: str, pattern: re.Pattern[str]) -> str | None:
    text = files.text(path)
    if text is None:
        return None
    match = pattern.fullmatch(text)
    if match is None:
        files.report(path, f"not understood: {text[:40]!r}")
        return None
    return match[1]


def _rate(files: Files, path: str) -> float | None:
    rate = _match(files, path, _RATE)
    return None if rate is None else float(rate)


def _layer(files: Files, path: str) -> LinkLayer | None:
    text = files.text(path)
    if text is None:
        return None
    if text not in tuple(LinkLayer):
        files.report(path, f"not a link layer that we know: {text[:40]!r}")
        return None
    return LinkLayer(text)
