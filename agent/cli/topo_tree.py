"""``nodetopo topo tree``: what contains what, from NUMA nodes down to GPUs and HCAs."""

from argparse import Namespace
from collections.abc import Iterator
from typing import Any

from agent.cli.devices import Device, link_text, row_name
from agent.cli.output import Answer, emit
from agent.cli.render import clean
from agent.cli.source import load
from agent.model.gpu import Gpu
from agent.model.hca import Hca
from agent.model.numa import NumaNode
from agent.model.snapshot import Snapshot
from agent.topology.domains import interconnect, islands
from agent.topology.links import nvlinks_between

SCHEMA = "nodetopo/topo-tree/v1"


def run(args: Namespace) -> int:
    """Print the tree; 0."""
    snapshot = load(args)
    nodes = tree(snapshot)
    lines = [line for node in nodes for line in _lines(node)]
    text = "".join(f"{line}\n" for line in lines)
    plain = {"schema": SCHEMA, "nodes": nodes, "nvlink": _nvlink(snapshot)}
    emit(Answer(plain=plain, table=text + _nvlink_text(snapshot), short=text), args)
    return 0


def tree(snapshot: Snapshot) -> list[dict[str, Any]]:
    """Return nested ``{"kind", "name", "children", …}`` objects, NUMA nodes outermost.

    Devices whose NUMA node is unknown stand under one node of the name ``None``, last.
    A PCIe switch is one level, named by its upstream port.
    """
    devices: list[Device] = [*snapshot.gpus, *(snapshot.hcas or ())]
    described = {node.id: node for node in snapshot.numa_nodes or ()}
    known = {device.numa_node for device in devices if device.numa_node is not None}
    nowhere = [None] if any(device.numa_node is None for device in devices) else []
    return [
        _numa(number, described.get(number) if number is not None else None, snapshot, devices)
        for number in (*sorted(known | set(described)), *nowhere)
    ]


def _numa(
    number: int | None,
    node: NumaNode | None,
    snapshot: Snapshot,
    devices: list[Device],
) -> dict[str, Any]:
    branch: dict[str, Any] = {
        "kind": "numa",
        "name": number,
        "cpus": str(node.cpus) if node else None,
        "memory_mib": node.memory_mib if node else None,
        "children": [],
    }
    here = [device for device in devices if device.numa_node == number]
    for device in sorted(here, key=lambda device: (device.pci is None, str(device.pci))):
        _insert(branch, device, snapshot)
    return branch


def _insert(branch: dict[str, Any], device: Device, snapshot: Snapshot) -> None:
    """Hang *device* under *branch*, growing the levels between them as needed."""
    if device.path is not None:
        branch = _child(branch, "root", device.path.root)
        # After the root port come pairs of a switch's upstream and downstream port.
        for upstream in device.path.hops[1:-1:2]:
            branch = _child(branch, "switch", str(upstream))
    branch["children"].append(_leaf(device, snapshot))


def _child(branch: dict[str, Any], kind: str, name: str) -> dict[str, Any]:
    for child in branch["children"]:
        if (child["kind"], child["name"]) == (kind, name):
            found: dict[str, Any] = child
            return found
    created: dict[str, Any] = {"kind": kind, "name": name, "children": []}
    branch["children"].append(created)
    return created


def _leaf(device: Device, snapshot: Snapshot) -> dict[str, Any]:
    return {
        "kind": "gpu" if isinstance(device, Gpu) else "nic",
        "name": row_name(device, snapshot),
        "label": None if isinstance(device, Gpu) else device.name,
        "pci": None if device.pci is None else str(device.pci),
        "product": device.product if isinstance(device, Gpu) else None,
        "link": link_text(device.pcie),
        "ports": [] if isinstance(device, Gpu) else _ports(device),
    }


def _ports(hca: Hca) -> list[str]:
    return [
        " ".join(
            filter(
                None,
                (
                    port.layer.value if port.layer else None,
                    None if port.rate_gbps is None else f"{port.rate_gbps:g} Gb/s",
                    None if port.state in (None, "ACTIVE") else port.state,
                ),
            ),
        )
        for port in hca.ports
    ]


def _lines(branch: dict[str, Any], lead: str = "") -> Iterator[str]:
    """Yield *branch* and what it holds, drawn with lines."""
    yield _title(branch)
    children = branch.get("children", [])
    for child in children:
        is_last = child is children[-1]
        first, *rest = _lines(child)
        yield f"{lead}{'└─ ' if is_last else '├─ '}{first}"
        for line in rest:
            yield f"{lead}{'   ' if is_last else '│  '}{line}"


def _title(branch: dict[str, Any]) -> str:
    match branch["kind"]:
        case "numa":
            memory = branch["memory_mib"]
            parts = [
                f"NUMA {'?' if branch['name'] is None else branch['name']}",
                f"CPUs {branch['cpus']}" if branch["cpus"] else None,
                f"{memory / 1024:.0f} GiB" if memory is not None else None,
            ]
        case "root":
            parts = [branch["name"]]
        case "switch":
            parts = [f"switch {branch['name']}"]
        case _:
            names = (branch["name"], branch["label"], branch["pci"], branch["product"])
            name = " ".join(filter(None, names))
            link = f"PCIe {branch['link']}" if branch["link"] else None
            parts = [name, link, *branch["ports"]]
    return clean(" · ".join(filter(None, parts)))


def _nvlink(snapshot: Snapshot) -> dict[str, Any]:
    groups = islands(snapshot)
    kind = interconnect(snapshot)
    return {
        "interconnect": None if kind is None else kind.value,
        "islands": None if groups is None else [list(group) for group in groups],
        "switches": [str(switch.pci) for switch in snapshot.nvswitches or ()],
    }


def _nvlink_text(snapshot: Snapshot) -> str:
    groups = islands(snapshot)
    if groups is None:
        return "\nNVLink: not reported\n"
    joined = [group for group in groups if len(group) > 1]
    if not joined:
        return "\nNVLink: none\n"
    kind = interconnect(snapshot)
    lines = [f"NVLink: {kind.value if kind else 'not reported'}"]
    lines += [f"  {_members(group)}: {_strength(group, snapshot)}" for group in joined]
    if snapshot.nvswitches:
        addresses = ", ".join(str(switch.pci) for switch in snapshot.nvswitches)
        lines.append(f"  NVSwitch: {addresses}")
    return "\n" + "".join(f"{line}\n" for line in lines)


def _members(group: tuple[int, ...]) -> str:
    return " ".join(f"GPU{index}" for index in group)


def _strength(group: tuple[int, ...], snapshot: Snapshot) -> str:
    counts = sorted(
        {
            count or 0
            for (a, b), count in nvlinks_between(snapshot).items()
            if a in group and b in group
        },
    )
    span = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"{span} link{'' if counts == [1] else 's'} between any two"
