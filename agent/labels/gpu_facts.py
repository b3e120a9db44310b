"""What the labels of one resource say: what it is, how many there are, how it is shared.

Facts of GFD are those of its sources, NVIDIA/k8s-device-plugin ``internal/lm``, v0.19.0.
"""

from dataclasses import dataclass, replace

from agent.labels.gpu_model import described, first_known
from agent.labels.label import marked
from agent.labels.rules import LabelRules, SharedLabel
from agent.model.mig import MigAttributes
from agent.model.snapshot import Snapshot

GPU = "nvidia.com/gpu"
"""Begins the keys about GPUs: GFD's, whatever the resource is called that offers them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceFacts:
    """One resource.

    Attributes:
        model: of the GPU; ``None`` where it, or the profile, is unknown.
        marks: what the product says behind the model: of MIG and of sharing.
        count: devices, before sharing multiplies them.
        replicas: how often each is offered; 0 for what GFD takes as impossible to share.
        strategy: ``none`` or ``time-slicing``; ``None`` where nothing is offered.
        memory_mib: of one device.
        attributes: of one MIG device; ``None`` for whole GPUs.
    """

    model: str | None
    count: int
    marks: tuple[str, ...] = ()
    replicas: int = 1
    strategy: str | None = "none"
    memory_mib: int | None = None
    attributes: MigAttributes | None = None

    @property
    def product(self) -> str | None:
        """Model and marks, joined by hyphens, as a valid label value."""
        return None if self.model is None else marked(self.model, self.marks)


def whole_gpus(snapshot: Snapshot, rules: LabelRules) -> ResourceFacts | None:
    """Return what the node's GPUs are, partitioned or not; ``None`` for a node without any.

    Sharing counts where one of them is whole: GFD says 0 replicas of a model whose every GPU
    is partitioned.
    """
    gpus = described(snapshot)
    if not gpus:
        return None
    facts = ResourceFacts(
        model=gpus[0].product,
        count=len(gpus),
        memory_mib=first_known(gpus, lambda gpu: gpu.memory_mib or None),
    )
    if gpus[0].is_divided:
        return replace(facts, replicas=0)
    return shared(facts, rules.shared.get(GPU))


def shared(facts: ResourceFacts, rule: SharedLabel | None) -> ResourceFacts:
    """Return *facts* of a resource that is shared by *rule*; ``None`` shares nothing.

    Only a resource that keeps its name says ``SHARED`` in its product: a new name tells enough.
    """
    if rule is None:
        return facts
    marks = facts.marks if rule.is_renamed else (*facts.marks, "SHARED")
    return replace(facts, marks=marks, replicas=rule.replicas, strategy="time-slicing")
