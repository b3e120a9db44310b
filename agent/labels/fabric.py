"""The label of the multi-node NVLink fabric that GFD and the DRA driver publish as well."""

from agent.labels.label import LabelRow, RuledLabel
from agent.labels.rules import LabelRules
from agent.model.gpu import Fabric, FabricState
from agent.model.snapshot import Snapshot
from agent.topology.domains import clique

CLIQUE_KEY = "nvidia.com/gpu.clique"


def is_settled(snapshot: Snapshot) -> bool:
    """Return whether every GPU has come to the end of its registration with the fabric.

    Until then nobody can tell a node of its own from a part of a larger domain, so labels
    about either wait, and the ones already published stay.
    """
    return all(_is_settled(gpu.fabric) for gpu in snapshot.gpus if gpu.fabric is not None)


def _is_settled(fabric: Fabric) -> bool:
    if fabric.state is FabricState.NOT_SUPPORTED:
        return True
    return fabric.state is FabricState.COMPLETED and not fabric.status


def _clique(snapshot: Snapshot, rules: LabelRules) -> str | None:
    found = clique(snapshot) if rules.has_clique else None
    return None if found is None else str(found)


ENTRIES: tuple[LabelRow, ...] = (
    RuledLabel(
        key=CLIQUE_KEY,
        meaning="Multi-node NVLink partition, `<cluster UUID>.<clique id>`: nodes that share "
        "the value reach each other over NVLink. Absent unless all GPUs name the same one, and "
        "where another program owns the label.",
        source="nvmlDeviceGetGpuFabricInfoV, settings",
        cardinality="one per NVLink partition",
        value=_clique,
    ),
)
