"""Broadcom switches that show themselves as two levels and are one.

Facts: NVIDIA/nccl 2.30.7 ``src/graph/topo.cc`` (getBcmGen, ncclTopoFlattenBcmSwitches).
nvidia-smi does not do this: it says PXB where NCCL then says PIX.
"""

from collections.abc import Mapping

from agent.model.pci import PciAddress, PciBridge
from agent.nccl.graph import Graph, Kind

_BROADCOM = "1000"
_GEN4, _GEN5 = "c010", "c030"
"""PEX880xx and PEX890xx (pci.ids, vendor 1000)."""

_GEN4_BASE_MODE = "a"
"""First hex digit of the subsystem device id of either level of a Gen4 switch."""


def flatten(built: Graph, bridges: Mapping[PciAddress, PciBridge]) -> None:
    """Merge the second level of each such switch into the first, from the CPU downwards.

    The ids come from the snapshot's bridges; where it has none, nothing is merged. A switch
    is merged once, so a third level stays.
    """
    by_name = {f"PCI/{address}": bridge for address, bridge in bridges.items()}
    rank = {name: at for at, name in enumerate(_from_cpu(built))}
    for name, position in rank.items():
        generation = _generation(by_name.get(name), level=0)
        if name not in built.kinds or generation is None:
            continue
        for there in built.tree(name):
            is_below = rank.get(there, -1) > position
            if is_below and generation == _generation(by_name.get(there), level=1):
                _merge(built, there, name)


def _generation(bridge: PciBridge | None, *, level: int) -> str | None:
    if bridge is None or bridge.vendor != _BROADCOM or bridge.subsystem_vendor != _BROADCOM:
        return None
    mode = (bridge.subsystem_device or "")[:1].lower()
    if bridge.device == _GEN4 and mode == _GEN4_BASE_MODE:
        return _GEN4
    if bridge.device == _GEN5 and mode == str(level):
        return _GEN5
    return None


def _from_cpu(built: Graph) -> list[str]:
    """Return the switches, those nearer to the CPU first."""
    found = level = built.of(Kind.CPU)
    while level:
        level = [
            there
            for name in level
            for there in built.tree(name)
            if built.kinds[there] is Kind.PCI and there not in found
        ]
        found = [*found, *level]
    return [name for name in found if built.kinds[name] is Kind.PCI]


def _merge(built: Graph, sub: str, into: str) -> None:
    for (there, kind), gbs in list(built.links[sub].items()):
        if there != into:
            built.connect(there, into, kind, gbs)
    built.drop(sub)
