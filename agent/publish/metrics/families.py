"""Every metric family of one agent, in the order of the page.

Names follow the Prometheus conventions: base units, ``_total`` for counters, ``_info`` for
facts whose value is 1. Facts come from memory; a scrape reads no hardware.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeAlias

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

import agent
from agent.health.status import GpuHealth
from agent.model.gpu import Gpu
from agent.model.snapshot import Snapshot
from agent.publish.metrics.state import MetricsState
from agent.topology.links import active_links

PREFIX = "nodetopo_"


Samples: TypeAlias = Mapping[tuple[str, ...], float]
"""Values of the labels, in the order of the family's labels → the value of the sample."""


class MetricKind(StrEnum):
    """The types of Prometheus that are used."""

    GAUGE = "gauge"
    COUNTER = "counter"


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One metric family, for scrapes and for the documentation.

    Attributes:
        name: without the prefix and a counter's ``_total``.
        text: the help text, one sentence without its full stop.
        labels: the names of the labels.
        samples: returns the samples; none if the facts are unknown.
    """

    name: str
    text: str
    samples: Callable[[MetricsState], Samples]
    labels: tuple[str, ...] = ()
    kind: MetricKind = MetricKind.GAUGE

    @property
    def full_name(self) -> str:
        """The name in queries."""
        return f"{PREFIX}{self.name}{'_total' if self.kind is MetricKind.COUNTER else ''}"

    def metric(self, state: MetricsState) -> Metric:
        """Return the family with the samples of *state*."""
        make = CounterMetricFamily if self.kind is MetricKind.COUNTER else GaugeMetricFamily
        family = make(f"{PREFIX}{self.name}", f"{self.text}.", labels=self.labels)
        for labelled, value in self.samples(state).items():
            family.add_metric(labelled, value)
        return family


def single(value: float | None) -> Samples:
    """Return the one sample of a family without labels; none if *value* is unknown."""
    return {} if value is None else {(): value}


def by_name(values: Mapping[str, float]) -> Samples:
    """Return a sample for each name, which is the only label."""
    return {(name,): value for name, value in values.items()}


def by_two_names(values: Mapping[str, Mapping[str, float]]) -> Samples:
    """Return a sample for each pair of names, which are the two labels."""
    return {(one, two): value for one, inner in values.items() for two, value in inner.items()}


def present(names: Iterable[str], among: Iterable[str]) -> Samples:
    """Return 1 for each of *names*, and 0 for those *among* the others that are not."""
    ones = set(names)
    return {(name,): float(name in ones) for name in sorted({*among, *ones})}


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


AGENT_FAMILIES = (
    Family(
        name="build_info",
        text="Version of nodetopo",
        labels=("version",),
        samples=lambda _state: {(agent.__version__,): 1},
    ),
    Family(
        name="ready",
        text="Whether /readyz says yes; its answer has the reasons",
        samples=lambda state: single(state.not_ready is None),
    ),
    Family(
        name="snapshot_generation",
        text="Changes of the node seen since the start of the process",
        samples=lambda state: single(state.generation),
    ),
    Family(
        name="last_scan_timestamp_seconds",
        text="When the node was last scanned, Unix time",
        samples=lambda state: single(
            state.snapshot.captured_at.timestamp()
            if state.snapshot and state.snapshot.captured_at
            else None
        ),
    ),
    Family(
        name="probe_issues",
        text="Things that could not be read in the last scan",
        labels=("probe",),
        samples=lambda state: dict(
            sorted(
                Counter(
                    (issue.probe,) for issue in (state.snapshot.issues if state.snapshot else ())
                ).items()
            )
        ),
    ),
    Family(
        name="nvml_failures_in_a_row",
        text="Attempts to read NVML since its last answer",
        samples=lambda state: single(state.nvml_failures),
    ),
    Family(
        name="checks",
        text="Checks by report (`health`, `audit`) and verdict: `pass`, `warn`, `fail`, `unknown`, "
        "`waived`, or `skipped` where a check says nothing about this node",
        labels=("report", "verdict"),
        samples=lambda state: by_two_names(state.check_counts),
    ),
    Family(
        name="check_broken",
        text="1 for each check that fails or warns and is not waived; its code says what and why "
        "(`nodetopo explain CODE`)",
        labels=("report", "code", "verdict"),
        samples=lambda state: {
            (report, code, verdict): 1
            for report, checks in state.checks_broken.items()
            for code, verdict in checks.items()
        },
    ),
    Family(
        name="label_writes",
        text="Writes of labels, to all their outputs",
        kind=MetricKind.COUNTER,
        samples=lambda state: single(state.publish_writes),
    ),
    Family(
        name="label_errors",
        text="Attempts to publish labels that failed",
        kind=MetricKind.COUNTER,
        samples=lambda state: single(state.publish_errors),
    ),
    Family(
        name="labels_refused",
        text="Labels that are kept back because an output does not take their value",
        samples=lambda state: single(state.publish_refused),
    ),
    Family(
        name="zone_writes",
        text="Writes of the NodeResourceTopology object and of placements onto pods",
        kind=MetricKind.COUNTER,
        samples=lambda state: single(state.zone_writes),
    ),
    Family(
        name="zone_errors",
        text="Attempts to learn zones and placements from the kubelet, or to publish them, that "
        "failed",
        kind=MetricKind.COUNTER,
        samples=lambda state: single(state.zone_errors),
    ),
    Family(
        name="kubernetes_events",
        text="Events about the Node: `posted` writes, and those `dropped` unsaid",
        labels=("outcome",),
        kind=MetricKind.COUNTER,
        samples=lambda state: {
            ("posted",): state.events_posted,
            ("dropped",): state.events_dropped,
        },
    ),
    Family(
        name="config_info",
        text="Name of the configuration in force, where the Node's label or a default chooses one",
        labels=("name",),
        samples=lambda state: {} if state.config is None else {(state.config,): 1},
    ),
    Family(
        name="config_reload_failures",
        text="Changes of the configuration that were refused; the one before stays in force",
        kind=MetricKind.COUNTER,
        samples=lambda state: single(state.config_failures),
    ),
)


ALIGNMENT_FAMILIES = (
    Family(
        name="pods_measured",
        text="Running pods with GPUs or HCAs, by what was measured of them: `aligned`, "
        "`misaligned`, `unknown`",
        labels=("verdict",),
        samples=lambda state: by_name(state.pods_measured),
    ),
    Family(
        name="pods_misaligned",
        text="Running pods whose GPUs, CPUs, memory or HCAs are on different NUMA nodes, by the "
        "first cause: the code of a rule (`nodetopo explain CODE`), or a word of "
        "`docs/reference/alignment.md`",
        labels=("reason",),
        samples=lambda state: by_name(state.pods_misaligned),
    ),
    Family(
        name="pod_measurement_errors",
        text="Times that pods could not be measured, because the kubelet did not answer",
        kind=MetricKind.COUNTER,
        samples=lambda state: single(state.pod_errors),
    ),
    Family(
        name="rejections",
        text="Pods rejected by the kubelet's managers, `explained` on the pod or `given-up`",
        labels=("outcome",),
        kind=MetricKind.COUNTER,
        samples=lambda state: by_name(
            {"explained": state.rejections_explained, "given-up": state.rejections_given_up}
        ),
    ),
)


GPU_FAMILIES = (
    Family(
        name="gpu_info",
        text="Identity of the GPU, to join with the other gpu metrics; empty where unknown",
        labels=("gpu", "uuid", "pci", "model", "numa"),
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
        samples=_each(lambda gpu, _node: gpu.is_lost),
    ),
    Family(
        name="gpu_recovery_action",
        text="What the driver asks for: 0 for nothing; docs/operate/health.md has the others",
        labels=("gpu",),
        samples=_each(lambda gpu, _node: gpu.recovery_action),
    ),
    Family(
        name="gpu_row_remap_failed",
        text="Whether remapping a memory row failed",
        labels=("gpu",),
        samples=_each(
            lambda gpu, _node: None if gpu.remapped_rows is None else gpu.remapped_rows.has_failed
        ),
    ),
    Family(
        name="gpu_sram_threshold_exceeded",
        text="Whether the SRAM had more uncorrectable errors than NVIDIA's threshold for an RMA",
        labels=("gpu",),
        samples=_each(lambda gpu, _node: gpu.is_over_sram_threshold),
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
        samples=_each(
            lambda gpu, node: (
                None if gpu.is_lost or node.nvlinks is None else len(active_links(gpu, node))
            )
        ),
    ),
)


HEALTH_FAMILIES = (
    Family(
        name="gpu_healthy",
        text="Whether the kubelet may hand the GPU out, by its health",
        labels=("gpu", "uuid"),
        samples=_health_each(lambda health: health.is_healthy),
    ),
    Family(
        name="gpu_degraded",
        text="Whether the GPU is healthy, but the last to be chosen",
        labels=("gpu", "uuid"),
        samples=_health_each(lambda health: health.is_degraded),
    ),
    Family(
        name="gpu_health_info",
        text="What is worst about a GPU that is not sound; sound ones have no sample",
        labels=("gpu", "uuid", "class", "reason"),
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
        samples=lambda state: {
            (uuid, str(xid)): count for (uuid, xid), count in state.xid_counts.items()
        },
    ),
)


KUBELET_FAMILIES = (
    Family(
        name="registered",
        text="Whether the kubelet has the resource registered now",
        labels=("resource",),
        samples=lambda state: by_name(state.is_registered),
    ),
    Family(
        name="registrations",
        text="Registrations that the kubelet accepted",
        labels=("resource",),
        kind=MetricKind.COUNTER,
        samples=lambda state: by_name(state.registrations),
    ),
    Family(
        name="resource_conflict",
        text="Whether another device plugin has taken the resource",
        labels=("resource",),
        samples=lambda state: present(state.conflicts, state.is_registered),
    ),
    Family(
        name="devices",
        text="Devices offered, replicas included: those `healthy` are allocatable",
        labels=("resource", "health"),
        samples=lambda state: by_two_names(state.devices),
    ),
    Family(
        name="allocations",
        text="Containers that were given devices",
        labels=("resource",),
        kind=MetricKind.COUNTER,
        samples=lambda state: by_name(state.allocations),
    ),
)


NODE_FAMILIES = (
    Family(
        name="node_info",
        text="Names and versions of the node; empty where unknown",
        labels=("node", "driver", "nvml", "machine"),
        samples=lambda state: {
            (
                node.node or "",
                node.driver_version or "",
                node.nvml_version or "",
                node.product_name or "",
            ): 1
            for node in ([state.snapshot] if state.snapshot else [])
        },
    ),
    Family(
        name="gpus",
        text="GPUs of the node",
        samples=lambda state: single(len(state.snapshot.gpus) if state.snapshot else None),
    ),
    Family(
        name="hca_ports_active",
        text="Ports of the RDMA adapter in state ACTIVE",
        labels=("hca",),
        samples=lambda state: {
            (hca.name,): sum(port.state == "ACTIVE" for port in hca.ports)
            for hca in (state.snapshot.hcas if state.snapshot else None) or ()
        },
    ),
)


FAMILIES: tuple[Family, ...] = (
    *AGENT_FAMILIES,
    *KUBELET_FAMILIES,
    *NODE_FAMILIES,
    *GPU_FAMILIES,
    *HEALTH_FAMILIES,
    *ALIGNMENT_FAMILIES,
)


def families(state: MetricsState) -> Iterator[Metric]:
    """Yield every family; a family whose facts are unknown has no samples."""
    return (family.metric(state) for family in FAMILIES)
