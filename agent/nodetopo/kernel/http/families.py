"""The metric families of every component, in the order of the page, and the kernel's own."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

import nodetopo
from nodetopo.formats.harmless import harmless
from nodetopo.kernel import logs
from nodetopo.kernel.component import Kernel
from nodetopo.kernel.components import COMPONENTS, has_part, part
from nodetopo.kernel.http.family import (
    LONGEST_LABEL,
    MOST_SERIES,
    PREFIX,
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
)
from nodetopo.model.snapshot import Snapshot
from nodetopo.topology.presence import absent_gpus, dead_gpus

KERNEL = "kernel"
"""Stands for the kernel where the others are components."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelReading(Reading):
    """The state of the process, its scans and its configuration at one moment."""

    # Why /readyz fails, a line for each reason; ``None`` if it succeeds.
    not_ready: str | None = metric(
        Section.AGENT,
        "Whether /readyz succeeds; its answer lists the reasons if not",
        name="ready",
        of=lambda it: it.not_ready is None,
        default=None,
        is_minimal=True,
    )
    generation: int = metric(
        Section.AGENT,
        "Changes of the node seen since the start of the process",
        name="snapshot_generation",
    )
    events_posted: int = counter(
        Section.PROCESS,
        "Events about the Node: `posted`, or `dropped` without a write",
        name="kubernetes_events",
        labels="outcome",
        default=0,
        of=lambda it: {"posted": it.events_posted, "dropped": it.events_dropped},
        most=2,
    )
    events_dropped: int = 0
    config: str | None = metric(
        Section.PROCESS,
        "Name of the active configuration, if the Node's label or a default selects one",
        name="config_info",
        labels="name",
        default=None,
        when="a configuration was selected by name",
    )
    config_failures: int = counter(
        Section.PROCESS,
        "Rejected changes of the configuration; the previous configuration stays active",
        name="config_reload_failures",
    )
    log_lines_dropped: int = counter(
        Section.PROCESS, "Log lines that were dropped because standard error accepted none"
    )
    # ``None`` without a server.
    connections: int | None = metric(
        Section.PROCESS,
        "Open connections to the metrics port, including the scraper's",
        name="http_connections",
        default=None,
    )
    connections_refused: Mapping[str, int] = counter(
        Section.PROCESS,
        "Connections to the metrics port that were closed without an answer: the oldest "
        "beyond the `limit`, connections past their `deadline`, and connections that "
        "would have used the last file `descriptors`",
        "reason",
        name="http_connections_refused",
        most=3,
    )


def _node(name: str, text: str, of: Callable[[Snapshot], Any], *labels: str, **how: Any) -> Family:
    """Return the family of a fact of the node."""
    section = how.pop("section", Section.AGENT)
    return derived(
        name, section, text, lambda it: it.snapshot and of(it.snapshot), " ".join(labels), **how
    )


def _missing_gpus(node: Snapshot) -> Mapping[str, int | None]:
    """Return how many GPUs are missing, by the place where they can still be seen."""
    if node.pci_gpus is None:
        return {}
    return {"pci": len(dead_gpus(node)), "none": absent_gpus(node)}


_READY, _GENERATION, *_PROCESS = declared(KernelReading)

KERNEL_FAMILIES = (
    derived(
        "build_info",
        Section.AGENT,
        "Version of nodetopo",
        lambda _: nodetopo.__version__,
        "version",
    ),
    _READY,
    _GENERATION,
    _node(
        "last_scan_timestamp_seconds",
        "Time of the last scan of the node, Unix time",
        lambda node: node.captured_at and node.captured_at.timestamp(),
        when=SCANNED,
        is_minimal=True,
    ),
    _node(
        "gpus_missing",
        "GPUs that the machine should have and the driver does not list: still on the PCI "
        "bus (`pci`), or not (`none`)",
        _missing_gpus,
        "seen_on",
        most=2,
        is_minimal=True,
        when="PCI was read; for `none`, also only if the expected number of GPUs is known",
    ),
    _node(
        "probe_issues",
        "Facts that the last scan could not read",
        lambda node: Counter(sorted(issue.probe for issue in node.issues)),
        "probe",
        per=Per.PROBLEM,
        when="the scan could not read a fact",
    ),
    *_PROCESS,
    _node(
        "node_info",
        "Names and versions of the node; empty if unknown",
        lambda node: {
            (node.node or "", node.driver_version or "", node.nvml_version or ""): (
                node.product_name or ""
            )
        },
        *("node", "driver", "nvml", "machine"),
        section=Section.NODE,
        when=SCANNED,
        is_minimal=True,
    ),
)


@cache
def families() -> tuple[tuple[str, Family], ...]:
    """Return every family with its component, in the order of the page.

    Imports the metrics of every component, including disabled ones: their families have the same
    samples on every node.
    """
    listed: list[tuple[str, Family]] = [(KERNEL, family) for family in KERNEL_FAMILIES]
    for name in filter(_has_metrics, COMPONENTS):
        listed += [(name, family) for family in part(name, "metrics").FAMILIES]
    return tuple(sorted(listed, key=lambda item: item[1].section))


@cache
def _has_metrics(name: str) -> bool:
    return has_part(name, "metrics")


def readings(kernel: Kernel) -> dict[str, object]:
    """Return the readings of the kernel and of every component; disabled ones get an idle one."""
    current = kernel.store.current
    snapshot = None if current is None else current.snapshot
    running = {component.name: component for component in kernel.running}
    reloader = kernel.reloader
    return {
        KERNEL: KernelReading(
            snapshot=snapshot,
            not_ready=kernel.not_ready(),
            generation=0 if current is None else current.generation,
            config=kernel.config,
            config_failures=0 if reloader is None else reloader.failures,
            events_posted=sum(writer.posted for writer in kernel.writers),
            events_dropped=sum(writer.dropped for writer in kernel.writers),
            log_lines_dropped=logs.dropped(),
        ),
        **{
            name: running[name].observed()
            if name in running
            else part(name, "metrics").idle(snapshot=snapshot)
            for name in filter(_has_metrics, COMPONENTS)
        },
    }


def series(*, gpus: int, resources: int = 1, hcas: int = 0, ports: int | None = None) -> int:
    """Return the most series that a node without problems has in all families.

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
    return sum(family.most * counts[family.per] for _, family in families())


def metrics(readings: Mapping[str, object]) -> Iterator[Metric]:
    """Yield every family with the samples of *readings*, by component.

    A family whose facts are unknown has no samples.
    """
    return (metric_of(family, readings[name]) for name, family in families())


def metric_of(family: Family, reading: object) -> Metric:
    """Return *family* with the samples of *reading*."""
    make = CounterMetricFamily if family.kind is MetricKind.COUNTER else GaugeMetricFamily
    made = make(f"{PREFIX}{family.name}", f"{family.text}.", labels=family.labels)
    for labels, value in islice(family.samples(reading).items(), MOST_SERIES):
        made.add_metric([harmless(text, LONGEST_LABEL) for text in labels], value)
    return made
