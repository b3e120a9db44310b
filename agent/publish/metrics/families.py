"""Every metric family of one agent, in the order of the page.

Names follow the Prometheus conventions: base units, ``_total`` for counters, ``_info`` for
facts whose value is 1. Facts come from what is in memory; a scrape asks no hardware.
"""

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

# One metric family: its name, type, labels and meaning, and how its samples are found.

PREFIX = "nodetopo_"


Samples: TypeAlias = Mapping[tuple[str, ...], float]
"""Values of the labels, in the order of the family's → the number."""


class Kind(StrEnum):
    """Prometheus' types, as far as they are used."""

    GAUGE = "gauge"
    COUNTER = "counter"


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A family as the page and a scrape have it.

    Attributes:
        name: without the prefix and a counter's ``_total``.
        text: what the number means, one sentence without its full stop.
        labels: their names.
        samples: none where the facts are unknown.
    """

    name: str
    text: str
    samples: Callable[[MetricsState], Samples]
    labels: tuple[str, ...] = ()
    kind: Kind = Kind.GAUGE

    @property
    def full_name(self) -> str:
        """The name that queries use."""
        return f"{PREFIX}{self.name}{'_total' if self.kind is Kind.COUNTER else ''}"

    def metric(self, state: MetricsState) -> Metric:
        """Return the family with its samples of *state*."""
        make = CounterMetricFamily if self.kind is Kind.COUNTER else GaugeMetricFamily
        family = make(f"{PREFIX}{self.name}", f"{self.text}.", labels=self.labels)
        for labelled, value in self.samples(state).items():
            family.add_metric(labelled, value)
        return family


def single(value: float | None) -> Samples:
    """Return the one sample of a family without labels; none where *value* is unknown."""
    return {} if value is None else {(): value}


def by_name(values: Mapping[str, float]) -> Samples:
    """Return a sample for each name, which is the only label."""
    return {(name,): value for name, value in values.items()}


def by_two_names(values: Mapping[str, Mapping[str, float]]) -> Samples:
    """Return a sample for each pair of names, which are the two labels."""
    return {(one, two): value for one, inner in values.items() for two, value in inner.items()}


def present(names: Iterable[str], among: Iterable[str]) -> Samples:
    """Return 1 for those of *among* and *names* that are in *names*, and 0 for the others."""
    found = set(names)
    return {(name,): float(name in found) for name in sorted({*among, *found})}


# Metrics of the agent itself: what runs, what it publishes, how its configuration stands.


def _last_scan(state: MetricsState) -> Samples:
    captured = state.snapshot.captured_at if state.snapshot else None
    return single(captured.timestamp() if captured else None)


def _probe_issues(state: MetricsState) -> Samples:
    probes = [issue.probe for issue in state.snapshot.issues] if state.snapshot else []
    return {(probe,): probes.count(probe) for probe in sorted(set(probes))}


def _broken(state: MetricsState) -> Samples:
    return {
        (report, code, verdict): 1
        for report, found in state.checks_broken.items()
        for code, verdict in found.items()
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
        samples=_last_scan,
    ),
    Family(
        name="probe_issues",
        text="Things that could not be read in the last scan",
        labels=("probe",),
        samples=_probe_issues,
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
        samples=_broken,
    ),
    Family(
        name="label_writes",
        text="Writes of labels, to all their outputs",
        kind=Kind.COUNTER,
        samples=lambda state: single(state.publish_writes),
    ),
    Family(
        name="label_errors",
        text="Attempts to publish labels that failed",
        kind=Kind.COUNTER,
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
        kind=Kind.COUNTER,
        samples=lambda state: single(state.zone_writes),
    ),
    Family(
        name="zone_errors",
        text="Attempts to learn zones and placements from the kubelet, or to publish them, that "
        "failed",
        kind=Kind.COUNTER,
        samples=lambda state: single(state.zone_errors),
    ),
    Family(
        name="kubernetes_events",
        text="Events about the Node: `posted` writes, and those `dropped` unsaid",
        labels=("outcome",),
        kind=Kind.COUNTER,
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
        kind=Kind.COUNTER,
        samples=lambda state: single(state.config_failures),
    ),
)


# Metrics of what pods really got, and of those that were rejected.

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
        kind=Kind.COUNTER,
        samples=lambda state: single(state.pod_errors),
    ),
    Family(
        name="rejections",
        text="Pods rejected by the kubelet's managers, `explained` on the pod or `given-up`",
        labels=("outcome",),
        kind=Kind.COUNTER,
        samples=lambda state: by_name(
            {"explained": state.rejections_explained, "given-up": state.rejections_given_up}
        ),
    ),
)


# Metrics of single GPUs; those of hardware have the label ``gpu``, the index, alone.


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
        text="What the driver asks for: 0 for nothing; docs/operate/health.md has the others",
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


# Metrics of the health of GPUs.
#
# They have the label ``uuid``, since a GPU that the driver forgot has no index; ``gpu``, the
# index, is then empty.

_SOUND = GpuHealth()


def _known(state: MetricsState) -> Iterator[tuple[str, str, GpuHealth]]:
    """Yield (index, id, health) of the GPUs of the node, then of those only health knows."""
    gpus = state.snapshot.gpus if state.snapshot else ()
    for gpu in gpus:
        yield str(gpu.index), gpu.id, _health(gpu, state)
    named = {gpu.id for gpu in gpus}
    for uuid in sorted(state.health.keys() - named):
        yield "", uuid, state.health[uuid]


def _health(gpu: Gpu, state: MetricsState) -> GpuHealth:
    """Return how *gpu* is; a lost one is never handed out, watched or not."""
    health = state.health.get(gpu.id, _SOUND)
    return replace(health, is_healthy=False) if gpu.is_lost else health


def _health_each(value: Callable[[GpuHealth], bool]) -> Callable[[MetricsState], Samples]:
    return lambda state: {
        (index, uuid): float(value(health)) for index, uuid, health in _known(state)
    }


def _troubles(state: MetricsState) -> Samples:
    return {
        (index, uuid, health.kind or "", health.reason): 1
        for index, uuid, health in _known(state)
        if health.reason is not None
    }


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
        samples=_troubles,
    ),
    Family(
        name="xid_events",
        text="XID errors seen; pairs of GPU and code appear with their first",
        labels=("uuid", "xid"),
        kind=Kind.COUNTER,
        samples=lambda state: {
            (uuid, str(xid)): count for (uuid, xid), count in state.xid_counts.items()
        },
    ),
)


# Metrics of what the kubelet was offered, and took.

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
        kind=Kind.COUNTER,
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
        kind=Kind.COUNTER,
        samples=lambda state: by_name(state.allocations),
    ),
)


# Metrics of the node as a whole.


def _node_identity(state: MetricsState) -> Samples:
    node = state.snapshot
    if node is None:
        return {}
    facts = (node.node, node.driver_version, node.nvml_version, node.product_name)
    return {tuple(fact or "" for fact in facts): 1}


def _active_ports(state: MetricsState) -> Samples:
    hcas = (state.snapshot.hcas if state.snapshot else None) or ()
    return {(hca.name,): sum(port.state == "ACTIVE" for port in hca.ports) for hca in hcas}


NODE_FAMILIES = (
    Family(
        name="node_info",
        text="Names and versions of the node; empty where unknown",
        labels=("node", "driver", "nvml", "machine"),
        samples=_node_identity,
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
        samples=_active_ports,
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
    """Yield every family; one whose facts are unknown has no samples."""
    return (family.metric(state) for family in FAMILIES)
