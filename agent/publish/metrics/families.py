"""Every metric family of one agent, in the order of the page."""

from collections import Counter
from collections.abc import Callable, Iterator

from prometheus_client.core import Metric

import agent
from agent.model.hca import ACTIVE, Hca, HcaPort
from agent.publish.metrics.family import (
    DRA_ON,
    DRA_SEEN,
    FIELDS_DROPPED,
    HAS_HCAS,
    HCAS_OFFERED,
    OFFERED,
    SCANNED,
    Family,
    MetricKind,
    Per,
    Samples,
    by_name,
    by_two_names,
    present,
    single,
)
from agent.publish.metrics.gpu_families import GPU_FAMILIES, HEALTH_FAMILIES
from agent.publish.metrics.state import DraState, MetricsState
from agent.topology.presence import absent_gpus, dead_gpus

MOST_DRA_DRIVERS = 2
"""That publish GPUs of one node: ours or another's, both only by mistake."""

MOST_DROPPED_FIELDS = 4
"""Fields of slices behind feature gates: counters, what consumes them, taints and lists."""


def _dra(state: MetricsState, value: Callable[[DraState], float]) -> Samples:
    """Return the one sample of a family of our DRA driver; none where it is off."""
    return {} if state.dra is None else single(value(state.dra))


PORT_STATES = {"DOWN": 1, "INIT": 2, "ARMED": 3, "ACTIVE": 4, "ACTIVE_DEFER": 5}
"""Numbers of the kernel (include/rdma/ib_verbs.h, enum ib_port_state)."""

BYTES_PER_GBIT = 1e9 / 8

PORT_ERRORS = 6
"""Counters of a port that are published: those that the look at HCAs reads."""


def _hcas(state: MetricsState) -> tuple[Hca, ...]:
    return (state.snapshot.hcas if state.snapshot else None) or ()


def _each_port(value: Callable[[HcaPort], float | None]) -> Callable[[MetricsState], Samples]:
    """Return the samples of a family with the labels ``hca`` and ``port``."""

    def samples(state: MetricsState) -> Samples:
        known = {
            (hca.name, str(port.number)): value(port) for hca in _hcas(state) for port in hca.ports
        }
        return {labels: number for labels, number in known.items() if number is not None}

    return samples


def _missing_gpus(state: MetricsState) -> Samples:
    """Return how many GPUs are missing, by the place where they can still be seen."""
    node = state.snapshot
    if node is None or node.pci_gpus is None:
        return {}
    absent = absent_gpus(node)
    gone: Samples = {} if absent is None else {("none",): absent}
    return {("pci",): len(dead_gpus(node)), **gone}


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
        is_minimal=True,
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
        when=SCANNED,
        is_minimal=True,
        samples=lambda state: single(
            state.snapshot.captured_at.timestamp()
            if state.snapshot and state.snapshot.captured_at
            else None
        ),
    ),
    Family(
        name="gpus_missing",
        text="GPUs that the machine should have and the driver does not list: those still on the "
        "PCI bus (`pci`), and those that are not (`none`)",
        labels=("seen_on",),
        most=2,
        is_minimal=True,
        when="PCI was read; for `none`, where it is known how many GPUs there should be",
        samples=_missing_gpus,
    ),
    Family(
        name="probe_issues",
        text="Things that could not be read in the last scan",
        labels=("probe",),
        per=Per.PROBLEM,
        when="something could not be read",
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
        is_minimal=True,
        samples=lambda state: single(state.nvml_failures),
    ),
    Family(
        name="driver_paused",
        text="Whether NVML is closed because a label of the Node asks for a free driver",
        is_minimal=True,
        samples=lambda state: single(state.is_driver_paused),
    ),
    Family(
        name="checks",
        text="Checks by report (`health`, `audit`) and verdict: `pass`, `warn`, `fail`, `unknown`, "
        "`waived`, or `skipped` where a check says nothing about this node",
        labels=("report", "verdict"),
        most=12,
        when="the checks of the report have run",
        samples=lambda state: by_two_names(state.check_counts),
    ),
    Family(
        name="check_broken",
        text="1 for each check that fails or warns and is not waived; its code says what and why "
        "(`nodetopo explain CODE`)",
        labels=("report", "code", "verdict"),
        per=Per.PROBLEM,
        when="a check fails or warns",
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
        most=2,
        samples=lambda state: {
            ("posted",): state.events_posted,
            ("dropped",): state.events_dropped,
        },
    ),
    Family(
        name="config_info",
        text="Name of the configuration in force, where the Node's label or a default chooses one",
        labels=("name",),
        when="a configuration was chosen by name",
        samples=lambda state: {} if state.config is None else {(state.config,): 1},
    ),
    Family(
        name="config_reload_failures",
        text="Changes of the configuration that were refused; the one before stays in force",
        kind=MetricKind.COUNTER,
        samples=lambda state: single(state.config_failures),
    ),
    Family(
        name="log_lines_dropped",
        text="Lines of the log that were lost because standard error took none",
        kind=MetricKind.COUNTER,
        samples=lambda state: single(state.log_lines_dropped),
    ),
    Family(
        name="http_connections",
        text="Open connections to the port of the metrics, the scraper's among them",
        samples=lambda state: single(state.connections),
    ),
    Family(
        name="http_connections_refused",
        text="Connections to that port that were closed without an answer: the oldest beyond the "
        "`limit`, those past their `deadline`, and those that would have taken the last file "
        "`descriptors`",
        labels=("reason",),
        kind=MetricKind.COUNTER,
        most=3,
        samples=lambda state: by_name(state.connections_refused),
    ),
)


