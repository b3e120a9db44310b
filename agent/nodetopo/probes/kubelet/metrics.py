"""The kubelet's own counters, from the text of its ``/metrics``.

Names and labels: kubernetes v1.36.3 pkg/kubelet/metrics/metrics.go. A counter with labels has no
line before its first event, so that its absence means zero only in a version that has it; that
version is in the same text (``kubernetes_build_info``).
"""

import math
import re
from collections.abc import Iterator

from msgspec import Struct

from nodetopo.errors import DecodeError
from nodetopo.model.kubelet import KubeletMetrics

REJECTIONS = "kubelet_admission_rejections_total"
REJECTIONS_SINCE = (1, 32)
"""The oldest release that is known to count them (v1.32.7, the same file)."""

TOPOLOGY_ERRORS = "kubelet_topology_manager_admission_errors_total"
ALLOCATIONS = "kubelet_device_plugin_alloc_duration_seconds"
BUILD = "kubernetes_build_info"

SLOW_S = "1"
"""The bound of the bucket that divides slow from fast, as Prometheus writes one second."""

MAX_SERIES = 4096
"""Most lines of these counters that are kept: twelve buckets a resource, and a few reasons."""

_LINE = re.compile(r"([a-z_]+)(?:\{(.*)\})? (\S+)(?: [0-9]+)?")
_LABEL = re.compile(r'([a-z_]+)="((?:[^"\\]|\\.)*)",?')


class _Sample(Struct, frozen=True):
    """One line of the text format."""

    name: str
    labels: dict[str, str]
    value: float


def metrics_from_text(text: str) -> KubeletMetrics:
    """Return the counters that checks use, as of the kubelet's start.

    Raises:
        DecodeError: none of them is in *text*, or one is malformed; the path is the line.
    """
    samples = tuple(_samples(text))
    if not samples:
        raise DecodeError("", "no metrics of a kubelet", "ask the kubelet's address for /metrics")

    def named(name: str) -> Iterator[_Sample]:
        return (sample for sample in samples if sample.name == name)

    rejections = {
        sample.labels.get("reason", ""): int(sample.value) for sample in named(REJECTIONS)
    }
    builds = (sample.labels.get("git_version", "") for sample in named(BUILD))
    tags = (re.match(r"v([0-9]{1,4})\.([0-9]{1,4})", build) for build in builds)
    version = next(((int(tag[1]), int(tag[2])) for tag in tags if tag), None)
    is_counted = version is not None and version >= REJECTIONS_SINCE
    total = {_resource(sample): sample.value for sample in named(f"{ALLOCATIONS}_count")}
    fast = {
        _resource(sample): sample.value
        for sample in named(f"{ALLOCATIONS}_bucket")
        if sample.labels.get("le") == SLOW_S
    }
    return KubeletMetrics(
        rejections=rejections if rejections or is_counted else None,
        topology_errors=next((int(sample.value) for sample in named(TOPOLOGY_ERRORS)), None),
        # The share above a second; resources that were never allocated are left out.
        slow_allocations={
            resource: max(0.0, 1 - fast[resource] / total[resource])
            for resource in sorted(total)
            if total[resource] > 0 and resource in fast
        },
    )


def _resource(sample: _Sample) -> str:
    return sample.labels.get("resource_name", "")


def _samples(text: str) -> Iterator[_Sample]:
    """Yield the samples of the counters above."""
    count = 0
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.startswith((REJECTIONS, TOPOLOGY_ERRORS, ALLOCATIONS, BUILD)):
            continue
        count += 1
        path = f"line {number}"
        if count > MAX_SERIES:
            raise DecodeError(path, f"more than {MAX_SERIES} series")
        match = _LINE.fullmatch(line)
        labels = match[2] or "" if match else ""
        pairs = [(label[1], label[2]) for label in _LABEL.finditer(labels)]
        read = "".join(f'{name}="{value}",' for name, value in pairs)
        if match is None or len(read) < len(labels):
            raise DecodeError(path, f"not a metric: {line[:80]!r}")
        try:
            value = float(match[3])
        except ValueError:
            value = math.nan
        if not math.isfinite(value) or value < 0:
            raise DecodeError(path, f"not a count: {match[3][:40]!r}")
        # An escaped n is a line feed, other characters are literal.
        unescaped = {
            name: re.sub(r"\\(.)", lambda it: {"n": "\n"}.get(it[1], it[1]), raw)
            for name, raw in pairs
        }
        yield _Sample(match[1], unescaped, value)
