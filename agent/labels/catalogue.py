"""Every label that this program publishes, and the labels of a snapshot."""

from agent.labels import fabric, gpu, topology
from agent.labels.label import LabelEntry, sanitise
from agent.model.snapshot import Snapshot

CATALOGUE: tuple[LabelEntry, ...] = tuple(
    sorted(gpu.ENTRIES + fabric.ENTRIES + topology.ENTRIES, key=lambda entry: entry.key),
)
"""All entries by key; nothing outside it is ever published."""


def labels(snapshot: Snapshot) -> dict[str, str]:
    """Return the labels of the node, sorted by key.

    A label whose value is unknown, or has nothing that a label value may hold, is left out
    and takes no other with it. A node without GPUs has none but what PCI alone tells.
    """
    values = ((entry.key, entry.value(snapshot)) for entry in CATALOGUE)
    valid = ((key, sanitise(raw)) for key, raw in values if raw is not None)
    return {key: value for key, value in valid if value is not None}


def is_complete(snapshot: Snapshot) -> bool:
    """Return whether a label's absence proves that the node lost what it stood for.

    Only then may a publisher remove it. NVML is the source of nearly all labels, so
    anything that it could not answer, any GPU it lost and any that is still registering
    with the fabric leaves room for doubt.
    """
    is_answered = all(issue.probe != "nvml" for issue in snapshot.issues)
    is_whole = not any(gpu.is_lost for gpu in snapshot.gpus)
    return is_answered and is_whole and fabric.is_settled(snapshot)
