"""The budgets, ours and a peer's in one run: ``python -m tests.bench.budgets [--quick]``.

A Markdown table. Peers are NVIDIA's: the device plugin and GPU Feature Discovery, and the library
go-gpuallocator, built from the Go proxy as the lab builds them. Both plugins run on the same fake
driver and answer the same stand-in for a kubelet, one after the other; ours with the dependencies
of the image alone, and with compiled modules. Figures depend on the machine and what else it does:
the ratio says more than the figures. Needs root, as the lab does.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from random import Random
from statistics import median, quantiles

import psutil
import structlog
from msgspec import Struct

from nodetopo.allocation.rules import Model
from nodetopo.machines.bundled import machine
from nodetopo.model.kubernetes import GPU_RESOURCE
from tests.bench import cli_cost, irregular, trace_gates
from tests.bench.footprint_lab import runtime_python
from tests.bench.latency import in_process, through_grpc
from tests.bench.latency_rows import Row, requests, shared_on_irregular, switched, whole
from tests.bench.machines import bench_machine, odd_box, random_box
from tests.bench.peer import Peer, Request
from tests.bench.rdma_pool import RdmaPool
from tests.components.labels.label_simulation import SimulatedAgent
from tests.components.labels.label_simulation import node as node_output
from tests.kubeapi.fake_api_server import FakeApi
from tests.lab.nvidia.cases import Case
from tests.lab.nvidia.desk import Desk, Kubelet
from tests.lab.nvidia.gfd import Bench
from tests.lab.nvidia.gfd_cases import CASES
from tests.lab.nvidia.machines import of_shape

SHAPE = "h100x8-nvswitch-2numa-8cx7"

ROOT = Path(__file__).parents[2]

SETTLED_S = 20.0
"""After the registration, before memory is taken; our loops that start late do so within 10."""

WHOLE_GPUS = Case(machine="", amounts={GPU_RESOURCE: 8}).config

RESTARTS = 1000


class Line(Struct, frozen=True, kw_only=True):
    """One row of the table.

    Attributes:
        unit: of all three figures.
        budget: most that ours may be; where *is_least*, the least.
        peer: ``None`` where no peer does the same.
    """

    what: str
    unit: str
    budget: float
    ours: float
    peer: float | None = None
    is_least: bool = False
    method: str

    @property
    def is_kept(self) -> bool:
        """Whether ours is within the budget."""
        return self.ours >= self.budget if self.is_least else self.ours <= self.budget

    def cells(self) -> tuple[str, ...]:
        """Return the row's cells."""
        sign = "≥" if self.is_least else "≤"
        ratio = "-" if not self.peer else f"{self.ours / self.peer:.2g}"
        return (
            self.what,
            f"{sign} {self.budget:g} {self.unit}",
            f"{self.ours:.3g}{'' if self.is_kept else ' **over**'}",
            "-" if self.peer is None else f"{self.peer:.3g}",
            ratio,
            self.method,
        )


def table(lines: Iterator[Line]) -> Iterator[str]:
    """Yield the table, row by row."""
    yield "| what | budget | ours | peer | ours / peer | how measured |"
    yield "|---|---|--:|--:|--:|---|"
    for line in lines:
        yield f"| {' | '.join(line.cells())} |"


def answers(number: int) -> Iterator[Line]:
    """Time answers in the process, beside go-gpuallocator where it ends in time."""
    machines = (
        ("8 GPUs", bench_machine("hgx-h100"), 0.25, 4),
        ("16 GPUs", bench_machine("dgx-2"), 0.5, 2),
        ("72 GPUs", switched(72, 2), 3.0, None),
    )
    for name, snapshot, budget, size in machines:
        found = in_process(whole(name, snapshot), number, Random(6))
        peer, beside = None, ""
        if size is not None:
            count = len(snapshot.gpus)
            with Peer(snapshot) as library:
                answer = library.ask(Request(tuple(range(count)), size))
            peer, beside = answer.cpu_ns / 1e6, f"; peer: go-gpuallocator, {size} of {count} free"
        yield Line(
            what=f"answer in the process, {name}, p99",
            unit="ms",
            budget=budget,
            ours=found.cpu.p99 / 1e6,
            peer=peer,
            method=f"CPU, {number} random requests{beside}",
        )
    for resource, most in irregular_resources():
        _, warm, cold = irregular.warm_and_cold(resource, number)
        for what, budget, figure in (("warm p99", most, warm), ("cold", 50.0, cold)):
            yield Line(
                what=f"answer, {resource.name}, {what}",
                unit="ms",
                budget=budget,
                ours=figure / 1e6,
                method="CPU, `tests.bench.irregular`",
            )


def irregular_resources() -> Iterator[tuple[Row, float]]:
    """Yield the resources of irregular machines of 16 GPUs, and the most for a later answer, ms."""
    for name, snapshot in (("odd lanes", odd_box()), ("random distances", random_box())):
        yield whole(f"PCIe, {name}, 16 GPUs", snapshot), 0.5
    for row in shared_on_irregular():
        yield row, 1.0


