"""What it costs to refuse a document that was made to harm: `python -m tests.fuzz.cost`.

Each is read in a process of its own, forked from one that has loaded the readers.
"""

import os
import resource
import sys
from collections.abc import Iterator
from typing import NamedTuple

from tests.fuzz.batch import MAX_MEMORY_BYTES
from tests.fuzz.hostile import HOSTILE
from tests.fuzz.readers import READERS


class Cost(NamedTuple):
    """What one document took.

    Attributes:
        cpu_s: CPU seconds, of the system's work for it too.
        memory_mib: resident memory at its most, above that of the process before; the text of
            the document counts.
        is_refused: ``False`` also where the process failed.
    """

    reader: str
    document: str
    bytes: int
    cpu_s: float
    memory_mib: int
    is_refused: bool


def costs() -> Iterator[Cost]:
    """Yield the cost of every document, built once beforehand to load what builds it."""
    for reader, documents in HOSTILE.items():
        for name, build in documents.items():
            yield _cost(reader, name, build())


def _cost(reader: str, name: str, text: str) -> Cost:
    before = _resident_mib()
    child = os.fork()
    if child == 0:
        status = 2
        try:
            limit = MAX_MEMORY_BYTES + (len(text) << 2)
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
            status = int(READERS[reader](text))
        finally:
            os._exit(status)
    _, status, usage = os.wait4(child, 0)
    return Cost(
        reader=reader,
        document=name,
        bytes=len(text),
        cpu_s=usage.ru_utime + usage.ru_stime,
        memory_mib=max(0, (usage.ru_maxrss >> 10) - before),
        is_refused=status == 0,
    )


def _resident_mib() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20


def main() -> int:
    """Print the table, the longest first; 1 if a document was not refused."""
    found = sorted(costs(), key=lambda cost: -cost.cpu_s)
    print(f"{'CPU s':>6}  {'MiB':>5}  {'KiB':>6}  reader and document")
    for cost in found:
        state = "" if cost.is_refused else "  NOT REFUSED"
        print(
            f"{cost.cpu_s:6.2f}  {cost.memory_mib:5}  {cost.bytes >> 10:6}"
            f"  {cost.reader}: {cost.document}{state}"
        )
    most = max(found, key=lambda cost: cost.memory_mib)
    print(f"longest: {found[0].cpu_s:.2f} s; most memory: {most.memory_mib} MiB ({most.document})")
    return 0 if all(cost.is_refused for cost in found) else 1


if __name__ == "__main__":
    sys.exit(main())
