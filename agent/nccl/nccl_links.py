"""The links of NCCL's graph that are no PCIe: NVLink, and Grace's chip-to-chip link.

Facts: NVIDIA/nccl 2.30.7 ``src/graph/topo.cc`` (ncclTopoAddNvLinks, ncclTopoAddC2c).
"""

from collections.abc import Iterator
from itertools import combinations

from agent.model.nvlink import PeerKind
from agent.model.snapshot import Snapshot
from agent.nccl import bandwidth
from agent.nccl.graph import SWITCHES, Graph, Kind
from agent.nccl.paths import NcclPath
from agent.topology.links import (
    direct_links,
    gpus_out_of_nvlink,
    nvlinks_between,
    switch_links,
)


def add_nvlinks(built: Graph, snapshot: Snapshot) -> None:
    """Link GPUs to each other, to the NVSwitches and (POWER9) to their CPU.

    A direct link counts as its weaker end reports it: NCCL refuses to start where only one
    end is up. Links that a text counts are taken for direct ones; the paths are the same.
    """
    out = gpus_out_of_nvlink(snapshot)
    names = {gpu.index: name for name, gpu in built.gpus.items() if gpu.index not in out}
    each = {gpu.index: bandwidth.nvlink(gpu) for gpu in built.gpus.values()}
    for a, b, count in _joined(snapshot):
        if count and a in names and b in names:
            built.connect(names[a], names[b], NcclPath.NVL, count * min(each[a], each[b]))
    for index, count in switch_links(snapshot).items():
        if index in names:
            built.add(SWITCHES, Kind.NVS)
            built.connect(names[index], SWITCHES, NcclPath.NVL, count * each[index])
    for link in snapshot.nvlinks or ():
        if link.is_active and link.peer_kind is PeerKind.CPU and link.gpu in names:
            _to_cpu(built, names[link.gpu], NcclPath.NVL, each[link.gpu])


def add_c2c(built: Graph) -> None:
    """Link each GPU that has a chip-to-chip link to its CPU."""
    for name, gpu in built.gpus.items():
        if gpu.c2c is not None and gpu.c2c.is_enabled:
            _to_cpu(built, name, NcclPath.C2C, bandwidth.c2c(gpu.c2c))


def _joined(snapshot: Snapshot) -> Iterator[tuple[int, int, int]]:
    if snapshot.nvlinks is None:
        for (a, b), count in nvlinks_between(snapshot).items():
            yield a, b, count or 0
        return
    direct = direct_links(snapshot)
    for a, b in combinations([gpu.index for gpu in snapshot.gpus], 2):
        yield a, b, min(direct[a, b], direct[b, a])


def _to_cpu(built: Graph, gpu: str, kind: NcclPath, gbs: float) -> None:
    """Link a GPU to the CPU that it hangs below by PCIe (findLocalCpu)."""
    (cpu, *_) = built.keys[gpu]
    built.connect(gpu, built.of(Kind.CPU)[int(cpu)], kind, gbs)
