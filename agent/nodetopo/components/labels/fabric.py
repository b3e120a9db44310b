"""The label of the multi-node NVLink fabric that GFD and the DRA driver publish as well."""

from nodetopo.components.labels.label import LabelRow, RuledLabel
from nodetopo.components.labels.rules import LabelRules
from nodetopo.model.gpu import FabricState
from nodetopo.model.snapshot import Snapshot
from nodetopo.topology.domains import clique

CLIQUE_KEY = "nvidia.com/gpu.clique"


def is_settled(snapshot: Snapshot) -> bool:
    """Return whether every GPU has finished its registration with the fabric.

    Until then a standalone node looks like a part of a larger domain, so labels about either wait,
    and published ones stay. The same applies to a lost GPU whose registration was never read,
    unless the others have no fabric.
    """
    fabrics = [gpu.fabric for gpu in snapshot.gpus if gpu.fabric is not None]
    registered = [fabric for fabric in fabrics if fabric.state is not FabricState.NOT_SUPPORTED]
    lost = sum(gpu.is_lost and gpu.fabric is None for gpu in snapshot.gpus)
    if lost and (registered or lost == len(snapshot.gpus)):
        return False
    return all(fabric.state is FabricState.COMPLETED and not fabric.status for fabric in registered)


def _clique(snapshot: Snapshot, rules: LabelRules) -> str | None:
    partition = clique(snapshot) if rules.has_clique and is_settled(snapshot) else None
    return None if partition is None else str(partition)


ENTRIES: tuple[LabelRow, ...] = (
    RuledLabel(
        key=CLIQUE_KEY,
        meaning="Multi-node NVLink partition, `<cluster UUID>.<clique id>`: nodes that share the "
        "value reach each other over NVLink. Absent unless all GPUs name the same "
        "partition, on products without NVLink between nodes, and if another program owns "
        "the label.",
        source="nvmlDeviceGetGpuFabricInfoV, settings",
        cardinality="one per NVLink partition",
        value=_clique,
    ),
)
