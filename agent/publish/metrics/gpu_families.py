"""Metrics of single GPUs; those of hardware have the label ``gpu``, the index, alone."""

from collections.abc import Callable

from agent.model.gpu import Gpu
from agent.model.snapshot import Snapshot
from agent.publish.metrics.family import Family, Samples
from agent.publish.metrics.state import MetricsState
from agent.topology.links import active_links


def _each(value: Callable[[Gpu, Snapshot], float | None]) -> Callable[[MetricsState], Samples]:
    def samples(state: MetricsState) -> Samples:
        node = state.snapshot
        if node is None:
            return {}
        known = {(str(gpu.index),): value(gpu, node) for gpu in node.gpus}
        return {labels: number for labels, number in known.items() if number is not None}

    return samples


def _identities(state: MetricsState) -> Samples:
    return {_identity(gpu): 1 for gpu in (state.snapshot.gpus if state.snapshot else ())}


def _identity(gpu: Gpu) -> tuple[str, ...]:
    facts = (gpu.uuid, gpu.pci, gpu.product, gpu.numa_node)
    return (str(gpu.index), *("" if fact is None else str(fact) for fact in facts))


def _has_failed_remap(gpu: Gpu, _node: Snapshot) -> bool | None:
    return None if gpu.remapped_rows is None else gpu.remapped_rows.has_failed


def _active_nvlinks(gpu: Gpu, node: Snapshot) -> float | None:
    return None if node.nvlinks is None else len(active_links(gpu, node))


GPU_FAMILIES = (
    Family(
        name="gpu_info",
        text="Identity of the GPU, to join with the other gpu metrics; empty where unknown",
        labels=("gpu", "uuid", "pci", "model", "numa"),
        samples=_identities,
    ),
    Family(
        name="gpu_lost",
        text="Whether the driver lost the GPU",
        labels=("gpu",),
        samples=_each(lambda gpu, _node: gpu.is_lost),
    ),
    Family(
        name="gpu_recovery_action",
        text="What the driver asks for: 0 for nothing; docs/health.md has the others",
        labels=("gpu",),
        samples=_each(lambda gpu, _node: gpu.recovery_action),
    ),
    Family(
        name="gpu_row_remap_failed",
        text="Whether remapping a memory row failed",
        labels=("gpu",),
        samples=_each(_has_failed_remap),
    ),
    Family(
        name="gpu_pcie_link_width",
        text="PCIe lanes in use",
        labels=("gpu",),
        samples=_each(lambda gpu, _node: None if gpu.pcie is None else gpu.pcie.width),
    ),
    Family(
        name="gpu_pcie_link_width_max",
        text="PCIe lanes possible",
        labels=("gpu",),
        samples=_each(lambda gpu, _node: None if gpu.pcie is None else gpu.pcie.max_width),
    ),
    Family(
        name="gpu_nvlinks_active",
        text="NVLinks that carry traffic",
        labels=("gpu",),
        samples=_each(_active_nvlinks),
    ),
)
