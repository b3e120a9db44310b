"""Which labels of this family the node may still deserve though a snapshot does not give them."""

from collections import Counter
from collections.abc import Iterator

from agent.labels import kubelet, rdma, topology, topology_ok
from agent.labels.gpu import counted, described
from agent.labels.gpu_resource import breach
from agent.labels.label import LabelEntry
from agent.labels.rules import LabelRules
from agent.model.snapshot import Snapshot

# What a person should know about a node's labels that no label says.


def remarks(snapshot: Snapshot, rules: LabelRules) -> tuple[str, ...]:
    """Return sentences, without a full stop, about *snapshot* labelled by *rules*.

    The same ones for as long as the same is the case, so that a log can tell news from them.
    """
    return (*_models(snapshot), *_mig(snapshot, rules))


def _models(snapshot: Snapshot) -> Iterator[str]:
    counts = Counter(gpu.product for gpu in counted(snapshot) if gpu.product is not None)
    if len(counts) > 1:
        listed = ", ".join(f"{model} ({count})" for model, count in sorted(counts.items()))
        chosen = described(snapshot)[0].product
        yield f"the node has several GPU models, {listed}; nvidia.com/gpu.* describe {chosen}"


def _mig(snapshot: Snapshot, rules: LabelRules) -> Iterator[str]:
    reason = breach(counted(snapshot)) if rules.mig == "single" else None
    if reason is not None:
        yield f"nvidia.com/gpu.product ends in MIG-INVALID by the MIG strategy single: {reason}"


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
        entries += topology.NUMA_ENTRIES
    if not is_placed or snapshot.hcas is None or _has_issue(snapshot, "rdma"):
        entries += rdma.ENTRIES
    if entries:
        entries += topology.SHAPE_ENTRIES + topology_ok.ENTRIES
    keys = {entry.key for entry in entries}
    if snapshot.hcas:  # a cable that is out leaves no rate, and is soon back
        keys.add(rdma.RATE_KEY)
        if snapshot.nvidia is None:
            keys.add(rdma.GDR_KEY)
    return frozenset(map(rules.own, keys))


def _has_issue(snapshot: Snapshot, probe: str) -> bool:
    return any(issue.probe == probe for issue in snapshot.issues)
