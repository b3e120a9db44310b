"""The metrics of one agent, as families that Prometheus scrapes.

Names follow the Prometheus conventions: base units, ``_total`` for counters, ``_info`` for
facts whose value is 1. Facts come from the snapshot in memory; a scrape asks no hardware.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

import agent
from agent.model.gpu import Gpu
from agent.model.snapshot import Snapshot
from agent.topology.links import active_links


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsState:
    """All that the metrics tell, at one moment; counters are since the start of the process.

    Attributes:
        snapshot: ``None`` before the first scan has ended.
        registrations: resource → registrations that the kubelet accepted.
        is_registered: resource → whether the kubelet has it now.
        check_counts: report (``health``, ``audit``) → verdict → number of checks.
    """

    snapshot: Snapshot | None
    generation: int = 0
    registrations: Mapping[str, int] = field(default_factory=dict)
    is_registered: Mapping[str, bool] = field(default_factory=dict)
    publish_writes: int = 0
    publish_errors: int = 0
    check_counts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


def families(state: MetricsState) -> Iterator[Metric]:
    """Yield every family; one whose facts are unknown has no samples."""
    yield from _agent(state)
    if state.snapshot is not None:
        yield from _node(state.snapshot)
        yield from _gpus(state.snapshot)


def _agent(state: MetricsState) -> Iterator[Metric]:
    yield _gauge("build_info", "Version of nodetopo.", ("version",), {(agent.__version__,): 1})
    yield _gauge(
        "snapshot_generation",
        "Changes of the node seen since the start of the process.",
        (),
        {(): state.generation},
    )
    yield _gauge(
        "registered",
        "Whether the kubelet has the resource registered now.",
        ("resource",),
        {(resource,): value for resource, value in state.is_registered.items()},
    )
    yield _counter(
        "registrations",
        "Registrations that the kubelet accepted.",
        ("resource",),
        {(resource,): value for resource, value in state.registrations.items()},
    )
    yield _counter("label_writes", "Writes to the Node.", (), {(): state.publish_writes})
    yield _counter(
        "label_errors",
        "Attempts to publish labels that failed.",
        (),
        {(): state.publish_errors},
    )
    yield _gauge(
        "checks",
        "Checks by report and verdict.",
        ("report", "verdict"),
        {
            (report, verdict): count
            for report, counts in state.check_counts.items()
            for verdict, count in counts.items()
        },
    )


def _node(snapshot: Snapshot) -> Iterator[Metric]:
    facts = (snapshot.node, snapshot.driver_version, snapshot.nvml_version, snapshot.product_name)
    yield _gauge(
        "node_info",
        "Names and versions of the node; empty where unknown.",
        ("node", "driver", "nvml", "machine"),
        {tuple(fact or "" for fact in facts): 1},
    )
    if snapshot.captured_at is not None:
        yield _gauge(
            "last_scan_timestamp_seconds",
            "When the node was last scanned, Unix time.",
            (),
            {(): snapshot.captured_at.timestamp()},
        )
    probes = [issue.probe for issue in snapshot.issues]
    yield _gauge(
        "probe_issues",
        "Things that could not be read in the last scan.",
        ("probe",),
        {(probe,): probes.count(probe) for probe in sorted(set(probes))},
    )
    yield _gauge("gpus", "GPUs of the node.", (), {(): len(snapshot.gpus)})
    yield _gauge(
        "hca_ports_active",
        "Ports of the RDMA adapter in state ACTIVE.",
        ("hca",),
        {
            (hca.name,): sum(port.state == "ACTIVE" for port in hca.ports)
            for hca in snapshot.hcas or ()
        },
    )


def _gpus(snapshot: Snapshot) -> Iterator[Metric]:
    gpus = snapshot.gpus
    yield _gauge(
        "gpu_info",
        "Identity of the GPU, to join with the other gpu metrics; empty where unknown.",
        ("gpu", "uuid", "pci", "model", "numa"),
        {_identity(gpu): 1 for gpu in gpus},
    )
    yield _per_gpu("gpu_lost", "Whether the driver lost the GPU.", gpus, lambda gpu: gpu.is_lost)
    yield _per_gpu(
        "gpu_recovery_action",
        "What the driver asks for: 0 none, 1 reset, 2 reboot, 3 drain P2P, 4 drain and reset.",
        gpus,
        lambda gpu: gpu.recovery_action,
    )
    yield _per_gpu(
        "gpu_row_remap_failed",
        "Whether remapping a memory row failed.",
        gpus,
        lambda gpu: None if gpu.remapped_rows is None else gpu.remapped_rows.has_failed,
    )
    yield _per_gpu(
        "gpu_pcie_link_width",
        "PCIe lanes in use.",
        gpus,
        lambda gpu: None if gpu.pcie is None else gpu.pcie.width,
    )
    yield _per_gpu(
        "gpu_pcie_link_width_max",
        "PCIe lanes possible.",
        gpus,
        lambda gpu: None if gpu.pcie is None else gpu.pcie.max_width,
    )
    if snapshot.nvlinks is not None:
        yield _per_gpu(
            "gpu_nvlinks_active",
            "NVLinks that carry traffic.",
            gpus,
            lambda gpu: len(active_links(gpu, snapshot)),
        )


def _identity(gpu: Gpu) -> tuple[str, ...]:
    facts = (gpu.uuid, gpu.pci, gpu.product, gpu.numa_node)
    return (str(gpu.index), *("" if fact is None else str(fact) for fact in facts))


def _per_gpu(
    name: str,
    text: str,
    gpus: Sequence[Gpu],
    value: Callable[[Gpu], float | None],
) -> Metric:
    known = {(str(gpu.index),): value(gpu) for gpu in gpus}
    return _gauge(
        name,
        text,
        ("gpu",),
        {labels: number for labels, number in known.items() if number is not None},
    )


def _gauge(
    name: str,
    text: str,
    labels: Sequence[str],
    values: Mapping[tuple[str, ...], float],
) -> Metric:
    family = GaugeMetricFamily(f"nodetopo_{name}", text, labels=labels)
    for labelled, value in values.items():
        family.add_metric(labelled, value)
    return family


def _counter(
    name: str,
    text: str,
    labels: Sequence[str],
    values: Mapping[tuple[str, ...], float],
) -> Metric:
    family = CounterMetricFamily(f"nodetopo_{name}", text, labels=labels)
    for labelled, value in values.items():
        family.add_metric(labelled, value)
    return family
