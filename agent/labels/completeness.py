"""Which labels of this family the node may still deserve though a snapshot does not give them."""

from agent.labels import kubelet, rdma, topology_numa, topology_ok, topology_shape
from agent.labels.label import LabelEntry
from agent.labels.rules import LabelRules
from agent.model.snapshot import Snapshot


def unread(snapshot: Snapshot, rules: LabelRules) -> frozenset[str]:
    """Return the keys whose absence proves nothing: what they are made of was not read.

    A publisher keeps these as they are. What NVML withheld is not looked at here; see
    :func:`agent.labels.catalogue.is_complete`.
    """
    entries: list[LabelEntry] = []
    if snapshot.kubelet is None:
        entries += kubelet.ENTRIES
    is_placed = snapshot.pci_gpus is not None  # that is where GPUs and cards are
    if not is_placed or snapshot.numa_nodes is None or _has_issue(snapshot, "numa"):
        entries += topology_numa.ENTRIES
    if not is_placed or snapshot.hcas is None or _has_issue(snapshot, "rdma"):
        entries += rdma.ENTRIES
    if entries:
        entries += topology_shape.ENTRIES + topology_ok.ENTRIES
    keys = {entry.key for entry in entries}
    if snapshot.hcas:  # a cable that is out leaves no rate, and is soon back
        keys.add(rdma.RATE_KEY)
        if snapshot.nvidia is None:
            keys.add(rdma.GDR_KEY)
    return frozenset(map(rules.own, keys))


def _has_issue(snapshot: Snapshot, probe: str) -> bool:
    return any(issue.probe == probe for issue in snapshot.issues)
