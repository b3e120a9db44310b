"""Many cycles of the daemon's loops: ``python -m tests.bench.soak --cycles 1000000``.

A cycle is one step of one loop. The loops are the daemon's own and share a clock that jumps to
whatever is due next, so that days pass in minutes: scans of the fake NVML library and of the
files of a machine, the offer, labels, zones, pods, rejected pods, audits and Events. The device
plugin, its gRPC server, the NVML process and the metrics server run in threads and processes of
their own.

Meanwhile pods come and go, each under a name that never was before, GPUs have XIDs and recover, the
kubelet asks for devices and restarts, somebody scrapes. The table gives what is held after a number
of cycles; the last line gives by how much each figure grows in a million cycles, as fitted by least
squares to the second half of the table.
"""

import argparse
import gc
import heapq
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from statistics import linear_regression
from urllib.request import urlopen

import structlog
from msgspec import Struct
from msgspec.structs import fields, replace

from nodetopo.components.audit.alignment.loop import AlignmentLoop
from nodetopo.components.audit.check_terms import OverridesFile
from nodetopo.components.audit.component import Audit
from nodetopo.components.audit.loop import AuditLoop
from nodetopo.components.audit.rejections_loop import RejectionsLoop
from nodetopo.components.gpus.component import Gpus
from nodetopo.components.gpus.health.monitor import GpuHealthMonitor
from nodetopo.components.gpus.health.rules import HealthRules
from nodetopo.components.gpus.offer_notices import OfferNotices
from nodetopo.components.gpus.reconcile_loop import ReconcileLoop
from nodetopo.components.gpus.scan_loop import ScanLoop
from nodetopo.components.gpus.state_files import HealthFile
from nodetopo.components.labels.component import Labels
from nodetopo.components.labels.loop import LOOK_S, DesiredLabelsBuilder, LabelsLoop, NodeTiers
from nodetopo.components.labels.outputs.node import NodeLabelPublisher
from nodetopo.components.zones.component import Zones
from nodetopo.components.zones.loop import ZonesLoop
from nodetopo.components.zones.publish import NodeZonesPublisher, ObservedPlacementPublisher
from nodetopo.deviceplugin.fake_kubelet import FakeKubelet
from nodetopo.footprint import give_back
from nodetopo.kernel.component import Component, Kernel
from nodetopo.kernel.events import EventPublisher, PodEventPublisher
from nodetopo.kernel.http.families import readings
from nodetopo.kernel.http.server import serve_metrics
from nodetopo.kernel.loops import Heartbeats
from nodetopo.kernel.settings.declare import Settings
from nodetopo.kernel.settings.own import roots
from nodetopo.kernel.store import SnapshotStore
from nodetopo.kernel.target import Machine, Target
from nodetopo.kubeapi.client import MAX_OBJECT, Answer, Api
from nodetopo.model.pod import Pod
from nodetopo.probes.node import NodeReader
from tests.components.audit.alignment.alignment_nodes import GIB, NONE, node, worker
from tests.components.audit.test_rejections_loop import H100, rejected
from tests.components.zones.machines import gpu, pod
from tests.components.zones.zone_simulation import FakeKubelet as FakePodResources
from tests.compose.sysfs import unpack_whole
from tests.fake_nvml.build import library
from tests.fake_nvml.fake import FakeNvml
from tests.generous_deadlines import PATIENCE_S, generous_deadlines
from tests.kubeapi.fake_api_server import DirectApi, FakeApi
from tests.kubeapi.fake_objects import FakeObjects

NODE = "gpu-1"

HEALTH_FILE = "health.json"

SHAPE = Path(__file__).parents[1] / "nodes" / "h100x8-nvswitch-2numa-8cx7"

LINES = 20
"""Lines of the table, and so how often the sizes are taken."""

POD_S, REJECTION_S, ALLOCATION_S, SCRAPE_S = 60.0, 60.0, 120.0, 30.0
XID_S, PARDON_S, KUBELET_RESTART_S = 3600.0, 5000.0, 6 * 3600.0
"""Seconds of the simulated clock between two of each."""

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)

ALIGNED = node(settings=NONE)


class Held(Struct, frozen=True, kw_only=True):
    """What the daemon holds.

    Attributes:
        cycles: steps so far.
        blocks: blocks of memory that Python has allocated, in the daemon's process.
        resident_kib, child_kib: resident memory of the daemon and of its NVML process.
        threads, descriptors: of the daemon's process.
    """

    cycles: int
    blocks: int
    resident_kib: int
    child_kib: int
    threads: int
    descriptors: int


