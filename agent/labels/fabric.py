"""The label of the multi-node NVLink fabric that GFD and the DRA driver publish as well."""

from agent.labels.label import LabelRow, RuledLabel
from agent.labels.rules import LabelRules
from agent.model.gpu import FabricState
from agent.model.snapshot import Snapshot
from agent.topology.domains import clique

CLIQUE_KEY = "nvidia.com/gpu.clique"


def is_settled(snapshot: Snapshot) -> bool:
    """Return whether every GPU has finished its registration with the fabric.

    Until then a node of its own looks like a part of a larger domain, so labels about either
    wait, and the ones already published stay.
    """
    fabrics = [gpu.fabric for gpu in snapshot.gpus if gpu.fabric is not None]
    return all(
        fabric.state is FabricState.NOT_SUPPORTED
        or (fabric.state is FabricState.COMPLETED and not fabric.status)
        for fabric in fabrics
    )


def _clique(snapshot: Snapshot, rules: LabelRules) -> str | None:
    partition = clique(snapshot) if rules.has_clique else None
    return None if partition is None else str(partition)


ENTRIES: tuple[LabelRow, ...] = (
    RuledLabel(
        key=CLIQUE_KEY,
        meaning="Multi-node NVLink partition, `<cluster UUID>.<clique id>`: nodes that share "
        "the value reach each other over NVLink. Absent unless all GPUs name the same one, on "
        "products without NVLink between nodes, and where another program owns the label.",
        source="nvmlDeviceGetGpuFabricInfoV, settings",
        cardinality="one per NVLink partition",
        value=_clique,
    ),
)
