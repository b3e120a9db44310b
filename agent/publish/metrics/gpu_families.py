"""The metric families of each GPU: what it is and does, and its health."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from agent.health.status import GpuHealth
from agent.model.gpu import Fabric, FabricState, Gpu
from agent.model.snapshot import Snapshot
from agent.publish.metrics.family import REMAPS, SCANNED, Family, MetricKind, Per, Samples
from agent.publish.metrics.state import MetricsState
from agent.topology.links import active_links

_SOUND = GpuHealth()


def _each(value: Callable[[Gpu, Snapshot], float | None]) -> Callable[[MetricsState], Samples]:
    """Return the samples of a family with the label ``gpu``, the index, alone."""

    def samples(state: MetricsState) -> Samples:
        node = state.snapshot
        if node is None:
            return {}
        known = {(str(gpu.index),): value(gpu, node) for gpu in node.gpus}
        return {labels: number for labels, number in known.items() if number is not None}

    return samples


def _known(state: MetricsState) -> Iterator[tuple[str, str, GpuHealth]]:
    """Yield (index, id, health) of the GPUs of the node, then of those that only health knows.

    A GPU that the driver forgot has no index; that is empty then. A lost GPU is unhealthy.
    """
    gpus = state.snapshot.gpus if state.snapshot else ()
    for gpu in gpus:
        health = state.health.get(gpu.id, _SOUND)
        yield str(gpu.index), gpu.id, replace(health, is_healthy=False) if gpu.is_lost else health
    for uuid in sorted(state.health.keys() - {gpu.id for gpu in gpus}):
        yield "", uuid, state.health[uuid]


def _health_each(value: Callable[[GpuHealth], bool]) -> Callable[[MetricsState], Samples]:
    """Return the samples of a family with the labels ``gpu`` and ``uuid``."""
    return lambda state: {
        (index, uuid): float(value(health)) for index, uuid, health in _known(state)
    }


def _is_registered(fabric: Fabric | None) -> bool | None:
    """Return whether a GPU is in its fabric; ``None`` where it has none, or that is unknown."""
    if fabric is None or fabric.state is FabricState.NOT_SUPPORTED:
        return None
    return fabric.state is FabricState.COMPLETED and not fabric.status


GPU_FAMILIES = (
    Family(
        name="gpu_info",
        text="Identity of the GPU, to join with the other gpu metrics; empty where unknown",
        labels=("gpu", "uuid", "pci", "model", "numa"),
        per=Per.GPU,
        when=SCANNED,
        is_minimal=True,
        samples=lambda state: {
            tuple(
                "" if fact is None else str(fact)
                for fact in (gpu.index, gpu.uuid, gpu.pci, gpu.product, gpu.numa_node)
            ): 1
            for gpu in (state.snapshot.gpus if state.snapshot else ())
        },
    ),
    Family(
        name="gpu_lost",
        text="Whether the driver lost the GPU",
        labels=("gpu",),
        per=Per.GPU,
        when=SCANNED,
        is_minimal=True,
        samples=_each(lambda gpu, _node: gpu.is_lost),
    ),
    Family(
        name="gpu_recovery_action",
        text="What the driver asks for: 0 for nothing; docs/operate/health.md has the others",
        labels=("gpu",),
        per=Per.GPU,
        when="the driver knows field 230",
        samples=_each(lambda gpu, _node: gpu.recovery_action),
    ),
    Family(
        name="gpu_row_remap_failed",
        text="Whether remapping a memory row failed",
        labels=("gpu",),
        per=Per.GPU,
        when=REMAPS,
        is_minimal=True,
        samples=_each(
            lambda gpu, _node: None if gpu.remapped_rows is None else gpu.remapped_rows.has_failed
        ),
    ),
    Family(
        name="gpu_row_remap_pending",
        text="Whether a memory row waits for a reset to be remapped",
        labels=("gpu",),
        per=Per.GPU,
        when=REMAPS,
        samples=_each(
            lambda gpu, _node: None if gpu.remapped_rows is None else gpu.remapped_rows.is_pending
        ),
    ),
    Family(
        name="gpu_uncorrectable_memory_errors",
        text="Uncorrectable memory errors since the driver was loaded",
        labels=("gpu",),
        kind=MetricKind.COUNTER,
        per=Per.GPU,
        when="the GPU has ECC on",
        samples=_each(
            lambda gpu, _node: None if gpu.ecc_errors is None else gpu.ecc_errors.volatile
        ),
    ),
    Family(
        name="gpu_sram_threshold_exceeded",
        text="Whether the SRAM had more uncorrectable errors than NVIDIA's threshold for an RMA",
        labels=("gpu",),
        per=Per.GPU,
        when="NVML knows the call, from A100 on",
        is_minimal=True,
        samples=_each(lambda gpu, _node: gpu.is_over_sram_threshold),
    ),
    Family(
        name="gpu_pcie_link_width",
        text="PCIe lanes in use",
        labels=("gpu",),
        per=Per.GPU,
        when="NVML knows the link",
        samples=_each(lambda gpu, _node: None if gpu.pcie is None else gpu.pcie.width),
    ),
    Family(
        name="gpu_pcie_link_width_max",
        text="PCIe lanes possible",
        labels=("gpu",),
        per=Per.GPU,
        when="NVML knows the link",
        samples=_each(lambda gpu, _node: None if gpu.pcie is None else gpu.pcie.max_width),
    ),
    Family(
        name="gpu_nvlinks_active",
        text="NVLinks that carry traffic",
        labels=("gpu",),
        per=Per.GPU,
        when="NVML lists NVLinks",
        samples=_each(
            lambda gpu, node: (
                None if gpu.is_lost or node.nvlinks is None else len(active_links(gpu, node))
            )
        ),
    ),
    Family(
        name="gpu_fabric_registered",
        text="Whether the GPU has joined its NVLink fabric",
        labels=("gpu",),
        per=Per.GPU,
        when="the GPU registers with a fabric (NVSwitch from Hopper on)",
        samples=_each(lambda gpu, _node: _is_registered(gpu.fabric)),
    ),
    Family(
        name="gpu_mig_devices",
        text="MIG devices of the GPU",
        labels=("gpu",),
        per=Per.GPU,
        when="the GPU is in MIG mode",
        samples=_each(
            lambda gpu, _node: len(gpu.mig.instances) if gpu.mig and gpu.is_divided else None
        ),
    ),
)


HEALTH_FAMILIES = (
    Family(
        name="gpu_healthy",
        text="Whether the kubelet may hand the GPU out, by its health",
        labels=("gpu", "uuid"),
        per=Per.GPU,
        when=SCANNED,
        is_minimal=True,
        samples=_health_each(lambda health: health.is_healthy),
    ),
    Family(
        name="gpu_degraded",
        text="Whether the GPU is healthy, but the last to be chosen",
        labels=("gpu", "uuid"),
        per=Per.GPU,
        when=SCANNED,
        is_minimal=True,
        samples=_health_each(lambda health: health.is_degraded),
    ),
    Family(
        name="gpu_health_info",
        text="What is worst about a GPU that is not sound; sound ones have no sample",
        labels=("gpu", "uuid", "class", "reason"),
        per=Per.GPU,
        when="the GPU is not sound",
        is_minimal=True,
        samples=lambda state: {
            (index, uuid, health.kind or "", health.reason): 1
            for index, uuid, health in _known(state)
            if health.reason is not None
        },
    ),
    Family(
        name="xid_events",
        text="XID errors seen; pairs of GPU and code appear with their first",
        labels=("uuid", "xid"),
        kind=MetricKind.COUNTER,
        per=Per.PROBLEM,
        when="the GPU had the XID",
        is_minimal=True,
        samples=lambda state: {
            (uuid, str(xid)): count for (uuid, xid), count in state.xid_counts.items()
        },
    ),
)
