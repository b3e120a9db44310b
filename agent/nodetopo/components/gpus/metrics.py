"""Metrics of the GPUs: registration with the kubelet, facts, and health."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from msgspec.structs import replace

from nodetopo.kernel.http.family import (
    SCANNED,
    Family,
    MetricKind,
    Per,
    Reading,
    Section,
    counter,
    declared,
    derived,
    metric,
    present,
)
from nodetopo.model.gpu import FabricState, Gpu
from nodetopo.model.gpu_health import GpuHealth
from nodetopo.model.snapshot import Snapshot
from nodetopo.topology.links import active_links

OFFERED = "the resource is advertised"
REMAPS = "the GPU remaps rows (from A100 on) and is not in MIG mode"

_SOUND = GpuHealth()
_kubelet = partial(metric, Section.KUBELET)
_by_resource = partial(_kubelet, labels="resource", per=Per.RESOURCE)
_containers = partial(_by_resource, kind=MetricKind.COUNTER, when=OFFERED)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuReading(Reading):
    """The devices offered to the kubelet, and the health of the GPUs; most are by resource."""

    nvml_failures: int = metric(
        Section.AGENT,
        "Consecutive failed NVML reads",
        name="nvml_failures_in_a_row",
        is_minimal=True,
    )
    is_driver_paused: bool = metric(
        Section.AGENT,
        "Whether NVML is closed because a label of the Node requests a free driver",
        name="driver_paused",
        is_minimal=True,
    )
    is_registered: Mapping[str, bool] = _by_resource(
        "Whether the resource is registered with the kubelet", name="registered", is_minimal=True
    )
    registrations: Mapping[str, int] = _containers("Registrations that the kubelet accepted")
    strategies: tuple[str, ...] = _kubelet(
        "How devices reach containers: comma-separated strategies (`device-list-strategy`)",
        "strategy",
        name="hand_over_info",
        of=lambda it: ",".join(it.strategies) or None,
        when=OFFERED,
    )
    # The competing plugin that serves the resource, a sentence.
    conflicts: Mapping[str, str] = _by_resource(
        "Whether another device plugin has taken the resource",
        name="resource_conflict",
        of=lambda it: present(it.conflicts, it.is_registered),
        is_minimal=True,
    )
    devices: Mapping[str, Mapping[str, int]] = _kubelet(
        "Advertised devices, including replicas: `healthy` devices are allocatable",
        "resource health",
        per=Per.RESOURCE,
        most=2,
        when=OFFERED,
        is_minimal=True,
    )
    allocations: Mapping[str, int] = _containers("Containers that got devices")
    lookups: Mapping[str, int] = _kubelet(
        "Lookups of the pod behind a preferred allocation: `known`, `ambiguous`, or "
        "`failed` if the kubelet was not listed or refused",
        "outcome",
        name="requester_lookups",
        kind=MetricKind.COUNTER,
        most=3,
        when="unshared HCAs are advertised, or `pod-policies` is on",
    )
    unchosen: Mapping[str, int] = _containers(
        "Preferred allocations that returned any valid set, because the choice took too long",
        name="preferred_allocations_unchosen",
    )
    health: Mapping[str, GpuHealth] = metric(
        Section.HEALTH,
        "Worst fault of an unhealthy or degraded GPU; other GPUs have no sample",
        "gpu uuid class reason",
        name="gpu_health_info",
        of=lambda it: {
            (index, uuid, health.kind or ""): health.reason for index, uuid, health in it.known
        },
        per=Per.GPU,
        when="the GPU is unhealthy or degraded",
        is_minimal=True,
    )
    xid_counts: Mapping[tuple[str, int], int] = counter(
        Section.HEALTH,
        "XID errors; a pair of GPU and code appears with its first error",
        "uuid xid",
        name="xid_events",
        per=Per.PROBLEM,
        when="the GPU had the XID",
        is_minimal=True,
    )

    @property
    def known(self) -> Iterator[tuple[str, str, GpuHealth]]:
        """Yield (index, id, health) of the node's GPUs, then of GPUs known only to the health.

        The index of a GPU that the driver forgot is empty. A lost GPU is unhealthy.
        """
        gpus = self.snapshot.gpus if self.snapshot else ()
        for gpu in gpus:
            found = self.health.get(gpu.id, _SOUND)
            yield str(gpu.index), gpu.id, replace(found, is_healthy=False) if gpu.is_lost else found
        for uuid in sorted(self.health.keys() - {gpu.id for gpu in gpus}):
            yield "", uuid, self.health[uuid]


idle = GpuReading


def _gpu(
    name: str,
    text: str,
    of: Callable[[Gpu, Snapshot], Any],
    when: str = SCANNED,
    labels: str = "gpu",
    **how: Any,
) -> Family:
    """Return the family of a fact of each GPU; *of* returns it, and None where it is unknown."""

    def value(reading: GpuReading) -> Mapping[int, Any]:
        node = reading.snapshot
        return {} if node is None else {gpu.index: of(gpu, node) for gpu in node.gpus}

    return derived(name, Section.GPUS, text, value, labels, per=Per.GPU, when=when, **how)


def _health(name: str, text: str, of: Callable[[GpuHealth], bool]) -> Family:
    """Return the family of a fact about the health of each GPU."""
    return derived(
        name,
        Section.HEALTH,
        text,
        lambda reading: {(index, uuid): of(health) for index, uuid, health in reading.known},
        "gpu uuid",
        per=Per.GPU,
        when=SCANNED,
        is_minimal=True,
    )


def _identity(gpu: Gpu, _node: Snapshot) -> Mapping[Any, str]:
    facts = (gpu.uuid, gpu.pci, gpu.product)
    named = tuple("" if fact is None else str(fact) for fact in facts)
    return {named: "" if gpu.numa_node is None else str(gpu.numa_node)}


def _links(gpu: Gpu, node: Snapshot) -> int | None:
    return None if gpu.is_lost or node.nvlinks is None else len(active_links(gpu, node))


def _is_in_fabric(gpu: Gpu, _node: Snapshot) -> bool | None:
    """Return whether a GPU has joined its fabric; ``None`` without a fabric or if unknown."""
    if gpu.fabric is None or gpu.fabric.state is FabricState.NOT_SUPPORTED:
        return None
    return gpu.fabric.state is FabricState.COMPLETED and not gpu.fabric.status


*_OFFERED, _FAULTS, _XIDS = declared(GpuReading)

FAMILIES = (
    *_OFFERED,
    derived(
        "gpus",
        Section.NODE,
        "GPUs of the node",
        lambda it: len(it.snapshot.gpus) if it.snapshot else None,
        when=SCANNED,
        is_minimal=True,
    ),
    _gpu(
        "gpu_info",
        "Identity of the GPU, to join with the other GPU metrics; empty if unknown",
        _identity,
        is_minimal=True,
        labels="gpu uuid pci model numa",
    ),
    _gpu("gpu_lost", "Whether the driver lost the GPU", lambda it, _: it.is_lost, is_minimal=True),
    _gpu(
        "gpu_recovery_action",
        "Recovery action that the driver requests: 0 for none; docs/operate/health.md "
        "lists the others",
        lambda it, _: it.recovery_action,
        "the driver knows field 230",
    ),
    _gpu(
        "gpu_row_remap_failed",
        "Whether remapping a memory row failed",
        lambda it, _: it.remapped_rows and it.remapped_rows.has_failed,
        REMAPS,
        is_minimal=True,
    ),
    _gpu(
        "gpu_row_remap_pending",
        "Whether a memory row waits for a reset to be remapped",
        lambda it, _: it.remapped_rows and it.remapped_rows.is_pending,
        REMAPS,
    ),
    _gpu(
        "gpu_uncorrectable_memory_errors",
        "Uncorrectable memory errors since the driver was loaded",
        lambda it, _: it.ecc_errors and it.ecc_errors.volatile,
        "the GPU has ECC on",
        kind=MetricKind.COUNTER,
    ),
    _gpu(
        "gpu_sram_threshold_exceeded",
        "Whether the SRAM had more uncorrectable errors than NVIDIA's threshold for an RMA",
        lambda it, _: it.is_over_sram_threshold,
        "NVML supports the call, from A100 on",
        is_minimal=True,
    ),
    _gpu(
        "gpu_pcie_link_width",
        "PCIe lanes in use",
        lambda it, _: it.pcie and it.pcie.width,
        "NVML knows the link",
    ),
    _gpu(
        "gpu_pcie_link_width_max",
        "Maximum PCIe lanes",
        lambda it, _: it.pcie and it.pcie.max_width,
        "NVML knows the link",
    ),
    _gpu("gpu_nvlinks_active", "Active NVLinks", _links, "NVML lists NVLinks"),
    _gpu(
        "gpu_fabric_registered",
        "Whether the GPU has joined its NVLink fabric",
        _is_in_fabric,
        "the GPU registers with a fabric (NVSwitch from Hopper on)",
    ),
    _gpu(
        "gpu_mig_devices",
        "MIG devices of the GPU",
        lambda it, _: len(it.mig.instances) if it.mig and it.is_divided else None,
        "the GPU is in MIG mode",
    ),
    _health(
        "gpu_healthy",
        "Whether the GPU is healthy and therefore allocatable",
        lambda it: it.is_healthy,
    ),
    _health(
        "gpu_degraded",
        "Whether the GPU is healthy, but chosen last",
        lambda it: it.is_degraded,
    ),
    _FAULTS,
    _XIDS,
)
