"""What the process itself uses, under the names of the Prometheus client libraries.

Their own collector reads procfs at every scrape. Here somebody else reads it from time to time, so
that a scrape reads no file; the CPU time alone is as of the scrape, as asking for it opens none.
"""

import os
import resource
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

_PROC = Path("/proc")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSample:
    """The process at one moment.

    Attributes:
        virtual_bytes, resident_bytes: its memory.
        started_at: Unix time.
        open_files: its file descriptors.
        most_files: how many it may have (``RLIMIT_NOFILE``).
    """

    virtual_bytes: int
    resident_bytes: int
    started_at: float
    open_files: int
    most_files: int


def read_process(proc: Path = _PROC) -> ProcessSample | None:
    """Return this process as *proc* describes it now; ``None`` where that cannot be read."""
    try:
        # The command in parentheses may hold anything; the state is field 3 (proc_pid_stat(5)).
        fields = (proc / "self" / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
        booted = next(
            line.split()[1]
            for line in (proc / "stat").read_text("ascii").splitlines()
            if line.startswith("btime ")
        )
        return ProcessSample(
            virtual_bytes=int(fields[20]),
            resident_bytes=int(fields[21]) * _PAGE,
            started_at=int(booted) + int(fields[19]) / _TICKS_PER_S,
            open_files=sum(1 for _ in (proc / "self" / "fd").iterdir()),
            most_files=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        )
    except (OSError, ValueError, IndexError, StopIteration):
        return None


def process_metrics(sample: ProcessSample | None) -> Iterator[Metric]:
    """Yield the families of *sample*, and the CPU time of this process."""
    yield CounterMetricFamily(
        "process_cpu_seconds",
        "Total user and system CPU time spent in seconds.",
        value=time.process_time(),
    )
    if sample is None:
        return
    for name, text, value in (
        ("virtual_memory_bytes", "Virtual memory size in bytes.", sample.virtual_bytes),
        ("resident_memory_bytes", "Resident memory size in bytes.", sample.resident_bytes),
        (
            "start_time_seconds",
            "Start time of the process since unix epoch in seconds.",
            sample.started_at,
        ),
        ("open_fds", "Number of open file descriptors.", sample.open_files),
        ("max_fds", "Maximum number of open file descriptors.", sample.most_files),
    ):
        yield GaugeMetricFamily(f"process_{name}", text, value=value)
