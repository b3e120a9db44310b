"""Metrics of the agent itself: what runs, what it publishes, how its configuration stands."""

import agent
from agent.publish.metrics.family import Family, Kind, Samples, by_two_names, single
from agent.publish.metrics.state import MetricsState


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
