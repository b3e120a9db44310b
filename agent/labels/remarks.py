"""What a person should know about a node's labels that no label says."""

from collections import Counter
from collections.abc import Iterator

from agent.labels.gpu_model import counted, described
from agent.labels.mig import breach
from agent.labels.rules import LabelRules
from agent.model.snapshot import Snapshot


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
