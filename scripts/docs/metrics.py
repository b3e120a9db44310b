"""The reference page of the metrics, ``docs/reference/metrics.md``, made from the families."""

from agent.publish.metrics.families import FAMILIES, Family

_INTRODUCTION = """\
# Metrics

Served on `--metrics-address` below `/metrics`, as Prometheus text or OpenMetrics. A scrape reads
what is in memory: it asks neither NVML nor the API server, and no file. Counters start at 0 with
the process.

- A fact that is unknown has no sample. Before the first scan, neither the node nor its GPUs have.
- `gpu` is NVML's index, `uuid` the name that the GPU keeps; `nodetopo_gpu_info` joins the two.
- Series per node: about 20, 10 for each GPU, 6 for each resource, one for each HCA; XID counters
  only for what was seen. No pod is named.
- `process_*` are those of the Prometheus client library: CPU, memory, open files, start time.

The same address serves `/healthz` and `/readyz`:
[runbook.md](../operate/runbook.md#readiness-and-liveness).
Alerting rules to start from: [alerts.md](../operate/alerts.md).

`docs/reference/metrics.md` is generated from `agent/publish/metrics/families.py`.

| Metric | Type | Labels | Meaning |
| --- | --- | --- | --- |
"""


def page() -> str:
    """Return the page as Markdown, one row per family."""
    return _INTRODUCTION + "".join(map(_row, FAMILIES))


def _row(family: Family) -> str:
    labels = ", ".join(f"`{label}`" for label in family.labels)
    return f"| `{family.full_name}` | {family.kind} | {labels} | {family.text}. |\n"
