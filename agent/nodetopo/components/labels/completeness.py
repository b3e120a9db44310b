"""The gaps in labels: remarks for a person, and labels whose absence proves nothing."""

from collections import Counter

from nodetopo.components.labels import kubelet, rdma, topology, topology_ok
from nodetopo.components.labels.gpu import counted, described
from nodetopo.components.labels.gpu_resource import breach
from nodetopo.components.labels.label import Label
from nodetopo.components.labels.rules import LabelRules
from nodetopo.model.snapshot import Snapshot


def remarks(snapshot: Snapshot, rules: LabelRules) -> tuple[str, ...]:
    """Return sentences, without a full stop, about *snapshot* labelled by *rules*.

    They are stable while nothing changes, so that a log can print only new ones.
    """
    gpus, sentences = counted(snapshot), []
    models = Counter(gpu.product for gpu in gpus if gpu.product is not None)
    if len(models) > 1:
        listed = ", ".join(f"{model} ({count})" for model, count in sorted(models.items()))
        chosen = described(snapshot)
        which = f"describe {chosen[0].product}" if chosen else "stay until no GPU is lost"
        sentences.append(f"the node has several GPU models, {listed}; nvidia.com/gpu.* {which}")
    reason = breach(gpus) if rules.mig == "single" else None
    if reason is not None:
        sentences.append(
            f"nvidia.com/gpu.product ends in MIG-INVALID by the MIG strategy single: {reason}"
        )
    return tuple(sentences)


def unread(snapshot: Snapshot, rules: LabelRules) -> frozenset[str]:
    """Return the keys whose absence proves nothing, because their source was not read.

    A publisher keeps these unchanged. Facts withheld by NVML are covered by
    :func:`nodetopo.components.labels.catalogue.is_complete`.
    """
    entries: list[Label] = []
    failed = {issue.probe for issue in snapshot.issues}
    if snapshot.kubelet is None:
        entries += kubelet.ENTRIES
    is_placed = snapshot.pci_gpus is not None  # the census also places GPUs and cards
    if not is_placed or snapshot.numa_nodes is None or "numa" in failed:
        entries += topology.NUMA_ENTRIES
    if not is_placed or snapshot.hcas is None or "rdma" in failed:
        entries += rdma.ENTRIES
    if entries:
        entries += topology.SHAPE_ENTRIES + topology_ok.ENTRIES
    keys = {entry.key for entry in entries}
    if snapshot.numa_nodes is None or "numa" in failed:
        keys.add(rdma.SPREAD_KEY)
    if snapshot.kernel is None:
        keys.add(rdma.NETNS_KEY)
    if snapshot.data_directs is None:
        keys.add(rdma.DATA_DIRECT_KEY)
    if snapshot.hcas:  # an unplugged cable has no rate, and is soon back
        keys.add(rdma.RATE_KEY)
        if snapshot.nvidia is None:
            keys.add(rdma.GDR_KEY)
    return frozenset(map(rules.own, keys))
