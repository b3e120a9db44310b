"""How long one preferred allocation takes: ``python -m tests.bench.latency``.

Three tables in Markdown: in the process, through gRPC over a unix socket with our real
plugin, and NVIDIA's library beside ours with 16 GPUs free. Times depend on the machine, so
each stands as a ratio to a baseline of the same run as well: in the process what the simplest
rule takes, to sort the ids and cut; through gRPC an empty call to the same server.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from random import Random
from statistics import median, quantiles

import structlog
from msgspec import Struct

from nodetopo.allocation.allocator import preferred
from nodetopo.deviceplugin.devices import PluginDevice
from nodetopo.deviceplugin.fake_kubelet import FakeKubelet
from nodetopo.deviceplugin.pb import deviceplugin_pb2 as pb
from nodetopo.deviceplugin.plugin import DevicePlugin
from nodetopo.deviceplugin.response import GpuAnswers
from nodetopo.deviceplugin.settings import PluginSettings
from nodetopo.machines.bundled import machine
from nodetopo.model.kubernetes import GPU_RESOURCE
from tests.bench.latency_rows import Asked, Row, requests, rows, whole
from tests.bench.peer import Peer, Request
from tests.bench.placement import duration, ratio

SEED = 6

WARM_UP = 20
"""Requests before the timed ones: the first few of a process pay for caches and imports."""

THROUGH_GRPC = (
    "NVLink mesh, DGX-1V",
    "NVSwitch, DGX-2",
    "NVSwitch, NVL72",
    "DGX A100, 10 replicas",
)

PEER_SIZES = (2, 4)
"""Of 16 free GPUs; it takes NVIDIA's library 2 to 6 s of CPU each. Other sizes take up to 40."""


class Times(Struct, frozen=True, kw_only=True):
    """Of many calls of one kind, nanoseconds."""

    p50: float
    p99: float

    @classmethod
    def of(cls, found: Sequence[int]) -> "Times":
        """Return those of single measurements, two at least."""
        return cls(p50=median(found), p99=quantiles(found, n=100)[-1])


class InProcess(Struct, frozen=True, kw_only=True):
    """One resource: *ready* is the CPU time from a snapshot to the first answer's beginning.

    ``wall`` includes waiting for a processor, ``cpu`` does not; ``simplest`` is the CPU time of
    the baseline.
    """

    row: Row
    ready: int
    wall: Times
    cpu: Times
    simplest: Times


def in_process(row: Row, number: int, random: Random) -> InProcess:
    """Time one resource's answers to random requests."""
    before = time.thread_time_ns()
    chooser = row.build()
    ready = time.thread_time_ns() - before
    asked = requests(row.ids, number + WARM_UP, random)

    def ours(one: Asked) -> object:
        return preferred(chooser, one.available, one.required, one.size)

    walls, cpus = _measured(ours, asked)
    _, simplest = _measured(_simplest, asked)
    return InProcess(
        row=row,
        ready=ready,
        wall=Times.of(walls),
        cpu=Times.of(cpus),
        simplest=Times.of(simplest),
    )


def _simplest(one: Asked) -> object:
    kept = sorted(set(one.required))
    return (*kept, *sorted({*one.available}.difference(kept)))[: one.size]


def _measured(
    call: Callable[[Asked], object], asked: Sequence[Asked]
) -> tuple[list[int], list[int]]:
    """Return the wall and CPU times of the calls after the warm-up."""
    walls, cpus = [], []
    for one in asked:
        wall, cpu = time.perf_counter_ns(), time.thread_time_ns()
        call(one)
        cpus.append(time.thread_time_ns() - cpu)
        walls.append(time.perf_counter_ns() - wall)
    return walls[WARM_UP:], cpus[WARM_UP:]


class ThroughGrpc(Struct, frozen=True, kw_only=True):
    """Wall times of one resource's calls, and of empty ones to the same server."""

    row: Row
    preferred: Times
    empty: Times


