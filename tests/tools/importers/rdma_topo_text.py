"""Dumps as rdma-core's ``rdma_topo dump`` writes them: of any `/sys`, and of machines in words.

The machines are ours: trees as the layouts of :mod:`nodetopo.topology.complexes` need them, with
PCI ids of pci.ids and invented addresses, serial numbers and UUIDs.
"""

import json
import zlib
from base64 import b64encode
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from tests.probes.sysfs.pci_bytes import config, vpd

UNKNOWN = "0xNone"
"""An id that a composed machine does not give."""

KINDS = ("drm", "infiniband", "net", "nvme")
"""Classes whose devices a dump names."""

GRACE, VERA, XEON = "10de:22b1", "10de:2f95", "8086:352a"
SWITCH, BLUEFIELD_SWITCH, PLAIN_SWITCH = "15b3:197c", "15b3:197b", "1000:c030"
CONNECTX_7, CONNECTX_8, CONNECTX_9, DATA_DIRECT = "15b3:1021", "15b3:1023", "15b3:1025", "15b3:2100"
GPU = "10de:31c2"

BRIDGE, GPU_CLASS, NIC_CLASS, DMA_CLASS = "060400", "030200", "020700", "080100"

ISOLATED, ISOLATED_VERA = 0x1D, 0x15


class Function(Struct, frozen=True, kw_only=True):
    """One PCI function of a dump.

    Attributes:
        place: below the host bridge, e.g. ``pci0000:00/0000:00:01.0/0000:01:00.0``.
        ids: ``vendor:device``.
        acs: control register; ``None`` without the capability.
        ats: ``None``: config space ends before it.
        fields: of its VPD; ``None`` without.
    """

    place: str
    ids: str
    pci_class: str = BRIDGE
    acs: int | None = None
    ats: bool | None = False
    group: int | None = None
    node: int | None = 0
    fields: dict[str, str] | None = None
    names: dict[str, list[str]] = field(default_factory=dict)

    @property
    def address(self) -> str:
        """Where it sits."""
        return self.place.rpartition("/")[2]

    def entry(self) -> dict[str, Any]:
        """Return it as a dump has it."""
        vendor, device = (int(it, 16) for it in self.ids.split(":"))
        pci_class = self.pci_class
        entry: dict[str, Any] = {
            "realpath": f"/sys/devices/{self.place}",
            "config": packed(self._config()),
            "iommu_group": self.group,
            "modalias": f"pci:v{vendor:08X}d{device:08X}sv{vendor:08X}sd{0:08X}"
            f"bc{pci_class[:2]}sc{pci_class[2:4]}i{pci_class[4:]}",
            "numa_node": self.node,
            "subsystems": self.names,
        }
        if self.fields is not None:
            entry["vpd"] = packed(vpd(self.fields))
        return entry

    def _config(self) -> bytes:
        header = config(bridge=self.pci_class == BRIDGE, size=256)
        if self.ats is None:
            return header
        capabilities = []
        if self.acs is not None:
            capabilities.append((0x000D, bytes([0x5F, 0, self.acs, 0])))
        if self.ats:
            capabilities.append((0x000F, bytes(4)))
        behind = b""
        for at, (number, registers) in enumerate(capabilities, 1):
            following = 0x100 + 8 * at if at < len(capabilities) else 0
            behind += (following << 20 | 1 << 16 | number).to_bytes(4, "little") + registers
        return (header + behind).ljust(4096, b"\0")


def text(functions: Iterable[Function]) -> str:
    """Return the dump of a machine."""
    return json.dumps([it.entry() for it in functions], indent=4)


def changed(machine: Iterable[Function], address: str, **fields: Any) -> tuple[Function, ...]:
    """Return *machine* with other fields of the function at *address*."""
    machine = tuple(machine)
    assert any(it.address == address for it in machine), address
    return tuple(replace(it, **fields) if it.address == address else it for it in machine)