class Soak:
    """The daemon on a clock that jumps, and a node on which things happen."""

    def __init__(self, scratch: Path, stack: ExitStack) -> None:
        """Start what has threads of its own; *stack* ends it."""
        self.now = 0.0
        self.events_of: dict[str, int] = {}
        self._numbers = count()
        self._scratch = scratch
        host = scratch / "host"
        unpack_whole(SHAPE, host)
        self._fake = FakeNvml(scratch / "nvml", (SHAPE / "nvml.txt").read_text("utf-8"))
        stack.enter_context(environment("NODETOPO_FAKE_NVML", str(self._fake.directory)))
        self._settings = Settings(
            node_name=NODE,
            nvml_library=library(scratch),
            sysfs_root=host / "sys",
            procfs_root=host / "proc",
            host_root=host,
            device_plugin_dir=scratch / "kubelet",
            pod_resources_socket=scratch / "none.sock",
        )
        self._wake = threading.Event()
        self._heartbeats = Heartbeats()
        health = GpuHealthMonitor(
            HealthRules(classes={}, recovery_s=self._settings.recovery_s),
            HealthFile(scratch / HEALTH_FILE),
            boot_id="boot",
            clock=self._clock,
            on_change=self._wake.set,
        )
        self._reader = NodeReader(
            roots(self._settings),
            node=NODE,
            nvml_library=self._settings.nvml_library,
            clock=self._clock,
            on_events=health.take_events,
        )
        stack.callback(self._reader.close)
        machine = Machine(
            read=self._reader.read,
            reread=self._reader.reread,
            nvml=lambda: self._reader.nvml_status,
        )
        self._kubelet = FakeKubelet(scratch / "kubelet")
        stack.callback(lambda: self._kubelet.stop())  # noqa: PLW0108 - it is replaced
        self._kernel = Kernel(
            settings=self._settings,
            target=Target(machine=machine, simulated=None, socket_dir=scratch / "kubelet"),
            store=SnapshotStore(),
            heartbeats=self._heartbeats,
            wake=self._wake,
        )
        self._gpus = Gpus(self._kernel)
        stack.callback(self._gpus.close)
        self._gpus.health = self._health = health
        self._objects = FakeObjects()
        self._api = FakeApi(node=NODE)
        self._pod_resources = FakePodResources()
        self._aligned: tuple[Pod, ...] = ()
        self._zone_pods: dict[str, str] = {}
        self._loops = self._new_loops()
        server = serve_metrics(
            "127.0.0.1:0",
            lambda: readings(self._kernel),
            self._kernel.not_ready,
            self._heartbeats.silence_s,
        )
        self._url = server.url
        stack.callback(server.close)

    def _run(self, name: str, kind: type[Component], **parts: object) -> None:
        """Have a component of *kind* in the kernel that holds loops which this bench made."""
        component = kind.__new__(kind)
        for attribute, value in {"kernel": self._kernel, "name": name, **parts}.items():
            setattr(component, attribute, value)
        self._kernel.running = (*self._kernel.running, component)

    def _clock(self) -> float:
        return self.now

    def _new_loops(self) -> Mapping[str, Callable[[], float | None]]:
        """Make the loops; each entry is a step, which returns the seconds until the next."""
        kernel, settings, store = self._kernel, self._settings, self._kernel.store
        connect = lambda: self._objects  # noqa: E731 - what publishers take
        events = kernel.events = EventPublisher(None, NODE, clock=self._clock, now=self._time)
        pod_events = PodEventPublisher(None, NODE, clock=self._clock, now=self._time)
        kernel.writers = [events, pod_events]
        for writer in kernel.writers:
            writer._api = EventsApi()
        self._scan = ScanLoop(
            kernel.target,
            store,
            health=self._health,
            interval_s=lambda: settings.scan_interval_s,
            on_scan=self._take_scan,
            beat=lambda: self._heartbeats.beat("scan"),
            clock=self._clock,
        )
        self._run(
            "gpus",
            Gpus,
            plugins=self._gpus.plugins,
            health=self._health,
            pause=None,
            expected=None,
            _known=None,
            _offer_notices=OfferNotices(),
        )
        overrides = OverridesFile(None)
        reconcile = ReconcileLoop(
            kernel, self._gpus.plugins, health=self._health, notices=kernel.notices
        )
        labels = LabelsLoop(
            settings,
            store,
            outputs=(NodeLabelPublisher(None, NODE, connect=lambda: DirectApi(self._api)),),
            desired=DesiredLabelsBuilder(lambda: settings, NodeTiers(settings), lambda _: None),
            clock=self._clock,
        )
        zones = ZonesLoop(
            settings,
            store,
            zones=NodeZonesPublisher(connect, NODE),
            placements=ObservedPlacementPublisher(connect, NODE),
            kubelet=self._pod_resources,
            clock=self._clock,
        )
        alignment = AlignmentLoop(
            settings,
            store,
            post=pod_events.post,
            read=lambda _: replace(ALIGNED, pods=self._aligned),
        )
        self._rejections = RejectionsLoop(
            settings,
            store,
            post=pod_events.post,
            read=lambda _: H100,
            absences=lambda: self._gpus.plugins.absences,
            clock=self._clock,
            now=self._time,
        )
        audit = AuditLoop(settings, store, overrides)
        self._run("labels", Labels, loop=labels)
        self._run("zones", Zones, loop=zones)
        self._run(
            "audit",
            Audit,
            overrides=overrides,
            health=None,
            audit=audit,
            alignment=alignment,
            rejections=self._rejections,
            events=pod_events,
        )

        def write(writer: EventPublisher | PodEventPublisher) -> float:
            writer.write_next()
            return 1.0 if writer._queue.has_events else 5.0

        return {
            "scan": self._scan.step,
            "reconcile": reconcile.step,
            "labels": lambda: min(labels.step(), LOOK_S),  # as it waits
            "zones": zones.step,
            "pods": alignment.step,
            "rejections": self._rejections.step,
            "audit": audit.step,
            "events": lambda: write(events),
            "pod events": lambda: write(pod_events),
        }

    def _take_scan(self) -> None:
        self._wake.set()
        give_back()

    def _time(self) -> datetime:
        return NOON + timedelta(seconds=self.now)

    def run(self, cycles: int) -> Iterator[Held]:
        """Yield what is held after the first cycles and then :data:`LINES` times, evenly."""
        self.step("scan")
        self.step("reconcile")
        self._kubelet.wait_registered(PATIENCE_S)
        due = [(0.0, number, name) for number, name in enumerate(self._loops)]
        happens = {
            self._move_pods: POD_S,
            self._reject: REJECTION_S,
            self._allocate: ALLOCATION_S,
            self._scrape: SCRAPE_S,
            self._have_xid: XID_S,
            self._pardon: PARDON_S,
            self._restart_kubelet: KUBELET_RESTART_S,
        }
        next_at = dict(happens)
        every = max(1, cycles // LINES)
        for done in range(cycles + 1):
            if done % every == 0:
                yield self._held(done)
            at, number, name = heapq.heappop(due)
            self.now = max(self.now, at)
            seconds = self.step(name)
            assert seconds is not None, f"{name} ended"
            health = self._health
            if name == "scan" and health is not None and health.wants_look:
                seconds = 5.0
            heapq.heappush(due, (self.now + max(seconds, 0.1), number, name))
            for act, then in next_at.items():
                if self.now >= then:
                    act()
                    next_at[act] = self.now + happens[act]

    @property
    def events_written(self) -> int:
        """How many Events were written."""
        return sum(writer.posted for writer in self._kernel.writers)

    @property
    def registrations(self) -> int:
        """How often a kubelet took the GPUs."""
        return sum(state.registrations for state in self._gpus.plugins.states.values())

    def step(self, name: str) -> float | None:
        """Let one loop do what is due."""
        self.events_of[name] = self.events_of.get(name, 0) + 1
        return self._loops[name]()

    def _move_pods(self) -> None:
        """Let the oldest of eight pods end and another one begin; half of them are misaligned."""
        number = next(self._numbers)
        name = f"job-{number}"
        cpus = "0-3" if number % 2 else "56-57"
        container = worker(ALIGNED, [number % 4], cpus=cpus, memory={0: GIB})
        aligned = Pod(namespace="ml", name=name, uid=f"u-{name}", containers=(container,))
        self._aligned = (*self._aligned, aligned)[-8:]
        pods = (*self._pod_resources.pods, pod(name, devices=(gpu(number % 4, number % 2),)))[-4:]
        self._pod_resources.pods = pods
        kept = {f"/api/v1/namespaces/ml/pods/{one.name}" for one in pods}
        for path in [path for path in self._objects.objects if "/pods/" in path]:
            if path not in kept:
                del self._objects.objects[path]
                self._objects.owners.pop(path, None)
        metadata = {"namespace": "ml", "name": name}
        self._objects.put(
            f"/api/v1/namespaces/ml/pods/{name}",
            {"metadata": metadata, "spec": {"nodeName": NODE}},
        )
        for asked in (self._objects.asked, self._api.patches, self._api.reads):
            asked.clear()  # what a test reads

    def _reject(self) -> None:
        name = f"wide-{next(self._numbers)}"
        began = {"startTime": self._time().strftime("%Y-%m-%dT%H:%M:%SZ")}
        it = dict(rejected(name))
        it["status"] = {**it["status"], **began}
        self._rejections.take(it)

    def _allocate(self) -> None:
        chosen = self._kubelet.preferred(1 + next(self._numbers) % 4)
        assert chosen, "all GPUs are Unhealthy"
        self._kubelet.allocate(chosen)

    def _scrape(self) -> None:
        with urlopen(self._url, timeout=PATIENCE_S) as answer:
            assert answer.read()

    def _have_xid(self) -> None:
        """Let a GPU have an XID that makes it Unhealthy, and one that does not."""
        number = next(self._numbers)
        self._fake.xid(number % 8, 48)
        self._fake.xid((number + 1) % 8, 31)

    def _pardon(self) -> None:
        """Remove the health file, which heals what only a reset would heal."""
        (self._scratch / HEALTH_FILE).unlink(missing_ok=True)

    def _restart_kubelet(self) -> None:
        self._kubelet.stop()
        self._kubelet = FakeKubelet(self._scratch / "kubelet")
        self._kubelet.wait_registered(PATIENCE_S)

    def _held(self, cycles: int) -> Held:
        gc.collect()
        child = self._reader._supervisor._child
        return Held(
            cycles=cycles,
            blocks=sys.getallocatedblocks(),
            resident_kib=resident_kib("self"),
            child_kib=0 if child is None else resident_kib(str(child.pid)),
            threads=len(os.listdir("/proc/self/task")),  # noqa: PTH208 - also gRPC's own
            descriptors=len(os.listdir("/proc/self/fd")),  # noqa: PTH208
        )


class EventsApi(Api):
    """Takes every Event."""

    def __init__(self) -> None:
        self.taken = 0

    @property
    def host(self) -> str:
        """Some URL."""
        return "http://fake"

    def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        body: str | None,
        *,
        max_bytes: int = MAX_OBJECT,
    ) -> Answer:
        del method, path, query, headers, body, max_bytes
        self.taken += 1
        return Answer(status=201, body={}, retry_after_s=None)