ALIGNMENT_FAMILIES = (
    Family(
        name="pods_measured",
        text="Running pods with GPUs or HCAs, by what was measured of them: `aligned`, "
        "`misaligned`, `unknown`",
        labels=("verdict",),
        most=3,
        when="`measure-pods`, and the kubelet answered",
        samples=lambda state: by_name(state.pods_measured),
    ),
    Family(
        name="pods_misaligned",
        text="Running pods whose GPUs, CPUs, memory or HCAs are on different NUMA nodes, by the "
        "first cause: the code of a rule (`nodetopo explain CODE`), or a word of "
        "`docs/reference/alignment.md`",
        labels=("reason",),
        per=Per.PROBLEM,
        when="a measured pod is misaligned",
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
        most=2,
        samples=lambda state: by_name(
            {"explained": state.rejections_explained, "given-up": state.rejections_given_up}
        ),
    ),
)


KUBELET_FAMILIES = (
    Family(
        name="registered",
        text="Whether the kubelet has the resource registered now",
        labels=("resource",),
        per=Per.RESOURCE,
        is_minimal=True,
        samples=lambda state: by_name(state.is_registered),
    ),
    Family(
        name="registrations",
        text="Registrations that the kubelet accepted",
        labels=("resource",),
        kind=MetricKind.COUNTER,
        per=Per.RESOURCE,
        when=OFFERED,
        samples=lambda state: by_name(state.registrations),
    ),
    Family(
        name="hand_over_info",
        text="How devices reach containers: the strategies by comma (`device-list-strategy`)",
        labels=("strategy",),
        when=OFFERED,
        samples=lambda state: {(",".join(state.strategies),): 1} if state.strategies else {},
    ),
    Family(
        name="resource_conflict",
        text="Whether another device plugin has taken the resource",
        labels=("resource",),
        per=Per.RESOURCE,
        is_minimal=True,
        samples=lambda state: present(state.conflicts, state.is_registered),
    ),
    Family(
        name="devices",
        text="Devices offered, replicas included: those `healthy` are allocatable",
        labels=("resource", "health"),
        per=Per.RESOURCE,
        most=2,
        when=OFFERED,
        is_minimal=True,
        samples=lambda state: by_two_names(state.devices),
    ),
    Family(
        name="allocations",
        text="Containers that were given devices",
        labels=("resource",),
        kind=MetricKind.COUNTER,
        per=Per.RESOURCE,
        when=OFFERED,
        samples=lambda state: by_name(state.allocations),
    ),
    Family(
        name="preferred_allocations_unchosen",
        text="Preferred allocations that were any valid set, because none was chosen in time",
        labels=("resource",),
        kind=MetricKind.COUNTER,
        per=Per.RESOURCE,
        when=OFFERED,
        samples=lambda state: by_name(state.unchosen),
    ),
    Family(
        name="joint_placements",
        text="GPUs and HCAs that were taken for one container's, as the kubelet says since: "
        "`right`, `wrong` or `unknown`",
        labels=("outcome",),
        kind=MetricKind.COUNTER,
        most=3,
        when=HCAS_OFFERED,
        samples=lambda state: by_name(state.joint),
    ),
)


DRA_FAMILIES = (
    Family(
        name="dra_gpus",
        text="GPUs of the node that a DRA driver publishes",
        labels=("driver",),
        most=MOST_DRA_DRIVERS,
        when=DRA_SEEN,
        samples=lambda state: by_name(state.dra_gpus),
    ),
    Family(
        name="dra_registered",
        text="Whether the kubelet has our DRA driver",
        when=DRA_ON,
        samples=lambda state: _dra(state, lambda dra: int(dra.is_registered)),
    ),
    Family(
        name="dra_claims_prepared",
        text="ResourceClaims that our DRA driver has prepared",
        when=DRA_ON,
        samples=lambda state: _dra(state, lambda dra: dra.claims),
    ),
    Family(
        name="dra_gpus_claimed",
        text="GPUs that those claims have, whole or in part",
        when=DRA_ON,
        samples=lambda state: _dra(state, lambda dra: dra.claimed_gpus),
    ),
    Family(
        name="dra_slice_writes",
        text="ResourceSlices of our DRA driver that were written or deleted",
        kind=MetricKind.COUNTER,
        when=DRA_ON,
        samples=lambda state: _dra(state, lambda dra: dra.writes),
    ),
    Family(
        name="dra_slice_errors",
        text="Attempts to write ResourceSlices that failed",
        kind=MetricKind.COUNTER,
        when=DRA_ON,
        samples=lambda state: _dra(state, lambda dra: dra.errors),
    ),
    Family(
        name="dra_gpus_published_twice",
        text="GPUs that another DRA driver has as well; our devices of them take no new claims",
        when=DRA_ON,
        samples=lambda state: _dra(state, lambda dra: dra.shared_gpus),
    ),
    Family(
        name="dra_fields_dropped",
        text="Fields of our ResourceSlices that the API server does not keep; 1 each",
        labels=("field",),
        most=MOST_DROPPED_FIELDS,
        when=FIELDS_DROPPED,
        samples=lambda state: by_name(
            {} if state.dra is None else dict.fromkeys(sorted(state.dra.dropped), 1)
        ),
    ),
)


