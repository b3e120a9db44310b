"""Metrics of the GPUs: registration with the kubelet, facts, and health."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from nodetopo.components.gpus.reading import GpuReading
from nodetopo.kernel.http.family import (
    SCANNED,
    Family,
    MetricKind,
    Per,
    Samples,
    Section,
    by_name,
    by_two_names,
    present,
    single,
)
from nodetopo.model.gpu import Fabric, FabricState, Gpu
from nodetopo.model.gpu_health import GpuHealth
from nodetopo.model.snapshot import Snapshot
from nodetopo.topology.links import active_links

OFFERED = "the resource is advertised"
LOOKED_UP = "unshared HCAs are advertised, or `pod-policies` is on"
REMAPS = "the GPU remaps rows (from A100 on) and is not in MIG mode"


_SOUND = GpuHealth()


def _each(value: Callable[[Gpu, Snapshot], float | None]) -> Callable[[GpuReading], Samples]:
    """Return the samples of a family with the label ``gpu``, the index, alone."""

    def samples(reading: GpuReading) -> Samples:
        node = reading.snapshot
        if node is None:
            return {}
        values = {(str(gpu.index),): value(gpu, node) for gpu in node.gpus}
        return {labels: number for labels, number in values.items() if number is not None}

    return samples


def _known(reading: GpuReading) -> Iterator[tuple[str, str, GpuHealth]]:
    """Yield (index, id, health) of the node's GPUs, then of GPUs known only to the health.

    The index of a GPU that the driver forgot is empty. A lost GPU is unhealthy.
    """
    gpus = reading.snapshot.gpus if reading.snapshot else ()
    for gpu in gpus:
        health = reading.health.get(gpu.id, _SOUND)
        yield str(gpu.index), gpu.id, replace(health, is_healthy=False) if gpu.is_lost else health
    for uuid in sorted(reading.health.keys() - {gpu.id for gpu in gpus}):
        yield "", uuid, reading.health[uuid]


def _health_each(value: Callable[[GpuHealth], bool]) -> Callable[[GpuReading], Samples]:
    """Return the samples of a family with the labels ``gpu`` and ``uuid``."""
    return lambda reading: {
        (index, uuid): float(value(health)) for index, uuid, health in _known(reading)
    }


def _is_registered(fabric: Fabric | None) -> bool | None:
    """Return whether a GPU has joined its fabric; ``None`` without a fabric or if unknown."""
    if fabric is None or fabric.state is FabricState.NOT_SUPPORTED:
        return None
    return fabric.state is FabricState.COMPLETED and not fabric.status


FAMILIES: tuple[Family[GpuReading], ...] = (
    Family(
        name="nvml_failures_in_a_row",
        section=Section.AGENT,
        text="Consecutive failed NVML reads",
        is_minimal=True,
        samples=lambda reading: single(reading.nvml_failures),
    ),
    Family(
        name="driver_paused",
        section=Section.AGENT,
        text="Whether NVML is closed because a label of the Node requests a free driver",
        is_minimal=True,
        samples=lambda reading: single(reading.is_driver_paused),
    ),
    Family(
        name="registered",
        section=Section.KUBELET,
        text="Whether the resource is registered with the kubelet",
        labels=("resource",),
        per=Per.RESOURCE,
        is_minimal=True,
        samples=lambda reading: by_name(reading.is_registered),
    ),
    Family(
        name="registrations",
        section=Section.KUBELET,
        text="Registrations that the kubelet accepted",
        labels=("resource",),
        kind=MetricKind.COUNTER,
        per=Per.RESOURCE,
        when=OFFERED,
        samples=lambda reading: by_name(reading.registrations),
    ),
    Family(
        name="hand_over_info",
        section=Section.KUBELET,
        text="How devices reach containers: comma-separated strategies (`device-list-strategy`)",
        labels=("strategy",),
        when=OFFERED,
        samples=lambda reading: {(",".join(reading.strategies),): 1} if reading.strategies else {},
    ),
    Family(
        name="resource_conflict",
        section=Section.KUBELET,
        text="Whether another device plugin has taken the resource",
        labels=("resource",),
        per=Per.RESOURCE,
        is_minimal=True,
        samples=lambda reading: present(reading.conflicts, reading.is_registered),
    ),
    Family(
        name="devices",
        section=Section.KUBELET,
        text="Advertised devices, including replicas: `healthy` devices are allocatable",
        labels=("resource", "health"),
        per=Per.RESOURCE,
        most=2,
        when=OFFERED,
        is_minimal=True,
        samples=lambda reading: by_two_names(reading.devices),
    ),
    Family(
        name="allocations",
        section=Section.KUBELET,
        text="Containers that got devices",
        labels=("resource",),
        kind=MetricKind.COUNTER,
        per=Per.RESOURCE,
        when=OFFERED,
        samples=lambda reading: by_name(reading.allocations),
    ),
    Family(
        name="requester_lookups",
        section=Section.KUBELET,
        text="Lookups of the pod behind a preferred allocation: `known`, `ambiguous`, or "
        "`failed` if the kubelet was not listed or refused",
        labels=("outcome",),
        kind=MetricKind.COUNTER,
        most=3,
        when=LOOKED_UP,
        samples=lambda reading: by_name(reading.lookups),
    ),
    Family(
        name="preferred_allocations_unchosen",
        section=Section.KUBELET,
        text="Preferred allocations that returned any valid set, because the choice took too long",
        labels=("resource",),
        kind=MetricKind.COUNTER,
        per=Per.RESOURCE,
        when=OFFERED,
        samples=lambda reading: by_name(reading.unchosen),
    ),
    Family(
        name="gpus",
        section=Section.NODE,
        text="GPUs of the node",
        when=SCANNED,
        is_minimal=True,
        samples=lambda reading: single(len(reading.snapshot.gpus) if reading.snapshot else None),
    ),
    Family(
        name="gpu_info",
        section=Section.GPUS,
        text="Identity of the GPU, to join with the other GPU metrics; empty if unknown",
        labels=("gpu", "uuid", "pci", "model", "numa"),
        per=Per.GPU,
        when=SCANNED,
        is_minimal=True,
        samples=lambda reading: {
            tuple(
                "" if fact is None else str(fact)
                for fact in (gpu.index, gpu.uuid, gpu.pci, gpu.product, gpu.numa_node)
            ): 1
            for gpu in (reading.snapshot.gpus if reading.snapshot else ())
        },
    ),
    Family(
        name="gpu_lost",
        section=Section.GPUS,
        text="Whether the driver lost the GPU",
        labels=("gpu",),
        per=Per.GPU,
        when=SCANNED,
        is_minimal=True,
        samples=_each(lambda gpu, _node: gpu.is_lost),
    ),
    Family(
        name="gpu_recovery_action",
        section=Section.GPUS,
        text="Recovery action that the driver requests: 0 for none; docs/operate/health.md "
        "lists the others",
        labels=("gpu",),
        per=Per.GPU,
        when="the driver knows field 230",
        samples=_each(lambda gpu, _node: gpu.recovery_action),
    ),
    Family(
        name="gpu_row_remap_failed",
        section=Section.GPUS,
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
        section=Section.GPUS,
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
        section=Section.GPUS,
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
        section=Section.GPUS,
        text="Whether the SRAM had more uncorrectable errors than NVIDIA's threshold for an RMA",
        labels=("gpu",),
        per=Per.GPU,
        when="NVML supports the call, from A100 on",
        is_minimal=True,
        samples=_each(lambda gpu, _node: gpu.is_over_sram_threshold),
    ),
    Family(
        name="gpu_pcie_link_width",
        section=Section.GPUS,
        text="PCIe lanes in use",
        labels=("gpu",),
        per=Per.GPU,
        when="NVML knows the link",
        samples=_each(lambda gpu, _node: None if gpu.pcie is None else gpu.pcie.width),
    ),
    Family(
        name="gpu_pcie_link_width_max",
        section=Section.GPUS,
        text="Maximum PCIe lanes",
        labels=("gpu",),
        per=Per.GPU,
        when="NVML knows the link",
        samples=_each(lambda gpu, _node: None if gpu.pcie is None else gpu.pcie.max_width),
    ),
    Family(
        name="gpu_nvlinks_active",
        section=Section.GPUS,
        text="Active NVLinks",
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
        section=Section.GPUS,
        text="Whether the GPU has joined its NVLink fabric",
        labels=("gpu",),
        per=Per.GPU,
        when="the GPU registers with a fabric (NVSwitch from Hopper on)",
        samples=_each(lambda gpu, _node: _is_registered(gpu.fabric)),
    ),
    Family(
        name="gpu_mig_devices",
        section=Section.GPUS,
        text="MIG devices of the GPU",
        labels=("gpu",),
        per=Per.GPU,
        when="the GPU is in MIG mode",
        samples=_each(
            lambda gpu, _node: len(gpu.mig.instances) if gpu.mig and gpu.is_divided else None
        ),
    ),
    Family(
        name="gpu_healthy",
        section=Section.HEALTH,
        text="Whether the GPU is healthy and therefore allocatable",
        labels=("gpu", "uuid"),
        per=Per.GPU,
        when=SCANNED,
        is_minimal=True,
        samples=_health_each(lambda health: health.is_healthy),
    ),
    Family(
        name="gpu_degraded",
        section=Section.HEALTH,
        text="Whether the GPU is healthy, but chosen last",
        labels=("gpu", "uuid"),
        per=Per.GPU,
        when=SCANNED,
        is_minimal=True,
        samples=_health_each(lambda health: health.is_degraded),
    ),
    Family(
        name="gpu_health_info",
        section=Section.HEALTH,
        text="Worst fault of an unhealthy or degraded GPU; other GPUs have no sample",
        labels=("gpu", "uuid", "class", "reason"),
        per=Per.GPU,
        when="the GPU is unhealthy or degraded",
        is_minimal=True,
        samples=lambda reading: {
            (index, uuid, health.kind or "", health.reason): 1
            for index, uuid, health in _known(reading)
            if health.reason is not None
        },
    ),
    Family(
        name="xid_events",
        section=Section.HEALTH,
        text="XID errors; a pair of GPU and code appears with its first error",
        labels=("uuid", "xid"),
        kind=MetricKind.COUNTER,
        per=Per.PROBLEM,
        when="the GPU had the XID",
        is_minimal=True,
        samples=lambda reading: {
            (uuid, str(xid)): count for (uuid, xid), count in reading.xid_counts.items()
        },
    ),
)


def idle(snapshot: Snapshot | None) -> GpuReading:
    """Return the reading before anything is offered."""
    return GpuReading(snapshot=snapshot)
