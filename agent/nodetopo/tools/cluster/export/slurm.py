"""Slurm's topology.yaml, and the older topology.conf: switches for the network, blocks for NVLink.

As topology.yaml(5) and topology.conf(5) of Slurm 25.05 have it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from nodetopo.errors import InputError, NothingFound
from nodetopo.tools.cluster.export.objects import Family
from nodetopo.tools.cluster.export.record import Exported, ExportOptions, Remark, hint, warning
from nodetopo.tools.cluster.levels import Choice, named, nvlink_keys
from nodetopo.tools.cluster.node import ClusterNode
from nodetopo.tools.cluster.places import inner, is_dns_name, place_names, places, telling

_MAX_NAME = 64
"""Characters of a switch's name."""

_TREE, _BLOCK = "conf-tree", "conf-block"

_ROOT = "root"


class _Switch(Struct, frozen=True, kw_only=True):
    """A switch; its members are names of nodes if it is a leaf, of switches otherwise."""

    name: str
    members: tuple[str, ...]
    is_leaf: bool


class _Blocks(Struct, frozen=True, kw_only=True):
    """The blocks with their nodes, the size of the smallest, and the nodes outside of all."""

    by_name: dict[str, tuple[str, ...]]
    size: int
    outside: tuple[str, ...]


def _build(choice: Choice, options: ExportOptions) -> Exported:
    blocks = _blocks(choice, options)
    if options.form == _BLOCK:
        if blocks is None:
            cure = "take the form conf-tree"
            raise NothingFound("NVLink joins no two nodes", cure)
        lines = [f"BlockName={name} Nodes={','.join(it)}" for name, it in blocks.by_name.items()]
        text = "\n".join((*lines, f"BlockSizes={blocks.size}", ""))
        return Exported(text=text, remarks=_remarks(choice, blocks))
    switches = _switches(choice)
    if options.form == _TREE:
        text = "".join(
            f"SwitchName={switch.name} {'Nodes' if switch.is_leaf else 'Switches'}="
            f"{','.join(switch.members)}\n"
            for switch in switches
        )
        return Exported(text=text, remarks=_remarks(choice, None))
    rows = [
        {"switch": switch.name, "nodes" if switch.is_leaf else "children": ",".join(switch.members)}
        for switch in switches
    ]
    document: list[Mapping[str, Any]] = [
        {
            "topology": f"{options.name}-tree",
            "cluster_default": True,
            "tree": {"switches": rows},
        }
    ]
    if blocks is not None:
        rows = [{"block": name, "nodes": ",".join(it)} for name, it in blocks.by_name.items()]
        document.append(
            {
                "topology": f"{options.name}-block",
                "cluster_default": False,
                "block": {"block_sizes": [blocks.size], "blocks": rows},
            }
        )
    return Exported(document=document, remarks=_remarks(choice, blocks))


def _switches(choice: Choice) -> tuple[_Switch, ...]:
    """Return one switch for each place, the narrowest first, and one above them all.

    Without the topmost, no job could span two places. Levels that do not divide, or that only have
    single nodes, get no switches.
    """
    keys = telling(choice.nodes, tuple(filter(choice.joins, choice.broad)))
    by_place = places(choice.nodes, keys)
    names, inside = place_names(by_place, "", _MAX_NAME), inner(by_place)

    def switch(name: str, path: tuple[str, ...], nodes: Sequence[ClusterNode]) -> _Switch:
        switches = tuple(names[child.path] for child in inside.get(path, ()))
        return _Switch(name=name, members=switches or _names(nodes), is_leaf=not switches)

    below = tuple(switch(names[place.path], place.path, place.nodes) for place in by_place)
    return (*below[::-1], switch(_ROOT, (), choice.nodes))


def _blocks(choice: Choice, options: ExportOptions) -> _Blocks | None:
    """Return the NVLink places with two nodes or more; ``None`` without any.

    With named levels, the narrowest counts. Each block must have at least the base size of nodes,
    so a block of a single node would reduce the size of all to one.
    """
    if not options.levels and not {*choice.broad} & {*nvlink_keys(options.prefix)}:
        return None
    blocks = tuple(
        place
        for place in places(choice.nodes, choice.broad)
        if len(place.path) == len(choice.broad) and len(place.nodes) > 1
    )
    if not blocks:
        return None
    names = place_names(blocks, "", _MAX_NAME)
    inside = {node.name for place in blocks for node in place.nodes}
    return _Blocks(
        by_name={names[place.path]: _names(place.nodes) for place in blocks},
        size=min(len(place.nodes) for place in blocks),
        outside=tuple(node.name for node in choice.nodes if node.name not in inside),
    )


def _names(nodes: Sequence[ClusterNode]) -> tuple[str, ...]:
    """Return the names of *nodes*, all unambiguous in a host list."""
    for node in nodes:
        if not is_dns_name(node.name):
            raise InputError(f"not the name of a node: {node.name!r}", "check the nodes' source")
    return tuple(node.name for node in nodes)


def _remarks(choice: Choice, blocks: _Blocks | None) -> tuple[Remark, ...]:
    """Return remarks on the nodes; *blocks* are the printed ones."""
    remarks = []
    if blocks is not None and blocks.outside:
        remarks.append(warning(f"in no block, each alone in its place: {named(blocks.outside)}"))
    if any("." in node.name for node in choice.nodes):
        remarks.append(warning("names of nodes have dots: Slurm's NodeName is often the short one"))
    return (*remarks, hint("names of nodes must be Slurm's: NodeName in slurm.conf"))


SLURM = Family(name="slurm", build=_build)
