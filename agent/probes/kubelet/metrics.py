"""What the kubelet counted, from the text of its ``/metrics``.

Names and labels: kubernetes v1.36.3 pkg/kubelet/metrics/metrics.go. A counter with labels has no
line before its first event, so that its absence means zero only in a version that has it; that
version is in the same text (``kubernetes_build_info``).
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

from agent.errors import DecodeError
from agent.model.kubelet import KubeletMetrics

REJECTIONS = "kubelet_admission_rejections_total"
REJECTIONS_SINCE = (1, 32)
"""The oldest release that is known to count them (v1.32.7, the same file)."""

TOPOLOGY_ERRORS = "kubelet_topology_manager_admission_errors_total"
ALLOCATIONS = "kubelet_device_plugin_alloc_duration_seconds"
BUILD = "kubernetes_build_info"

SLOW_S = "1"
"""The bound of the bucket that divides slow from fast, as Prometheus writes one second."""

MAX_SERIES = 4096
"""Most lines of the counters above that are kept: twelve buckets a resource, and a few reasons."""

_WANTED = (REJECTIONS, TOPOLOGY_ERRORS, ALLOCATIONS, BUILD)
_LINE = re.compile(r"([a-z_]+)(?:\{(.*)\})? (\S+)(?: [0-9]+)?")
_LABEL = re.compile(r'([a-z_]+)="((?:[^"\\]|\\.)*)",?')


@dataclass(frozen=True, slots=True)
class _Sample:
    name: str
    labels: dict[str, str]
    value: float


def metrics_from_text(text: str) -> KubeletMetrics:
    """Return the counters that checks ask for, as of the kubelet's start.

    Raises:
        DecodeError: none of them is in *text*, or one is malformed; the path is the line.
    """
    samples = tuple(_samples(text))
    if not samples:
        raise DecodeError("", "no metrics of a kubelet", "ask the kubelet's address for /metrics")
    version = _version(samples)
    rejections = _rejections(samples)
    is_counted = version is not None and version >= REJECTIONS_SINCE
    return KubeletMetrics(
        rejections=rejections if rejections or is_counted else None,
        topology_errors=next((int(one.value) for one in _of(TOPOLOGY_ERRORS, samples)), None),
        slow_allocations=_slow_allocations(samples),
    )


def _samples(text: str) -> Iterator[_Sample]:
    count = 0
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.startswith(_WANTED):
            continue
        count += 1
        if count > MAX_SERIES:
            raise DecodeError(f"line {number}", f"more than {MAX_SERIES} series")
        yield _sample(line, f"line {number}")


def _sample(line: str, path: str) -> _Sample:
    match = _LINE.fullmatch(line)
    labels = match[2] or "" if match else ""
    pairs = [(found[1], found[2]) for found in _LABEL.finditer(labels)]
    if match is None or len("".join(f'{name}="{value}",' for name, value in pairs)) < len(labels):
        raise DecodeError(path, f"not a metric: {line[:80]!r}")
    return _Sample(
        match[1], {name: _unescaped(value) for name, value in pairs}, _value(match, path)
    )


def _unescaped(value: str) -> str:
    return re.sub(r"\\(.)", lambda found: {"n": "\n"}.get(found[1], found[1]), value)


def _value(match: re.Match[str], path: str) -> float:
    try:
        value = float(match[3])
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < 0:
        raise DecodeError(path, f"not a count: {match[3][:40]!r}")
    return value


def _of(name: str, samples: tuple[_Sample, ...]) -> Iterator[_Sample]:
    return (sample for sample in samples if sample.name == name)


def _version(samples: tuple[_Sample, ...]) -> tuple[int, int] | None:
    for sample in _of(BUILD, samples):
        match = re.match(r"v([0-9]{1,4})\.([0-9]{1,4})", sample.labels.get("git_version", ""))
        if match:
            return int(match[1]), int(match[2])
    return None


def _rejections(samples: tuple[_Sample, ...]) -> dict[str, int]:
    found = _of(REJECTIONS, samples)
    return {sample.labels.get("reason", ""): int(sample.value) for sample in found}


def _slow_allocations(samples: tuple[_Sample, ...]) -> dict[str, float]:
    """Return the share above a second by resource; resources never asked for are left out."""
    total = {_resource(one): one.value for one in _of(f"{ALLOCATIONS}_count", samples)}
    fast = {
        _resource(one): one.value
        for one in _of(f"{ALLOCATIONS}_bucket", samples)
        if one.labels.get("le") == SLOW_S
    }
    return {
        resource: max(0.0, 1 - fast[resource] / total[resource])
        for resource in sorted(total)
        if total[resource] > 0 and resource in fast
    }


def _resource(sample: _Sample) -> str:
    return sample.labels.get("resource_name", "")
