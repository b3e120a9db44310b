"""The label of the multi-node NVLink fabric that GFD and the DRA driver publish as well."""

from nodetopo.components.labels.label import LabelRow, RuledLabel
from nodetopo.components.labels.rules import LabelRules
from nodetopo.model.snapshot import Snapshot
from nodetopo.topology.domains import clique, is_settled

CLIQUE_KEY = "nvidia.com/gpu.clique"


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
