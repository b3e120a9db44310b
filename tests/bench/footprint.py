"""Memory and start-up of the daemon, as a table: ``python -m tests.bench.footprint [CHECKOUT]``.

The daemon reads an 8-GPU machine through the fake NVML library and registers with an embedded
kubelet. Start-up is the CPU time, user and system, until the kubelet has the devices; memory is
resident, some time after the loops that start late. Modules and lines are those of our package that
the daemon has imported by then, without generated code. Another checkout of the repository is
measured alongside this one, run by run: the ratio says more than the figures.
"""

import dataclasses
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median

import psutil

from nodetopo.tools.capture.archive import unpack
from tests.bench.checkouts import package_of
from tests.fake_nvml.build import library
from tests.fake_nvml.fake import FakeNvml

ROOT = Path(__file__).parents[2]

SHAPE = ROOT / "tests" / "nodes" / "h100x8-nvswitch-2numa-8cx7"

RUNS = 5

SETTLED_S = 12.0
"""After the registration; the loops that follow pods and audit the node start 3 s after it."""

LIMIT_S = 120.0

_IMPORTED = """\
import atexit, sys
from pathlib import Path
from {package}.__main__ import main

def count():
    names = [name for name in sys.modules if (name + ".").startswith("{package}.")]
    files = {{getattr(sys.modules[name], "__file__", None) for name in names}} - {{None}}
    lines = [Path(file).read_text("utf-8").count("\\n") for file in files if "/pb/" not in file]
    Path("imported").write_text(f"{{len(lines)}} {{sum(lines)}}")

atexit.register(count)
raise SystemExit(main())
"""
"""Runs the daemon, and writes at its end what it has imported."""


@dataclasses.dataclass(kw_only=True)
class Footprint:
    """The measurements of one checkout, one item for each run.

    Attributes:
        start: seconds of CPU of daemon and NVML child until the registration.
        daemon: resident MiB.
        child: resident MiB of the NVML child.
        modules, lines: of our package in the daemon; not measured run by run.
    """

    start: list[float] = dataclasses.field(default_factory=list)
    daemon: list[float] = dataclasses.field(default_factory=list)
    child: list[float] = dataclasses.field(default_factory=list)
    modules: int = 0
    lines: int = 0


def measure(checkouts: tuple[Path, ...], runs: int, settled_s: float) -> list[Footprint]:
    """Return the footprint of each of *checkouts*, which take turns."""
    footprints = [Footprint() for _ in checkouts]
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        nvml = library(scratch)
        fake = FakeNvml(scratch / "nvml", (SHAPE / "nvml.txt").read_text("utf-8"))
        unpack((SHAPE / "sysfs.txt").read_text("utf-8"), scratch / "host")
        for run in range(runs + 1):
            for number, checkout in enumerate(checkouts):
                package, source = package_of(checkout)
                environment = {
                    "PATH": os.environ["PATH"],
                    "PYTHONPATH": str(source),
                    "PYTHONPYCACHEPREFIX": str(scratch / f"compiled{number}"),
                    "NODETOPO_FAKE_NVML": str(fake.directory),
                }
                footprint = footprints[number]
                if not run:  # this run also compiles the modules
                    counted = ("-c", _IMPORTED.format(package=package))
                    _run(scratch, nvml, environment, counted, settled_s)
                    imported = (scratch / "imported").read_text("utf-8").split()
                    footprint.modules, footprint.lines = map(int, imported)
                    continue
                start, daemon, child = _run(scratch, nvml, environment, ("-m", package), settled_s)
                footprint.start.append(start)
                footprint.daemon.append(daemon)
                footprint.child.append(child)
    return footprints


def _run(
    scratch: Path,
    nvml: Path,
    environment: Mapping[str, str],
    program: tuple[str, str],
    settled_s: float,
) -> tuple[float, float, float]:
    host = scratch / "host"
    command = [
        *(sys.executable, *program, "run", "--or-simulate", "--log-format", "json"),
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
    """Return the lines of the table; of what each run measures, the minimum and the median."""
    heads = (
        f"{'start-up CPU s':>18}{'daemon MiB':>16}{'NVML child MiB':>18}{'modules':>9}{'lines':>8}"
    )
    lines = [f"{'':24}{heads}"]
    for name, footprint in zip(names, footprints, strict=True):
        cells = (footprint.start, footprint.daemon, footprint.child)
        shown = [f"{min(values):.2f} / {median(values):.2f}" for values in cells]
        imported = f"{footprint.modules:>9}{footprint.lines:>8,}"
        lines.append(f"{name:24}{shown[0]:>18}{shown[1]:>16}{shown[2]:>18}{imported}")
    return lines


def main() -> None:
    """Print the table, of this checkout and of the one that is given."""
    others = tuple(Path(name).resolve() for name in sys.argv[1:])
    names = ("this checkout", *(path.name for path in others))
    print("\n".join(table(names, measure((ROOT, *others), RUNS, SETTLED_S))))


if __name__ == "__main__":
    main()
