"""What scans cost, as a table: ``python -m tests.bench.scan_cost``.

Counts are exact and the same on every run. CPU time is that of the agent's process, without
the NVML child; it depends on the machine, so only its ratio is shown.
"""

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec import Struct

from nodetopo.probes.node import NodeReader, ScanCost
from nodetopo.probes.sysfs.host import Roots
from nodetopo.tools.capture.archive import unpack
from tests.fake_nvml.build import library

NODES = Path(__file__).parents[1] / "nodes"

PLUGIN_CALLS = 3144
"""NVML calls that NVIDIA's device plugin v0.20.0 makes for one GetPreferredAllocation of one GPU
on 8xH100: it builds the NVLink matrix of all GPUs anew in each request. Counted with a shim that
counts calls, under the plugin on a mock NVML."""

PERIODS = 5
"""Periodic scans that are averaged for the CPU time; their counts do not differ."""


class Cost(Struct, frozen=True, kw_only=True):
    """One machine's costs; times in seconds of CPU."""

    shape: str
    whole: ScanCost
    periodic: ScanCost
    whole_s: float
    periodic_s: float


def costs(shape: str, nvml_library: Path, scratch: Path) -> Cost:
    """Scan the machine *shape* whole, then periodically."""
    host = scratch / shape
    unpack((NODES / shape / "sysfs.txt").read_text("utf-8"), host)
    roots = Roots(sysfs=host / "sys", procfs=host / "proc", host=host)
    before = os.environ.get("NODETOPO_FAKE_NVML")
    os.environ["NODETOPO_FAKE_NVML"] = str(NODES / shape)
    reader = NodeReader(roots, node=shape, nvml_library=nvml_library)
    try:
        whole_s = _seconds(reader.read)
        whole = reader.last_cost
        reader.read()  # the first periodic one, whose reply differs from the whole one's
        periodic_s = sum(_seconds(reader.read) for _ in range(PERIODS)) / PERIODS
        periodic = reader.last_cost
    finally:
        reader.close()
        os.environ.pop("NODETOPO_FAKE_NVML")
        if before is not None:
            os.environ["NODETOPO_FAKE_NVML"] = before
    assert whole is not None
    assert periodic is not None
    return Cost(shape=shape, whole=whole, periodic=periodic, whole_s=whole_s, periodic_s=periodic_s)


def table(found: list[Cost]) -> Iterator[str]:
    """Yield the lines of a Markdown table."""
    yield "| machine | NVML calls, whole | periodic | file reads, whole | periodic | CPU |"
    yield "|---|--:|--:|--:|--:|--:|"
    for cost in found:
        whole, periodic = cost.whole, cost.periodic
        yield (
            f"| {cost.shape} | {whole.nvml_calls} | {periodic.nvml_calls} "
            f"| {whole.file_reads} | {periodic.file_reads} "
            f"| 1/{cost.whole_s / max(cost.periodic_s, 1e-6):.0f} |"
        )


def main() -> None:
    """Print the table; a word on standard error for each machine while it takes its time."""
    shapes = sorted(path.name for path in NODES.iterdir() if path.is_dir())
    found = []
    with tempfile.TemporaryDirectory(prefix="nodetopo-bench-") as scratch:
        nvml_library = library(Path(scratch))
        for number, shape in enumerate(shapes, 1):
            print(f"{number}/{len(shapes)} {shape}", file=sys.stderr, flush=True)
            found.append(costs(shape, nvml_library, Path(scratch)))
    print("\n".join(table(found)))
    print(
        f"\nBaseline: NVIDIA's device plugin makes {PLUGIN_CALLS} NVML calls for one preferred "
        "allocation of one GPU on 8xH100; ours makes none."
    )


def _seconds(call: Callable[[], object]) -> float:
    before = time.process_time()
    call()
    return time.process_time() - before


if __name__ == "__main__":
    main()