NODE_FAMILIES = (
    Family(
        name="node_info",
        text="Names and versions of the node; empty where unknown",
        labels=("node", "driver", "nvml", "machine"),
        when=SCANNED,
        is_minimal=True,
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
        when=SCANNED,
        is_minimal=True,
        samples=lambda state: single(len(state.snapshot.gpus) if state.snapshot else None),
    ),
    Family(
        name="hca_ports",
        text="Ports of the RDMA adapter",
        labels=("hca",),
        per=Per.HCA,
        when=HAS_HCAS,
        samples=lambda state: {(hca.name,): len(hca.ports) for hca in _hcas(state)},
    ),
    Family(
        name="hca_ports_active",
        text="Ports of the RDMA adapter in state ACTIVE",
        labels=("hca",),
        per=Per.HCA,
        when=HAS_HCAS,
        samples=lambda state: {
            (hca.name,): sum(port.state == ACTIVE for port in hca.ports) for hca in _hcas(state)
        },
    ),
    Family(
        name="hca_port_state",
        text="State of the port: 1 DOWN, 2 INIT, 3 ARMED, 4 ACTIVE, 5 ACTIVE_DEFER",
        labels=("hca", "port"),
        per=Per.PORT,
        when="the driver gives the state",
        samples=_each_port(lambda port: PORT_STATES.get(port.state or "")),
    ),
    Family(
        name="hca_port_rate_bytes_per_second",
        text="Rate of the port in one direction; one that is down states a rate too",
        labels=("hca", "port"),
        per=Per.PORT,
        when="the driver gives the rate",
        samples=_each_port(
            lambda port: None if port.rate_gbps is None else port.rate_gbps * BYTES_PER_GBIT
        ),
    ),
    Family(
        name="hca_port_errors",
        text="Error counters of the port, by their names in sysfs, read once a minute",
        labels=("hca", "port", "counter"),
        kind=MetricKind.COUNTER,
        per=Per.PORT,
        most=PORT_ERRORS,
        when=f"{HCAS_OFFERED}, and the driver has the counter",
        samples=lambda state: {
            (hca, str(port), counter): count
            for (hca, port), counts in state.hca_counters.items()
            for counter, count in counts.items()
        },
    ),
    Family(
        name="hca_healthy",
        text="Whether the kubelet may hand the RDMA adapter out, by its health; `key` is what the "
        "ids of its devices begin with",
        labels=("hca", "key"),
        per=Per.HCA,
        when=HCAS_OFFERED,
        is_minimal=True,
        samples=lambda state: {
            (health.name, key): float(health.is_healthy) for key, health in state.hca_health.items()
        },
    ),
    Family(
        name="hca_health_info",
        text="Why an RDMA adapter is not handed out; sound ones have no sample",
        labels=("hca", "key", "reason"),
        per=Per.HCA,
        when="the RDMA adapter is not sound",
        is_minimal=True,
        samples=lambda state: {
            (health.name, key, health.reason): 1
            for key, health in state.hca_health.items()
            if health.reason is not None
        },
    ),
)


FAMILIES: tuple[Family, ...] = (
    *AGENT_FAMILIES,
    *KUBELET_FAMILIES,
    *DRA_FAMILIES,
    *NODE_FAMILIES,
    *GPU_FAMILIES,
    *HEALTH_FAMILIES,
    *ALIGNMENT_FAMILIES,
)


def series(*, gpus: int, resources: int = 1, hcas: int = 0, ports: int | None = None) -> int:
    """Return the most series that a node without problems has in :data:`FAMILIES`.

    HCAs have one port each unless *ports* is given.
    """
    counts = {
        Per.NODE: 1,
        Per.GPU: gpus,
        Per.RESOURCE: resources,
        Per.HCA: hcas,
        Per.PORT: hcas if ports is None else ports,
        Per.PROBLEM: 0,
    }
    return sum(family.most * counts[family.per] for family in FAMILIES)


def families(state: MetricsState) -> Iterator[Metric]:
    """Yield every family; a family whose facts are unknown has no samples."""
    return (family.metric(state) for family in FAMILIES)