def resident_kib(process: str) -> int:
    """Return the resident memory of *process*."""
    pages = Path(f"/proc/{process}/statm").read_text("ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE") >> 10


@contextmanager
def environment(name: str, value: str) -> Iterator[None]:
    """Set a variable for a while."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        os.environ.pop(name)
        if before is not None:
            os.environ[name] = before


@contextmanager
def soak(scratch: Path) -> Iterator[Soak]:
    """Yield a daemon in *scratch*, which is new or empty; its log goes to a null device."""
    with ExitStack() as stack:
        stack.enter_context(generous_deadlines())
        log = stack.enter_context(open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123
        before = structlog.get_config()
        stack.callback(lambda: structlog.configure(**before))
        structlog.configure(
            processors=[structlog.processors.add_log_level, structlog.processors.JSONRenderer()],
            logger_factory=structlog.WriteLoggerFactory(file=log),
            cache_logger_on_first_use=False,
        )
        yield Soak(scratch, stack)


def slopes(rows: Sequence[Held]) -> Mapping[str, float]:
    """Return by how much each figure grows in a million cycles, in the second half of *rows*."""
    half = rows[len(rows) // 2 :]
    cycles = [row.cycles / 1e6 for row in half]
    return {
        each.name: linear_regression(cycles, [getattr(row, each.name) for row in half]).slope
        for each in fields(Held)
        if each.name != "cycles"
    }


HEADER = ("cycles", "blocks", "daemon KiB", "NVML KiB", "threads", "descriptors")


def line(row: Held) -> str:
    """Return the row of a table."""
    figures = [getattr(row, each.name) for each in fields(Held)]
    return "".join(f"{figure:>13,}" for figure in figures)


def main() -> None:
    """Print the table, line by line, then the slopes, and how often each loop ran."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cycles", type=int, default=1_000_000)
    cycles = parser.parse_args().cycles
    with tempfile.TemporaryDirectory(prefix="nt-soak-") as folder, soak(Path(folder)) as it:
        print("".join(f"{name:>13}" for name in HEADER))
        rows = []
        for row in it.run(cycles):
            rows.append(row)
            print(line(row), flush=True)
        grown = slopes(rows).values()
        print(f"{'a million':>13}" + "".join(f"{figure:>+13,.1f}" for figure in grown))
        steps = ", ".join(f"{name} {done:,}" for name, done in it.events_of.items())
        print(f"{it.now / 86400:.1f} simulated days; steps: {steps}")
        print(f"Events written {it.events_written:,}, registrations {it.registrations:,}")


if __name__ == "__main__":
    main()
