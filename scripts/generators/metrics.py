"""The reference page of the metrics, ``docs/reference/metrics.md``, made from the families."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from nodetopo.kernel.http.families import families, series
from nodetopo.kernel.http.family import MOST_SERIES, PREFIX, Family, Per
from nodetopo.model.xid import MAX_CODES
from nodetopo.tools.node_rules import node_rules
from scripts.generators.registry import with_rows

FAMILIES = tuple(family for _, family in families())
"""In the order of the page."""

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"

PROCESS_SERIES = 6
"""Those of `prometheus_client.PROCESS_COLLECTOR`."""

NODES = (
    ("8 GPUs, 8 HCAs", {"gpus": 8, "hcas": 8}),
    ("4 GPUs, 4 HCAs (a tray of an NVL72 rack)", {"gpus": 4, "hcas": 4}),
    ("72 GPUs, 72 HCAs (a whole rack of 18 trays)", {"gpus": 72, "hcas": 72, "trays": 18}),
    ("8 GPUs in 56 MIG devices of one profile, 8 HCAs", {"gpus": 8, "hcas": 8, "resources": 1}),
    ("8 GPUs in MIG devices of three profiles, 8 HCAs", {"gpus": 8, "hcas": 8, "resources": 3}),
)
"""Nodes that the page counts the series of."""

_SERIES = """
## Series per node

A node without problems has at most

    {node} + {gpu} * GPUs + {resource} * resources + {hca} * HCAs + {port} * ports

series, including `process_*`. MIG devices and replicas add no series, only their resources do. In
the table, HCAs have one port each and are advertised.

| Node | Series at most |
| --- | --- |
{rows}
Problems add series, with these limits:

| Metric | Series at most |
| --- | --- |
| `nodetopo_check_broken` | one for each check: {rules} |
| `nodetopo_xid_events_total` | one for each GPU and each of its XIDs |
| `nodetopo_pods_misaligned` | one for each cause, regardless of the number of pods |
| `nodetopo_probe_issues` | one for each probe |

[health.md](../operate/health.md#xids) lists the XIDs. If one GPU has more than {codes} other codes,
the rest count as XID 0. [alignment.md](alignment.md) lists the causes.

No metric has more than {most} series, regardless of hardware, drivers and files; further series are
left out.

## The minimal set

Large fleets can keep {minimal} series of a node with 8 GPUs instead of {whole}. These are enough
for every critical alert, the recording rules of [alerts.md](../operate/alerts.md), and the fleet
rows of the dashboard. In a PodMonitor, add this below `podMetricsEndpoints`:

```yaml
metricRelabelings:
  - sourceLabels: [__name__]
    action: keep
    regex: {pattern}
```
"""


def page() -> str:
    """Return the page with one row per family, and its numbers of series; its text stays."""
    head = "| Metric | Type | Labels | Meaning | Samples | Series at most |"
    text = with_rows(PAGE, {head: map(_row, FAMILIES)})
    return text.partition("\n## Series per node\n")[0] + _series()


def minimal_pattern() -> str:
    """Return the expression for the names of the minimal set."""
    names = [family.full_name.removeprefix(PREFIX) for family in FAMILIES if family.is_minimal]
    return f"{PREFIX}({'|'.join(names)})"


def node_series(
    *, gpus: int, resources: int = 1, hcas: int = 0, ports: int | None = None, trays: int = 1
) -> int:
    """Return the most series of *trays* nodes without problems that have so much together."""
    alone = series(gpus=0, resources=resources) + PROCESS_SERIES
    devices = series(gpus=gpus, hcas=hcas, ports=ports) - series(gpus=0, hcas=0)
    return trays * alone + devices


def _series() -> str:
    most = {
        per: sum(family.most for family in FAMILIES if family.per is per)
        for per in (Per.NODE, Per.GPU, Per.RESOURCE, Per.HCA, Per.PORT)
    }
    minimal = [family for family in FAMILIES if family.is_minimal]
    eight = {
        Per.NODE: 1,
        Per.GPU: 8,
        Per.RESOURCE: 1,
        Per.HCA: 8,
        Per.PORT: 8,
        Per.PROBLEM: 0,
    }
    return _SERIES.format(
        node=most[Per.NODE] + PROCESS_SERIES,
        gpu=most[Per.GPU],
        resource=most[Per.RESOURCE],
        hca=most[Per.HCA],
        port=most[Per.PORT],
        rows="".join(f"| {text} | {node_series(**counts):,} |\n" for text, counts in NODES),
        rules=len(node_rules()),
        codes=MAX_CODES,
        most=f"{MOST_SERIES:,}",
        minimal=sum(family.most * eight[family.per] for family in minimal),
        whole=node_series(gpus=8, hcas=8),
        pattern=minimal_pattern(),
    )


def _row(family: Family) -> str:
    labels = ", ".join(f"`{label}`" for label in family.labels)
    most = "see below" if family.per is Per.PROBLEM else f"{family.most} per {family.per}"
    when = f"if {family.when}" if family.when else "always"
    return (
        f"| `{family.full_name}` | {family.kind} | {labels} | {family.text}. | {when} | {most} |\n"
    )


def made() -> Mapping[Path, str]:
    """Return the page."""
    return {PAGE: page()}


def owned() -> Iterable[Path]:
    """Return the file of this generator."""
    return (PAGE,)
