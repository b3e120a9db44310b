"""Which Nodes have GPUs, as far as labels tell."""

from collections.abc import Iterable

from agent.cluster.node import ClusterNode

_COUNT, _PRESENT = "nvidia.com/gpu.count", "nvidia.com/gpu.present"
"""Of GPU Feature Discovery, and of the GPU Operator (state_manager.go of v25.10)."""

_OTHERS = ("nvidia.com/gpu.product", "nvidia.com/gpu.clique")
_OWN = ("interconnect", "nvlink-partition")


def gpu_nodes(nodes: Iterable[ClusterNode], prefix: str) -> tuple[ClusterNode, ...]:
    """Return those of *nodes* that have GPUs, in their order; *prefix* is that of our labels."""
    return tuple(node for node in nodes if has_gpus(node, prefix))


def has_gpus(node: ClusterNode, prefix: str) -> bool:
    """Return whether labels of ours, of GFD or of the GPU Operator say that *node* has GPUs."""
    if node.labels.get(_COUNT) == "0":
        return False
    keys = (_COUNT, *_OTHERS, *(f"{prefix}{name}" for name in _OWN))
    return node.labels.get(_PRESENT) == "true" or any(key in node.labels for key in keys)
