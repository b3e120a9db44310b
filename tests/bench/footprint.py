"""Memory and start-up of the daemon, as a table: ``python -m tests.bench.footprint [CHECKOUT]``.

The daemon reads an 8-GPU machine through the fake NVML library and registers with an embedded
kubelet. Start-up is the CPU time, user and system, until the kubelet has the devices; memory is
resident, some time after the loops that start late. Another checkout of the repository is measured
beside this one, run by run: the ratio says more than the figures.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import psutil

from nodetopo.tools.capture.archive import unpack
from tests.fake_nvml.build import library
from tests.fake_nvml.fake import FakeNvml

ROOT = Path(__file__).parents[2]

SHAPE = ROOT / "tests" / "nodes" / "h100x8-nvswitch-2numa-8cx7"

RUNS = 5

SETTLED_S = 12.0
"""After the registration; the loops that follow pods and audit the node start 3 s after it."""

LIMIT_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """The measurements of one checkout, one item for each run.

    Attributes:
        start: seconds of CPU of daemon and NVML child until the registration.
        daemon: resident MiB.
        child: resident MiB of the NVML child.
    """

    start: list[float] = field(default_factory=list)
    daemon: list[float] = field(default_factory=list)
    child: list[float] = field(default_factory=list)


def measure(checkouts: tuple[Path, ...], runs: int, settled_s: float) -> list[Footprint]:
    """Return the footprint of each of *checkouts*, which take turns."""
    footprints = [Footprint() for _ in checkouts]
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        nvml = library(scratch)
        fake = FakeNvml(scratch / "nvml", (SHAPE / "nvml.txt").read_text("utf-8"))
        unpack((SHAPE / "sysfs.txt").read_text("utf-8"), scratch / "host")
        for run in range(runs + 1):  # the first compiles the modules and is not counted
            for number, checkout in enumerate(checkouts):
                environment = {
                    "PATH": os.environ["PATH"],
                    "PYTHONPATH": str(checkout / "agent"),
                    "PYTHONPYCACHEPREFIX": str(scratch / f"compiled{number}"),
                    "NODETOPO_FAKE_NVML": str(fake.directory),
                }
                start, daemon, child = _run(scratch, nvml, environment, settled_s if run else 0)
                if run:
                    footprints[number].start.append(start)
                    footprints[number].daemon.append(daemon)
                    footprints[number].child.append(child)
    return footprints


def _run(
    scratch: Path, nvml: Path, environment: Mapping[str, str], settled_s: float
) -> tuple[float, float, float]:
    host = scratch / "host"
    command = [
        *(sys.executable, "-m", "nodetopo", "run", "--or-simulate", "--log-format", "json"),
        *("--node-name", "node", "--nvml-library", str(nvml)),
        *("--sysfs-root", str(host / "sys"), "--procfs-root", str(host / "proc")),
        *("--host-root", str(host), "--device-plugin-dir", str(scratch / "no-kubelet")),
        *("--metrics-address", "127.0.0.1:0"),
    ]
    with subprocess.Popen(
        command,
        env=dict(environment),
        cwd=scratch,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            daemon = psutil.Process(process.pid)
            assert process.stderr is not None
            ends = time.monotonic() + LIMIT_S
            for line in process.stderr:
                if "resource registered" in line:
                    break
                assert time.monotonic() < ends, "not registered in time"
            processes = [daemon, *daemon.children()]
            start = sum(sum(each.cpu_times()[:2]) for each in processes)
            time.sleep(settled_s)
            sizes = [each.memory_info().rss / (1 << 20) for each in processes]
        finally:
            process.terminate()
    return start, sizes[0], sum(sizes[1:])


def table(names: tuple[str, ...], footprints: list[Footprint]) -> list[str]:
    """Return the lines of the table: the minimum and the median of each figure."""
    lines = [f"{'':24}{'start-up CPU s':>18}{'daemon MiB':>16}{'NVML child MiB':>18}"]
    for name, footprint in zip(names, footprints, strict=True):
        cells = (footprint.start, footprint.daemon, footprint.child)
        shown = [f"{min(values):.2f} / {median(values):.2f}" for values in cells]
        lines.append(f"{name:24}{shown[0]:>18}{shown[1]:>16}{shown[2]:>18}")
    return lines


def main() -> None:
    """Print the table, of this checkout and of the one that is given."""
    others = tuple(Path(name).resolve() for name in sys.argv[1:])
    names = ("this checkout", *(path.name for path in others))
    print("\n".join(table(names, measure((ROOT, *others), RUNS, SETTLED_S))))


if __name__ == "__main__":
    main()
