"""NVIDIA's real best-effort policy, asked about a snapshot's GPUs by position."""

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

from msgspec import Struct
from msgspec.structs import asdict

from nodetopo.model.nvlink import Closeness
from nodetopo.model.snapshot import Snapshot
from nodetopo.topology.domains import has_switch
from nodetopo.topology.links import direct_links, nvlinks_between
from nodetopo.topology.matrix import pci_closeness
from tests.bench.peer_build import program

LEVEL: Mapping[Closeness, int] = MappingProxyType(
    {
        Closeness.SYS: 1,
        Closeness.NODE: 2,
        Closeness.PHB: 3,
        Closeness.PXB: 4,
        Closeness.PIX: 5,
        Closeness.INTERNAL: 6,
    },
)
"""The numbers of its link types, from P2PLinkCrossCPU to P2PLinkSameBoard."""

MOST_NVLINKS = 18
"""The largest number of NVLinks that has a link type."""


AT_ONCE = 64
"""Requests sent before their answers are read. Both fit a pipe, which holds 64 KiB (pipe(7))."""


class Request(Struct, frozen=True):
    """Positions in the order in which the library gets them.

    Attributes:
        repeat: calls to make and to average the CPU time over.
    """

    free: tuple[int, ...]
    size: int
    required: tuple[int, ...] = ()
    repeat: int = 1


class Answer(Struct, frozen=True, kw_only=True):
    """What the library did with one request.

    Attributes:
        chosen: positions; ``None`` is a device that does not exist.
        panic: its message, else ``None``.
        cpu_ns: CPU time of one call in nanoseconds.
    """

    chosen: tuple[int | None, ...]
    panic: str | None
    cpu_ns: int

    @property
    def is_crash(self) -> bool:
        """Whether NVIDIA's device plugin would have died of it."""
        return self.panic is not None or None in self.chosen


def as_seen(snapshot: Snapshot) -> dict[str, Any]:
    """Return the machine as NVIDIA's reader finds it: PCIe levels, and NVLinks by either end.

    It sees no NVLinks between GPUs that NVSwitches join.
    """
    levels, ends = pci_closeness(snapshot), direct_links(snapshot)
    if snapshot.nvlinks is None and not has_switch(snapshot):
        for (a, b), count in nvlinks_between(snapshot).items():
            ends[a, b] = ends[b, a] = count or 0
    gpus = snapshot.gpus
    return {
        "pcie": [
            [LEVEL[levels.get(frozenset((a.name, b.name)), Closeness.SYS)] for b in gpus]
            for a in gpus
        ],
        "nvlinks": [[min(ends[a.index, b.index], MOST_NVLINKS) for b in gpus] for a in gpus],
    }


class Peer:
    """The running program, for one machine; a context manager that ends it."""

    def __init__(self, snapshot: Snapshot, command: Path | None = None) -> None:
        self._process = subprocess.Popen(
            [command or program()], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._tell(as_seen(snapshot))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate(timeout=60)

    def ask(self, request: Request) -> Answer:
        """Return its answer to one request."""
        return self.ask_all([request])[0]

    def ask_all(self, requests: Sequence[Request]) -> list[Answer]:
        """Return its answers in order; cheaper than one by one, since neither side waits."""
        found: list[Answer] = []
        for start in range(0, len(requests), AT_ONCE):
            batch = requests[start : start + AT_ONCE]
            self._tell(*(asdict(request) for request in batch))
            found += [self._hear() for _ in batch]
        return found

    def _tell(self, *documents: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("".join(json.dumps(one) + "\n" for one in documents))
        self._process.stdin.flush()

    def _hear(self) -> Answer:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("gpuallocator ended early; its reason is above")
        told = json.loads(line)
        return Answer(chosen=tuple(told["chosen"]), panic=told["panic"], cpu_ns=told["cpu_ns"])
