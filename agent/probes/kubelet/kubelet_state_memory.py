"""``memory_manager_state``: kubernetes pkg/kubelet/cm/memorymanager/state/{checkpoint,state}.go.

Versions 1 (1.21) and 2 (1.36) have the same fields at the top; version 3 (1.37) repeats them in a
text ``data``, which is what counts. Sizes are in bytes.
"""

from collections.abc import Iterator
from typing import Any

from agent.errors import DecodeError
from agent.formats.json_shape import json_count, json_items, json_map, json_text
from agent.model.kubelet_state import HeldMemory, MemoryBlock, MemoryState
from agent.probes.kubelet.kubelet_state_cpu import authoritative


def memory_state(value: Any) -> MemoryState:
    """Return what the file's JSON says, blocks by NUMA node and kind.

    Raises:
        DecodeError: it is not of this form.
    """
    document = authoritative(value)
    blocks = sorted(_blocks(document), key=lambda block: (block.numa_node, block.kind))
    return MemoryState(
        policy=json_text(document.get("policyName"), "policyName"),
        blocks=tuple(blocks),
        entries={
            uid: {
                container: tuple(_held(held, f"entries.{uid}.{container}"))
                for container, held in json_map(containers, f"entries.{uid}").items()
            }
            for uid, containers in json_map(document.get("entries"), "entries").items()
        },
    )


def _blocks(document: dict[str, Any]) -> Iterator[MemoryBlock]:
    for node, state in json_map(document.get("machineState"), "machineState").items():
        path = f"machineState.{node}"
        if not node.isdecimal():
            raise DecodeError(path, "expected the number of a NUMA node")
        fields = json_map(state, path)
        cells = json_items(fields.get("cells"), f"{path}.cells")
        together = tuple(json_count(cell, at) for cell, at in cells)
        for kind, table in json_map(fields.get("memoryMap"), f"{path}.memoryMap").items():
            yield _block(int(node), kind, table, together)


def _block(node: int, kind: str, value: Any, cells: tuple[int, ...]) -> MemoryBlock:
    path = f"machineState.{node}.memoryMap.{kind}"
    table = json_map(value, path)

    def size(field: str) -> int:
        return json_count(table.get(field), f"{path}.{field}")

    return MemoryBlock(
        numa_node=node,
        kind=kind,
        total=size("total"),
        system_reserved=size("systemReserved"),
        allocatable=size("allocatable"),
        reserved=size("reserved"),
        free=size("free"),
        cells=cells,
    )


def _held(value: Any, path: str) -> Iterator[HeldMemory]:
    for item, at in json_items(value, path):
        block = json_map(item, at)
        nodes = json_items(block.get("numaAffinity"), f"{at}.numaAffinity")
        yield HeldMemory(
            kind=json_text(block.get("type"), f"{at}.type"),
            size=json_count(block.get("size"), f"{at}.size"),
            numa_nodes=tuple(json_count(node, place) for node, place in nodes),
        )