def data_direct(*, count: int = 2) -> tuple[Function, ...]:
    """Return Grace with *count* ConnectX-8, each with Data Direct beside its GPU: all is well."""
    functions: list[Function] = []
    for number in range(count):
        nic, gpu = f"{2 * number:04x}", f"{8 + number:04x}"
        card, group = {"V3": f"card-{number}", "SN": f"SN{number}"}, 100 + number
        up = f"pci{gpu}:00/{gpu}:00:00.0/{gpu}:01:00.0"
        below = f"{up}/{gpu}:02:03.0/{gpu}:04:00.0/{gpu}:05:00.0"
        functions += (
            *_on(number, _adapter(nic, GRACE, CONNECTX_8, f"mlx5_{number}", card)),
            Function(
                place=f"pci{gpu}:00/{gpu}:00:00.0", ids=GRACE, acs=0x1C, group=group, node=number
            ),
            Function(place=up, ids=SWITCH, group=group, node=number),
            Function(place=f"{up}/{gpu}:02:00.0", ids=SWITCH, acs=0x19, group=group, node=number),
            Function(
                place=f"{up}/{gpu}:02:00.0/{gpu}:03:00.0",
                ids=DATA_DIRECT,
                pci_class=DMA_CLASS,
                group=group,
                node=number,
                fields={"V3": card["V3"]},
            ),
            Function(place=f"{up}/{gpu}:02:03.0", ids=SWITCH, acs=0x15, group=group, node=number),
            Function(
                place=f"{up}/{gpu}:02:03.0/{gpu}:04:00.0", ids=SWITCH, group=group, node=number
            ),
            Function(place=below, ids=SWITCH, acs=ISOLATED, group=group, node=number),
            Function(
                place=f"{below}/{gpu}:06:00.0",
                ids=GPU,
                pci_class=GPU_CLASS,
                group=group,
                node=number,
            ),
        )
    return tuple(functions)


def inline(*, for_virtual_machines: bool = False, count: int = 2) -> tuple[Function, ...]:
    """Return a server whose GPUs are behind the switches of ConnectX-8: all is well.

    Between the root port and the switch that both share there is another switch.
    """
    functions: list[Function] = []
    is_virtual = for_virtual_machines
    own, open_or_own = (ISOLATED, ISOLATED) if is_virtual else (0, 0)
    for number in range(count):
        domain = f"{number:04x}"
        root = f"pci{domain}:00/{domain}:00:01.0"
        outer = f"{root}/{domain}:01:00.0"
        down = f"{outer}/{domain}:02:00.0"
        up = f"{down}/{domain}:03:00.0"
        inner = f"{up}/{domain}:04:01.0/{domain}:06:00.0"
        base = 10 * number

        def group(own: int, base: int = base) -> int:
            return base + own if is_virtual else base

        functions += (
            Function(place=root, ids=XEON, acs=own, group=group(0), node=number),
            Function(place=outer, ids=SWITCH, group=group(1), node=number),
            Function(place=down, ids=SWITCH, acs=open_or_own, group=group(2), node=number),
            Function(place=up, ids=SWITCH, group=group(3), node=number),
            Function(
                place=f"{up}/{domain}:04:00.0",
                ids=SWITCH,
                acs=0x5D if is_virtual else 0,
                group=group(4),
                node=number,
            ),
            Function(
                place=f"{up}/{domain}:04:00.0/{domain}:05:00.0",
                ids=CONNECTX_8,
                pci_class=NIC_CLASS,
                ats=is_virtual,
                group=group(5),
                node=number,
                fields={"V3": f"card-{number}", "SN": f"SN{number}"},
                names={"infiniband": [f"mlx5_{number}"], "net": [f"ib{number}"]},
            ),
            Function(
                place=f"{up}/{domain}:04:01.0", ids=SWITCH, acs=own, group=group(6), node=number
            ),
            Function(place=inner, ids=SWITCH, group=group(7), node=number),
            Function(
                place=f"{inner}/{domain}:07:00.0", ids=SWITCH, acs=own, group=group(8), node=number
            ),
            Function(
                place=f"{inner}/{domain}:07:00.0/{domain}:08:00.0",
                ids=GPU,
                pci_class=GPU_CLASS,
                group=group(9),
                node=number,
            ),
        )
    return tuple(functions)