def tokens(number: int) -> Iterator[Line]:
    """Time the choice among the 8,000 devices of an RDMA pool, three quarters of them free."""
    node = RdmaPool(machine("dgx-h100"), 8000)
    random = Random(6)
    for size in (1, 8):
        found = []
        for _ in range(number):
            free = random.sample(node.ids, len(node.ids) * 3 // 4)
            before = time.thread_time_ns()
            node.ask(free, size)
            found.append(time.thread_time_ns() - before)
        yield Line(
            what=f"{size} of an RDMA pool of 8,000, p99",
            unit="ms",
            budget=1.0,
            ours=quantiles(found, n=100)[-1] / 1e6,
            method=f"CPU, {number} random requests",
        )


class Plugin(Struct, frozen=True, kw_only=True):
    """What one device plugin costs on the fake driver.

    Attributes:
        start_s: seconds of CPU of all its processes until the kubelet has the devices.
        memory_mib: resident, of all its processes.
        idle_s: seconds of CPU in an hour in which nothing happens.
        answer_ms: p99 of GetPreferredAllocation, wall time.
        back_ms: from the kubelet's socket to the registration, wall time.
    """

    start_s: float
    memory_mib: float
    idle_s: float
    answer_ms: float
    back_ms: float


def plugin(desk: Desk, *, is_ours: bool, number: int, idle_s: float) -> Plugin:
    """Run one of the two plugins and measure it."""
    run: Callable[..., AbstractContextManager[Kubelet]]
    run = desk.with_ours if is_ours else desk.with_nvidia
    with run(WHOLE_GPUS, [GPU_RESOURCE]) as kubelet:
        program = (desk.ours if is_ours else desk.nvidia)._program
        assert program is not None
        pid = program.process.pid
        start_s = cpu_s(pid)
        time.sleep(SETTLED_S)
        memory = sum(it.memory_info().rss for it in processes(pid)) / (1 << 20)
        before = cpu_s(pid)
        time.sleep(idle_s)
        idle = (cpu_s(pid) - before) * 3600 / idle_s
        listed = [device.id for device in kubelet.devices(GPU_RESOURCE) or ()]
        took = []
        for one in requests(listed, number, Random(6)):
            began = time.perf_counter()
            kubelet.preferred(one.size, one.available, one.required)
            took.append((time.perf_counter() - began) * 1e3)
        backs = []
        for _ in range(5):
            kubelet.stop()
            time.sleep(0.5)
            began = time.perf_counter()
            kubelet.__init__(desk._socket_dir)  # type: ignore[misc] # a kubelet that is back
            kubelet.wait_registered(60.0)
            backs.append((time.perf_counter() - began) * 1e3)
    return Plugin(
        start_s=start_s,
        memory_mib=memory,
        idle_s=idle,
        answer_ms=quantiles(took, n=100)[-1],
        back_ms=median(backs),
    )


def processes(pid: int) -> Sequence[psutil.Process]:
    """Return a process and those below it."""
    it = psutil.Process(pid)
    return (it, *it.children(recursive=True))


def cpu_s(pid: int) -> float:
    """Return the CPU time of a process and of those below it."""
    return sum(sum(it.cpu_times()[:2]) for it in processes(pid))


def plugins(number: int, idle_s: float) -> Iterator[Line]:
    """Measure our daemon and NVIDIA's plugin on the same machine, one after the other."""
    with tempfile.TemporaryDirectory(prefix="nt-") as folder:
        desk = Desk(Path(folder) / "d", of_shape(SHAPE), python=runtime_python())
        try:
            with desk.with_ours(WHOLE_GPUS, [GPU_RESOURCE]):
                pass  # compiles the modules
            ours = plugin(desk, is_ours=True, number=number, idle_s=idle_s)
            peer = plugin(desk, is_ours=False, number=number, idle_s=idle_s)
        finally:
            desk.close()
    told = "the real process, fake NVML library, eight H100"
    figures = (
        ("answer through gRPC, p99", "ms", 5.0, ours.answer_ms, peer.answer_ms, "wall; "),
        ("process start to registered", "s", 0.6, ours.start_s, peer.start_s, "CPU; "),
        ("kubelet back to registered", "ms", 50.0, ours.back_ms, peer.back_ms, "wall, median; "),
        ("resident memory with NVML child", "MiB", 80.0, ours.memory_mib, peer.memory_mib, ""),
        ("steady CPU in an hour", "s", 20.0, ours.idle_s, peer.idle_s, f"from {idle_s:g} s; "),
    )
    for what, unit, budget, figure, other, how in figures:
        yield Line(
            what=what, unit=unit, budget=budget, ours=figure, peer=other, method=f"{how}{told}"
        )
    grpc = through_grpc(whole("DGX H100", bench_machine("hgx-h100")), number, Random(6))
    yield Line(
        what="answer through gRPC in one process, p99",
        unit="ms",
        budget=5.0,
        ours=grpc.preferred.p99 / 1e6,
        peer=grpc.empty.p99 / 1e6,
        method="wall; *peer* is an empty call to the same server",
    )


def discovery() -> Iterator[Line]:
    """Measure one run of GPU Feature Discovery beside our `labels` on a snapshot."""
    ours = min(cli_cost.costs(("labels", *cli_cost.MACHINE), (ROOT,), 3)[0].seconds)
    with tempfile.TemporaryDirectory(prefix="nt-") as folder:
        home = Path(folder) / "g"
        home.mkdir()
        bench = Bench(home, CASES[SHAPE] if SHAPE in CASES else next(iter(CASES.values())))
        took = []
        for _ in range(3):
            before = os.times()
            assert bench.gfd() is not None, "GFD gave no labels"
            after = os.times()
            user = after.children_user - before.children_user
            took.append(user + after.children_system - before.children_system)
    yield Line(
        what="a command on a snapshot: `labels`",
        unit="s",
        budget=0.35,
        ours=ours,
        peer=min(took),
        method="CPU, minimum of 3; peer: GFD, once, on the fake driver",
    )
    for command in ("version", "--help", "completion bash"):
        found = cli_cost.costs(tuple(command.split()), (ROOT,), 3)[0]
        yield Line(
            what=f"`{command}`",
            unit="s",
            budget=0.15,
            ours=min(found.seconds),
            method="CPU, minimum of 3",
        )


def traces(seeds: int, jobs: int) -> Iterator[Line]:
    """Place traces of jobs as ours and as NVIDIA's policy do."""
    cells = [cell for cell in trace_gates.CELLS if cell.trace == "philly"]
    chosen = range(1, seeds + 1)
    found = [
        trace_gates.run(cell, policies=("best", "nvidia"), seeds=chosen, jobs=jobs)
        for cell in cells
    ]
    how = f"trace philly, {seeds} seeds of {jobs} jobs"
    mesh = [one for one in found if one.cell.family == "mesh"]
    for model, budget in ((Model.RING, 1.2), (Model.RELAY, 1.08)):
        ratios = [one.ratio("nvidia", "mean_gb_s") for one in mesh if one.cell.model == model]
        if ratios:
            yield Line(
                what=f"mean bandwidth of jobs on cube meshes, {model.value} model",
                unit="x",
                budget=budget,
                ours=trace_gates.geomean(ratios),
                peer=1.0,
                is_least=True,
                method=how,
            )
    rest = [one for one in found if one.cell.family != "mesh"]
    yield Line(
        what="jobs split over NUMA nodes, other machines",
        unit="of the peer's share",
        budget=0.75,
        ours=trace_gates.split(rest, "best") / trace_gates.split(rest, "nvidia"),
        peer=1.0,
        method=how,
    )


def api_server() -> Iterator[Line]:
    """Count what a steady agent and restarted ones ask the API server."""
    api = FakeApi()
    agent = SimulatedAgent(node_output(api))
    agent.scan()
    agent.run(7200)
    written, read = len(api.patches), len(api.reads)
    agent.run(3600)
    counted = "counted, simulated clock"
    yield Line(
        what="writes in a steady hour",
        unit="",
        budget=0,
        ours=len(api.patches) - written,
        peer=60,
        method=f"{counted}; peer: a patch a minute",
    )
    yield Line(
        what="reads in a steady hour",
        unit="",
        budget=12,
        ours=len(api.reads) - read,
        peer=60,
        method=f"{counted}; peer: GFD reads its object each minute",
    )
    before, labels, asked = len(api.patches), dict(api.labels), len(api.reads)
    for _ in range(RESTARTS):
        restarted = SimulatedAgent(node_output(api))
        restarted.scan()
        restarted.run(1)
    assert api.labels == labels, "the labels changed"
    assert len(api.reads) >= asked + RESTARTS, "a restarted agent looked at nothing"
    yield Line(
        what=f"writes of {RESTARTS:,} restarts, labels identical",
        unit="",
        budget=0,
        ours=len(api.patches) - before,
        method=counted,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; 1 if a budget is exceeded."""
    structlog.configure(processors=[_drop])
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer requests, jobs and seconds")
    is_quick = parser.parse_args(arguments).quick
    found: list[Line] = []

    def lines() -> Iterator[Line]:
        number = 300 if is_quick else 3000
        yield from answers(number)
        yield from tokens(number // 3)
        yield from plugins(300, 30.0 if is_quick else 120.0)
        yield from discovery()
        yield from traces(2 if is_quick else 10, 600 if is_quick else 6000)
        yield from api_server()

    def kept() -> Iterator[Line]:
        for line in lines():
            found.append(line)
            yield line

    for text in table(kept()):
        print(text, flush=True)
    return 0 if all(line.is_kept for line in found) else 1


def _drop(*_: object) -> str:
    raise structlog.DropEvent


if __name__ == "__main__":
    sys.exit(main())
