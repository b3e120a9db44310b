"""NCCL's path types and NICs, for ``nodetopo topo matrix --nccl``."""

from nodetopo.model.snapshot import Snapshot
from nodetopo.nccl.affinity import nccl_nearest_hcas
from nodetopo.nccl.routes import nccl_paths
from nodetopo.topology.matrix import SELF, Matrix


def cells(snapshot: Snapshot, found: Matrix) -> list[list[str | None]]:
    """Return NCCL's path types, row by row; ``None`` where NCCL knows no path."""
    paths = nccl_paths(snapshot)
    rows: list[list[str | None]] = []
    for row in found.devices:
        routes = [paths.get((row.id, column.id)) for column in found.devices]
        rows.append([None if route is None else str(route.type.name) for route in routes])
    for position, line in enumerate(rows):
        line[position] = SELF
    return rows


def nearest_nics(snapshot: Snapshot) -> dict[str, list[str]]:
    """Return by GPU the NICs that NCCL would use, the NIC of its channel 0 first."""
    positions = {hca.name: f"NIC{at}" for at, hca in enumerate(snapshot.hcas or ())}
    return {
        f"GPU{index}": [positions[hca.name] for net in nearest.nets for hca in net.hcas]
        for index, nearest in nccl_nearest_hcas(snapshot).items()
    }
