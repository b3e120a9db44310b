"""Every label that this program publishes, and the labels of a snapshot."""

from collections.abc import Iterator

from agent.labels import (
    fabric,
    gpu,
    gpu_resource,
    kubelet,
    levels,
    rdma,
    topology,
    topology_ok,
)
from agent.labels import (
    gpu_resource as vgpu,
)
from agent.labels import (
    topology as topology_numa,
)
from agent.labels import (
    topology as topology_shape,
)
from agent.labels.label import LabelRow, sanitise
from agent.labels.rules import LabelRules
from agent.model.snapshot import Snapshot

CATALOGUE: tuple[LabelRow, ...] = tuple(
    sorted(
        (
            *gpu.ENTRIES,
            *gpu_resource.ENTRIES,
            *vgpu.VGPU_ENTRIES,
            *fabric.ENTRIES,
            *topology.ENTRIES,
            *topology_numa.NUMA_ENTRIES,
            *topology_shape.SHAPE_ENTRIES,
            *topology_ok.ENTRIES,
            *rdma.ENTRIES,
            *kubelet.ENTRIES,
            *levels.ENTRIES,
        ),
        key=lambda row: row.key,
    ),
)
"""All rows by key; nothing outside it is ever published."""

_DEFAULT_RULES = LabelRules()


def labels(snapshot: Snapshot, rules: LabelRules = _DEFAULT_RULES) -> dict[str, str]:
    """Return the labels of the node by *rules*, sorted by key.

    A label whose value is unknown, or has nothing that a label value may hold, is left out
    and takes no other with it. A node without GPUs has none but what PCI alone tells.
    """
    return dict(sorted(_valid(snapshot, rules)))


def _valid(snapshot: Snapshot, rules: LabelRules) -> Iterator[tuple[str, str]]:
    for row in CATALOGUE:
        for key, raw in row.found(snapshot, rules).items():
            value = None if raw is None else sanitise(raw)
            if value is not None:
                yield rules.own(key), value


def is_complete(snapshot: Snapshot) -> bool:
    """Return whether a label's absence proves that the node lost what it stood for.

    Only then may a publisher remove it. NVML is the source of nearly all labels, so
    anything that it could not answer, any GPU it lost and any that is still registering
    with the fabric leaves room for doubt; and if it lists none of the GPUs that are on the
    bus, as in a container that may not open their devices.
    """
    is_answered = all(issue.probe != "nvml" for issue in snapshot.issues)
    is_whole = not any(gpu.is_lost for gpu in snapshot.gpus)
    is_listed = bool(snapshot.gpus) or not snapshot.pci_gpus
    return is_answered and is_whole and is_listed and fabric.is_settled(snapshot)
