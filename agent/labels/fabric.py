"""The label of the multi-node NVLink fabric that GFD and the DRA driver publish as well."""

from agent.labels.label import LabelEntry
from agent.model.gpu import Fabric, FabricState
from agent.model.snapshot import Snapshot
from agent.topology.domains import clique


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


def _clique(snapshot: Snapshot) -> str | None:
    found = clique(snapshot)
    return None if found is None else str(found)


ENTRIES: tuple[LabelEntry, ...] = (
    LabelEntry(
        key="nvidia.com/gpu.clique",
        meaning="Multi-node NVLink partition, `<cluster UUID>.<clique id>`: nodes that share "
        "the value reach each other over NVLink. Absent unless all GPUs name the same one.",
        source="nvmlDeviceGetGpuFabricInfoV",
        cardinality="one per NVLink partition",
        value=_clique,
    ),
)
