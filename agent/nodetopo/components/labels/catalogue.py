"""Every label that this program publishes, and the labels of a snapshot."""

from nodetopo.components.labels import (
    fabric,
    gpu,
    gpu_resource,
    kubelet,
    levels,
    rdma,
    topology,
    topology_ok,
)
from nodetopo.components.labels.label import Label, label_value
from nodetopo.components.labels.rules import LabelRules
from nodetopo.model.snapshot import Snapshot
from nodetopo.topology.domains import is_settled

CATALOGUE: tuple[Label, ...] = tuple(
    sorted(
        (
            *gpu.ENTRIES,
            *gpu_resource.ENTRIES,
            *fabric.ENTRIES,
            *topology.ENTRIES,
            *topology.NUMA_ENTRIES,
            *topology.SHAPE_ENTRIES,
            *topology_ok.ENTRIES,
            *rdma.ENTRIES,
            *kubelet.ENTRIES,
            *levels.ENTRIES,
        ),
        key=lambda row: row.key,
    ),
)
"""All rows by key; no other key is ever published."""

GFD_KEYS = frozenset(row.key for row in (*gpu.ENTRIES, *gpu_resource.ENTRIES, *fabric.ENTRIES))
"""Those of the rows that GPU Feature Discovery publishes too."""

_DEFAULT_RULES = LabelRules()


def labels(snapshot: Snapshot, rules: LabelRules = _DEFAULT_RULES) -> dict[str, str]:
    """Return the labels of the node by *rules*, sorted by key.

    A label with an unknown value, or without valid characters, is left out without affecting
    others. A node without GPUs has only the labels that depend on PCI alone.
    """
    values: dict[str, str] = {}
    for row in CATALOGUE:
        if row.key in GFD_KEYS and not rules.has_gfd:
            continue
        for key, raw in row.raw_values(snapshot, rules).items():
            value = label_value(raw)
            if value is not None:
                values[rules.own(key)] = value
    return dict(sorted(values.items()))


def is_complete(snapshot: Snapshot) -> bool:
    """Return whether a label's absence proves that the node lost the feature.

    Only then can a publisher remove it. NVML is the source of nearly all labels, so labels are in
    doubt if it did not answer, if a GPU is lost or still registering with the fabric, or if it
    lists none of the GPUs on the bus, as in a container without access to them.
    """
    is_answered = all(issue.probe != "nvml" for issue in snapshot.issues)
    is_whole = not any(gpu.is_lost for gpu in snapshot.gpus)
    is_listed = bool(snapshot.gpus) or snapshot.pci_gpus == ()
    return is_answered and is_whole and is_listed and is_settled(snapshot)