def through_grpc(row: Row, number: int, random: Random) -> ThroughGrpc:
    """Time calls to our plugin by a stand-in for the kubelet; empty ones take turns with them."""
    silent = structlog.wrap_logger(None, processors=[_drop])
    calls, empties = [], []
    with (
        tempfile.TemporaryDirectory(prefix="nodetopo-bench-") as directory,
        FakeKubelet(Path(directory)) as kubelet,
    ):
        plugin = DevicePlugin(
            GPU_RESOURCE,
            Path(directory),
            partial(preferred, row.build()),
            GpuAnswers(PluginSettings()),
            log=silent,
        )
        plugin.start()
        plugin.update([PluginDevice(id=one) for one in row.ids])
        kubelet.wait_registered(10.0)
        for one in requests(row.ids, number + WARM_UP, random):
            before = time.perf_counter_ns()
            kubelet.preferred(one.size, one.available, one.required)
            between = time.perf_counter_ns()
            kubelet._endpoint(GPU_RESOURCE).call("GetDevicePluginOptions", pb.Empty())
            calls.append(between - before)
            empties.append(time.perf_counter_ns() - between)
        plugin.stop()
    return ThroughGrpc(
        row=row, preferred=Times.of(calls[WARM_UP:]), empty=Times.of(empties[WARM_UP:])
    )


def _drop(*_: object) -> str:
    raise structlog.DropEvent


# --- tables ------------------------------------------------------------------------------------


def process_lines(found: Iterator[InProcess]) -> Iterator[str]:
    """Yield the table of answers in the process."""
    yield "| machine | devices | ready after | p50 | p99 | p99, CPU | sorting, p50 | ratio |"
    yield "|---|--:|--:|--:|--:|--:|--:|--:|"
    for one in found:
        cells = (
            one.row.name,
            str(len(one.row.ids)),
            duration(one.ready),
            duration(one.wall.p50),
            duration(one.wall.p99),
            duration(one.cpu.p99),
            duration(one.simplest.p50),
            ratio(one.cpu.p50, one.simplest.p50),
        )
        yield f"| {' | '.join(cells)} |"


def grpc_lines(found: Iterator[ThroughGrpc]) -> Iterator[str]:
    """Yield the table of calls through gRPC."""
    yield "| machine | devices | p50 | p99 | empty call, p50 | p99 | ratio of p50 |"
    yield "|---|--:|--:|--:|--:|--:|--:|"
    for one in found:
        cells = (
            one.row.name,
            str(len(one.row.ids)),
            duration(one.preferred.p50),
            duration(one.preferred.p99),
            duration(one.empty.p50),
            duration(one.empty.p99),
            ratio(one.preferred.p50, one.empty.p50),
        )
        yield f"| {' | '.join(cells)} |"


def peer_lines(sizes: Sequence[int], random: Random) -> Iterator[str]:
    """Yield the table of NVIDIA's library and ours, all 16 GPUs of a DGX-2 free, CPU time."""
    yield "| GPUs of 16 | go-gpuallocator | ours | ratio |"
    yield "|--:|--:|--:|--:|"
    snapshot = machine("dgx-2")
    row = whole("DGX-2", snapshot)
    chooser = row.build()
    everyone = tuple(range(len(row.ids)))
    with Peer(snapshot) as peer:
        for size in sizes:
            theirs = peer.ask(Request(everyone, size)).cpu_ns
            asked = [Asked(random.sample(row.ids, 16), (), size) for _ in range(WARM_UP + 200)]
            _, cpus = _measured(lambda o: preferred(chooser, o.available, (), o.size), asked)
            ours = median(cpus)
            yield f"| {size} | {duration(theirs)} | {duration(ours)} | {ratio(theirs, ours)} |"


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables; what is being measured goes to standard error."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.latency", description=__doc__)
    parser.add_argument("--requests", type=int, default=2000, help="timed, of each (default 2000)")
    parser.add_argument("--no-peer", action="store_true", help="leave NVIDIA's library out")
    options = parser.parse_args(arguments)
    every = list(rows())
    local = (in_process(_said(row), options.requests, Random(SEED)) for row in every)
    far = (
        through_grpc(_said(row), options.requests, Random(SEED))
        for row in every
        if row.name in THROUGH_GRPC
    )
    _print("In the process", process_lines(local))
    _print("Through gRPC over a unix socket", grpc_lines(far))
    if not options.no_peer:
        _print("Beside NVIDIA's library", peer_lines(PEER_SIZES, Random(SEED)))


def _said(row: Row) -> Row:
    print(f"{row.name}, {len(row.ids)} devices", file=sys.stderr, flush=True)
    return row


def _print(title: str, lines: Iterator[str]) -> None:
    print(f"\n{title}:\n")
    for line in lines:
        print(line, flush=True)


if __name__ == "__main__":
    main()
