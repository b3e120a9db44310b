"""The label of the multi-node NVLink fabric that GFD and the DRA driver publish as well."""

from nodetopo.components.labels.label import Label, label
from nodetopo.components.labels.rules import LabelRules
from nodetopo.model.snapshot import Snapshot
from nodetopo.topology.domains import clique, is_settled

CLIQUE_KEY = "nvidia.com/gpu.clique"


@label(
    CLIQUE_KEY,
    "Multi-node NVLink partition, `<cluster UUID>.<clique id>`: nodes that share the "
    "value reach each other over NVLink. Absent unless all GPUs name the same "
    "partition, on products without NVLink between nodes, and if another program owns "
    "the label.",
    "nvmlDeviceGetGpuFabricInfoV, settings",
    "one per NVLink partition",
    is_ruled=True,
)
def _partition(snapshot: Snapshot, rules: LabelRules) -> str | None:
    found = clique(snapshot) if rules.has_clique and is_settled(snapshot) else None
    return None if found is None else str(found)


ENTRIES: tuple[Label, ...] = (_partition,)
