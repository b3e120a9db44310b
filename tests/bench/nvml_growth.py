"""Memory of the NVML process over many scans: ``python -m tests.bench.nvml_growth --scans N``.

The process is the daemon's own, under its supervisor and with events, on the fake library.
``--leak KIB`` lets the library keep so much in each scan, as real ones do: the process is then
replaced now and then. ``--library PATH`` reads the GPUs of this machine through its driver instead.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from nodetopo.probes.nvml.supervisor import NvmlSupervisor
from nodetopo.probes.process_table import resident_bytes
from tests.fake_nvml.build import library
from tests.fake_nvml.fake import FakeNvml

SHAPE = Path(__file__).parents[1] / "nodes" / "h100x8-nvswitch-2numa-8cx7"

LINES = 20
"""Lines of the table, and so how often the size is taken."""


class Size(Struct, frozen=True, kw_only=True):
    """The NVML process after a number of scans.

    Attributes:
        scans: refreshes so far, beside the first whole scan.
        resident: bytes.
        replaced: how many processes there were before this one.
    """

    scans: int
    resident: int
    replaced: int


def sizes(scans: int, nvml_library: Path) -> Iterator[Size]:
    """Yield the size after the first scan and then :data:`LINES` times, evenly."""
    supervisor = NvmlSupervisor(nvml_library, on_events=lambda _: None)
    try:
        supervisor.scan()
        pids = {_pid(supervisor)}
        step = max(1, scans // LINES)
        for done in range(scans + 1):
            if done % step == 0:
                size = resident_bytes(_pid(supervisor))
                assert size is not None
                yield Size(scans=done, resident=size, replaced=len(pids) - 1)
            supervisor.refresh()
            pids.add(_pid(supervisor))
    finally:
        supervisor.close()


def _pid(supervisor: NvmlSupervisor) -> int:
    assert supervisor._child is not None
    return supervisor._child.pid


def table(found: Iterator[Size]) -> Iterator[str]:
    """Yield the lines of the table."""
    yield f"{'scans':>10}{'resident KiB':>16}{'replaced':>12}"
    for size in found:
        yield f"{size.scans:>10}{size.resident >> 10:>16}{size.replaced:>12}"


def main() -> None:
    """Print the table, line by line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scans", type=int, default=20_000)
    parser.add_argument("--leak", type=int, default=0, metavar="KIB")
    parser.add_argument("--library", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        nvml_library = arguments.library
        if nvml_library is None:
            nvml_library = library(Path(folder))
            fake = FakeNvml(Path(folder) / "nvml", (SHAPE / "nvml.txt").read_text("utf-8"))
            fake.fail(f"leak nvmlSystemGetDriverVersion {arguments.leak}" if arguments.leak else "")
            os.environ["NODETOPO_FAKE_NVML"] = str(fake.directory)
        for line in table(sizes(arguments.scans, nvml_library)):
            print(line)
            sys.stdout.flush()


if __name__ == "__main__":
    main()
