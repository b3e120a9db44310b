"""``nodetopo topo tree``: the hierarchy from NUMA nodes down to GPUs and HCAs."""

from argparse import Namespace
from collections.abc import Iterator, Mapping
from typing import Any

from nodetopo.cli.output import Answer, emit
from nodetopo.cli.source import load
from nodetopo.cli.topo.picture import picture
from nodetopo.drawing.containment import Branch, BranchKind, containment
from nodetopo.drawing.devices import link_of, link_text
from nodetopo.drawing.text import memory_nodes, port_text, title
from nodetopo.model.digits import is_digits
from nodetopo.model.gpu import Gpu
from nodetopo.model.hca import DataDirect, Hca
from nodetopo.model.numa import CpuSet
from nodetopo.model.pci import PciAddress, PciBridge
from nodetopo.model.snapshot import Snapshot
from nodetopo.topology.domains import interconnect, islands
from nodetopo.topology.links import cpu_links, nvlinks_between

SCHEMA = "nodetopo/topo-tree/v1"
"""Names the JSON shape, described by ``docs/reference/schema/topo-tree.json``."""


def run(args: Namespace) -> int:
    """Print the tree; 0."""
    snapshot = load(args)
    nodes, folded = tree(snapshot), memory_nodes(snapshot)
    groups, kind = islands(snapshot), interconnect(snapshot)
    plain = {
        "schema": SCHEMA,
        "nodes": nodes,
        "memory_nodes": [
            {
                "nodes": str(CpuSet.of(group.nodes)),
                "gpu": group.gpu,
                "memory_mib": group.memory_mib,
            }
            for group in folded
        ],
        "nvlink": {
            "interconnect": None if kind is None else kind.value,
            "islands": None if groups is None else [list(group) for group in groups],
            "switches": [str(switch.pci) for switch in snapshot.nvswitches or ()],
            "cpu_links": [
                {"gpu": gpu, "links": count} for gpu, count in sorted(cpu_links(snapshot).items())
            ],
        },
    }
    lines = [line for node in nodes for line in _lines(node)]
    text = "".join(f"{line}\n" for line in (*lines, *map(str, folded)))

    emit(
        Answer(plain=plain, table=text + _nvlink_text(snapshot), short=text, svg=picture(snapshot)),
        args,
    )
    return 0


def tree(snapshot: Snapshot) -> list[dict[str, Any]]:
    """Return nested ``{"kind", "name", "children", …}`` objects, NUMA nodes outermost.

    Devices of unknown NUMA node are under a last node named ``None``. A PCIe switch is one level,
    named by its upstream port. A group holds devices of which only their distance is known; its
    name is the word for it.
    """
    described = {str(node.id): node for node in snapshot.numa_nodes or ()}
    bridges = {bridge.address: bridge for bridge in snapshot.bridges or ()}
    nodes: list[dict[str, Any]] = []
    for branch in containment(snapshot):
        number, node = branch.name, described.get(branch.name or "")
        nodes.append(
            {
                "kind": "numa",
                "name": int(number) if number is not None and is_digits(number) else number,
                "cpus": str(node.cpus) if node else None,
                "memory_mib": node.memory_mib if node else None,
                "children": [_plain(child, bridges) for child in branch.children],
            }
        )
    return nodes


def _plain(branch: Branch, bridges: Mapping[PciAddress, PciBridge]) -> dict[str, Any]:
    children = [_plain(child, bridges) for child in branch.children]
    match branch.kind:
        case BranchKind.GROUP:
            name = (branch.name or "").split()[0]
            return {"kind": branch.kind.value, "name": name, "children": children}
        case BranchKind.ROOT:
            return {"kind": branch.kind.value, "name": branch.name, "children": children}
        case BranchKind.SWITCH | BranchKind.BRIDGE:
            bridge = bridges.get(branch.address) if branch.address else None
            link = link_text(bridge.link) if bridge else None
            return {
                "kind": branch.kind.value,
                "name": branch.name,
                "link": link,
                "children": children,
            }
        case BranchKind.MIG:
            assert branch.instance is not None
            return {
                "kind": branch.kind.value,
                "name": branch.name,
                "uuid": branch.instance.uuid,
                "gpu_instance": branch.instance.gpu_instance,
                "compute_instance": branch.instance.compute_instance,
                "memory_mib": branch.instance.memory_mib,
            }
    return _device(branch, children)


def _device(branch: Branch, children: list[dict[str, Any]]) -> dict[str, Any]:
    device = branch.device
    assert device is not None
    plain: dict[str, Any] = {
        "kind": branch.kind.value,
        "name": branch.name,
        "label": device.name if isinstance(device, Hca) else None,
        "pci": None if device.pci is None else str(device.pci),
        "product": device.product if isinstance(device, Gpu) else None,
        "link": link_text(link_of(device)),
        "ports": [port_text(port) for port in device.ports] if isinstance(device, Hca) else [],
    }
    match device:
        case Gpu():
            mig = device.mig
            plain["mig"] = None if mig is None else mig.is_enabled
            plain["memory_numa"] = device.memory_numa_node
            plain["lost"] = device.is_lost
        case Hca():
            plain["part"] = device.kind.value if device.kind else None
        case DataDirect():
            plain["serves"] = list(device.hcas)
    return plain | {"children": children}


def _lines(branch: dict[str, Any], lead: str = "") -> Iterator[str]:
    """Yield *branch* and its children, drawn with lines."""
    yield title(branch)
    children = branch.get("children", [])
    for child in children:
        is_last = child is children[-1]
        first, *rest = _lines(child)
        yield f"{lead}{'└─ ' if is_last else '├─ '}{first}"
        for line in rest:
            yield f"{lead}{'   ' if is_last else '│  '}{line}"


def _nvlink_text(snapshot: Snapshot) -> str:
    groups = islands(snapshot)
    if groups is None:
        return "\nNVLink: not reported\n"
    joined = [group for group in groups if len(group) > 1]
    to_cpu = cpu_links(snapshot)
    if not joined and not to_cpu:
        return "\nNVLink: none\n"
    kind = interconnect(snapshot)
    lines = [f"NVLink: {kind.value if kind else 'not reported'}"]
    between = nvlinks_between(snapshot)
    for group in joined:
        counts = sorted(
            {count or 0 for (a, b), count in between.items() if a in group and b in group}
        )
        span = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
        members = " ".join(f"GPU{index}" for index in group)
        plural = "" if counts == [1] else "s"
        lines.append(f"  {members}: {span} link{plural} between any two")
    for count in sorted(set(to_cpu.values())):
        members = " ".join(f"GPU{gpu}" for gpu in sorted(to_cpu) if to_cpu[gpu] == count)
        lines.append(f"  {members}: {count} link{'' if count == 1 else 's'} to the CPU")
    if snapshot.nvswitches:
        addresses = ", ".join(str(switch.pci) for switch in snapshot.nvswitches)
        lines.append(f"  NVSwitch: {addresses}")
    return "\n" + "".join(f"{line}\n" for line in lines)