def vera(*, nodes: int = 2, ports: int = 2) -> tuple[Function, ...]:
    """Return Vera: two GPUs and a ConnectX-9 of *ports* on root ports of each CPU: all is well."""
    functions: list[Function] = []
    for node in range(nodes):
        for gpu in range(2):
            domain = f"{16 * node + 8 + gpu:04x}"
            root = f"pci{domain}:00/{domain}:00:00.0"
            group = 100 * node + 10 * gpu
            functions += (
                Function(place=root, ids=VERA, acs=ISOLATED_VERA, group=group, node=node),
                Function(
                    place=f"{root}/{domain}:01:00.0",
                    ids=GPU,
                    pci_class=GPU_CLASS,
                    group=group + 1,
                    node=node,
                ),
            )
        domain = f"{16 * node:04x}"
        card = {"V3": f"card-{node}", "SN": f"SN{node}"}
        adapter = _adapter(domain, VERA, CONNECTX_9, f"mlx5_{ports * node}", card)
        first, *rest = _on(node, adapter)
        functions += (replace(first, acs=ISOLATED_VERA), *rest)
        nic = functions[-1]
        for at in range(1, ports):
            functions.append(
                replace(
                    nic,
                    place=f"{nic.place[:-1]}{at}",
                    group=(nic.group or 0) + at,
                    names={"infiniband": [f"mlx5_{ports * node + at}"]},
                )
            )
    return tuple(functions)


def _adapter(
    domain: str, root: str, ids: str, name: str, card: dict[str, str]
) -> tuple[Function, ...]:
    """Return an adapter with its own switch below a root port, each with a group of its own."""
    at = f"pci{domain}:00/{domain}:00:00.0"
    up = f"{at}/{domain}:01:00.0"
    down = f"{up}/{domain}:02:00.0"
    base = 1000 + 10 * int(domain, 16)
    return (
        Function(place=at, ids=root, acs=ISOLATED, group=base),
        Function(place=up, ids=SWITCH, group=base + 1),
        Function(place=down, ids=SWITCH, acs=ISOLATED, group=base + 2),
        Function(
            place=f"{down}/{domain}:03:00.0",
            ids=ids,
            pci_class=NIC_CLASS,
            group=base + 3,
            fields=card,
            names={"infiniband": [name]},
        ),
    )


def _on(node: int, functions: Iterable[Function]) -> tuple[Function, ...]:
    return tuple(replace(it, node=node) for it in functions)


def dump(root: Path) -> str:
    """Return the dump of the machine whose host root is *root*."""
    devices = sorted((root / "sys/bus/pci/devices").iterdir())
    known = [place for place in devices if (place / "vendor").exists()]
    return json.dumps([_of_files(place.resolve()) for place in known], indent=4)


def _of_files(real: Path) -> dict[str, Any]:
    def number(name: str) -> int:
        file = real / name  # a machine whose ids are not published lacks some
        text = file.read_text("ascii").strip() if file.exists() else UNKNOWN
        return 0 if text == UNKNOWN else int(text, 0)

    ids = [number(it) for it in ("vendor", "device", "subsystem_vendor", "subsystem_device")]
    pci_class = f"{number('class'):06X}"
    entry: dict[str, Any] = {
        "realpath": "/sys/devices/" + str(real).partition("/sys/devices/")[2],
        "config": packed((real / "config").read_bytes()),
        "iommu_group": None,
        "modalias": "pci:v{:08X}d{:08X}sv{:08X}sd{:08X}".format(*ids)
        + f"bc{pci_class[:2]}sc{pci_class[2:4]}i{pci_class[4:]}",
        "numa_node": number("numa_node"),
        "subsystems": {
            kind: sorted(it.name for it in (real / kind).iterdir())
            for kind in KINDS
            if (real / kind).is_dir()
        },
    }
    if (real / "iommu_group").is_symlink():
        entry["iommu_group"] = int((real / "iommu_group").readlink().name)
    if (real / "vpd").exists():
        entry["vpd"] = packed((real / "vpd").read_bytes())
    return entry


def packed(content: bytes) -> str:
    """Return bytes as a dump has them."""
    return b64encode(zlib.compress(content)).decode("ascii")
