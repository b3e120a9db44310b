"""``nodetopo topo complexes``: which GPUs and NICs belong together, and how their ports are set."""

from argparse import Namespace
from typing import Any

from nodetopo.cli import output
from nodetopo.cli.output import Answer, clean, emit
from nodetopo.cli.source import load
from nodetopo.model.gpu import Gpu
from nodetopo.model.hca import DataDirect, Hca
from nodetopo.topology.complex_faults import Fault, Unread, faults, group_of
from nodetopo.topology.complexes import (
    Complex,
    Complexes,
    Port,
    as_flags,
    complexes,
    kernel_argument,
)

SCHEMA = "nodetopo/topo-complexes/v1"
"""Names the JSON shape, described by ``docs/reference/schema/topo-complexes.json``."""

_LEGEND = """
Kinds:

  data-direct = the NIC reaches the GPU through a Data Direct function on the GPU's switch
  inline      = GPU and NIC on one switch of a ConnectX
  switch      = GPUs and NICs behind one PCIe switch
  numa        = no switch in common, only a NUMA node

IOMMU groups are those of the GPUs, the NICs and Data Direct, in that order; ATS: of the first NIC.
ACS flags, highest bit first, as `pci=config_acs=` takes them; x: as it is. Bits: direct translated,
egress control, upstream forwarding, completion redirect, request redirect, translation blocking,
source validation.
"""


def run(args: Namespace) -> int:
    """Print the complexes; 0."""
    found = complexes(load(args), for_virtual_machines=args.virt)
    summary = (
        output.table(_rows(found))
        if found.complexes
        else "no GPU shares a switch or a NUMA node with an NIC\n"
    )
    parts = [summary, *_lone(found)]
    if ports := [port for port in found.ports if port.control or port.expected]:
        parts.append("\n" + output.table(_port_rows(found, ports)))
    parts.append(_verdict(found))
    emit(
        Answer(plain=plain(found), table="".join(parts) + _LEGEND, short=summary + _verdict(found)),
        args,
    )
    return 0


def plain(found: Complexes) -> dict[str, Any]:
    """Return the complexes in JSON's own types; ``null`` is: not known, or none."""
    judged = tuple(faults(found))
    return {
        "schema": SCHEMA,
        "layout": None if found.layout is None else found.layout.value,
        "for_virtual_machines": found.for_virtual_machines,
        "complexes": [_complex(group) for group in found.complexes],
        "other_ports": [_port(port) for port in found.others],
        "lone_gpus": [gpu.name for gpu in found.lone_gpus],
        "lone_hcas": [hca.name for hca in found.lone_hcas],
        "faults": [
            {"subject": fault.subject, "observed": fault.observed, "expected": fault.expected}
            for fault in judged
            if isinstance(fault, Fault)
        ],
        "unknown": [
            f"{unread.what} of {unread.subject}" for unread in judged if isinstance(unread, Unread)
        ],
        "kernel_argument": kernel_argument(found),
    }


def _complex(it: Complex) -> dict[str, Any]:
    direct = it.data_direct
    members: tuple[Gpu | Hca | DataDirect, ...] = (
        *it.gpus,
        *it.hcas,
        *((direct,) if direct else ()),
    )
    return {
        "kind": it.kind.value,
        "gpus": [_device(gpu) for gpu in it.gpus],
        "hcas": [_device(hca) for hca in it.hcas],
        "data_direct": _text(None if direct is None else direct.pci),
        "numa": it.numa_node,
        "switch": _text(it.switch),
        "root_port": _text(it.root_port),
        "ats": it.has_ats,
        "iommu_groups": {
            _text(member.pci) or _name(member): group_of(member) for member in members
        },
        "ports": [_port(port) for port in it.ports],
        "doubt": it.doubt,
    }


def _device(device: Gpu | Hca) -> dict[str, Any]:
    return {"name": device.name, "pci": _text(device.pci)}


def _port(port: Port) -> dict[str, Any]:
    return {
        "pci": str(port.address),
        "role": port.role.value,
        "make": None if port.make is None else port.make.value,
        "acs": port.control,
        "has_acs": port.has_acs,
        "expected": port.expected,
        "right": port.is_right,
    }


def _rows(found: Complexes) -> list[list[str]]:
    header = ["COMPLEX", "KIND", "NUMA", "GPU", "NIC", "DATA DIRECT", "IOMMU GROUPS", "ATS"]
    rows = [header]
    for number, it in enumerate(found.complexes):
        direct = it.data_direct
        members = (*it.gpus, *it.hcas, *((direct,) if direct else ()))
        groups = [group_of(member) for member in members]
        rows.append(
            [
                str(number),
                it.kind.value,
                "?" if it.numa_node is None else str(it.numa_node),
                " ".join(gpu.name for gpu in it.gpus) or "-",
                clean(" ".join(hca.name for hca in it.hcas)) or "-",
                "-" if direct is None else _text(direct.pci) or "?",
                " ".join("-" if group is None else str(group) for group in groups),
                "?" if it.has_ats is None else "yes" if it.has_ats else "no",
            ]
        )
    return rows


def _lone(found: Complexes) -> list[str]:
    lines = []
    if found.lone_gpus:
        lines.append(f"no NIC of their own: {' '.join(gpu.name for gpu in found.lone_gpus)}\n")
    if found.lone_hcas:
        names = " ".join(hca.name for hca in found.lone_hcas)
        lines.append(f"no GPU of their own: {clean(names)}\n")
    return lines


def _port_rows(found: Complexes, ports: list[Port]) -> list[list[str]]:
    of = {
        port.address: str(number) for number, it in enumerate(found.complexes) for port in it.ports
    }
    rows = [["PORT", "COMPLEX", "ROLE", "MAKE", "ACS", "EXPECTED", ""]]
    for port in ports:
        now = "?" if port.control is None else as_flags(port.control)
        if port.has_acs is False:
            now = "none"
        verdict = {None: "", True: "ok", False: "WRONG"}[port.is_right]
        rows.append(
            [
                str(port.address),
                of.get(port.address, "-"),
                port.role.value,
                "" if port.make is None else port.make.value,
                now,
                port.expected or "",
                verdict,
            ]
        )
    return rows


def _verdict(found: Complexes) -> str:
    judged = tuple(faults(found))
    lines = [
        f"wrong: {clean(fault.subject)}: {clean(fault.observed)}, expected {fault.expected}"
        for fault in judged
        if isinstance(fault, Fault)
    ]
    lines += [
        f"not known: {unread.what} of {clean(unread.subject)}"
        for unread in judged
        if isinstance(unread, Unread)
    ]
    lines += [
        f"not judged: complex {number}: {it.doubt}"
        for number, it in enumerate(found.complexes)
        if it.doubt is not None
    ]
    argument = kernel_argument(found)
    if argument is not None and any(port.is_right is False for port in found.ports):
        name, _, value = argument.rpartition("=")
        lines += [
            f"to set the flags at boot: {argument}",
            # GRUB reads its configuration as a script, in which a bare ; ends the command.
            f'in GRUB_CMDLINE_LINUX of /etc/default/grub: {name}=\\"{value}\\"',
        ]
    return "".join(f"{line}\n" for line in ("", *lines)) if lines else ""


def _name(device: Gpu | Hca | DataDirect) -> str:
    return "Data Direct" if isinstance(device, DataDirect) else device.name


def _text(value: object) -> str | None:
    return None if value is None else str(value)
