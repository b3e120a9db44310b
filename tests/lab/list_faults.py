"""A kubelet that allocates while a pod ends and while it is listed, and gets no CPU at times.

``python -m tests.lab.list_faults --tries 100`` stops a real kubelet for 20 to 2,000 ms at each
moment of an admission, and prints how often a device went to two pods.
"""

import argparse
import dataclasses
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import product
from pathlib import Path
from typing import TypeAlias

import psutil
import structlog

from nodetopo.deviceplugin.devices import PluginDevice
from nodetopo.deviceplugin.pb import deviceplugin_pb2 as pb
from nodetopo.deviceplugin.plugin import DevicePlugin
from nodetopo.deviceplugin.service import Answers, Prefer
from nodetopo.deviceplugin.settings import NumaReport
from nodetopo.errors import UnreadableError
from nodetopo.kernel.requester import Requesters
from nodetopo.model.pod import Pod
from nodetopo.probes.kubelet.podresources import PodResources
from tests.lab.cluster import Cluster
from tests.lab.machine_node import Node
from tests.lab.pods import guaranteed
from tests.lab.waiting import wait_for

TOY = "example.com/toy"
COUNT = 5
SHAPE = "h100x8-nvswitch-2numa-8cx7"
LONG_S = 300.0
FIRST = "/api/v1/namespaces/default/pods/first"

STALLS_S = (0.02, 0.08, 0.3, 1.0, 2.0)

MOMENTS = ("lookup", "choice", "allocate")
"""When the kubelet is stopped: as our list inside the call is sent, as the choice or Allocate is
answered."""

ENDS = ("before", "in", "after")
"""When the other pod ends: before the call, in the call and before the stall, or as it begins."""

ENDED_S = 0.7
"""How long the kubelet needs to end a pod once its hook was answered. If it needs longer, the pod
ends after the stall."""

Case: TypeAlias = tuple[str, str, float]
"""Moment of the stall, when the other pod ends, and seconds of the stall."""

READ_S = 0.02
"""Pause between lists of the reading loop, shorter than that of any loop of the daemon."""


@dataclasses.dataclass
class Ending:
    """A pod's preStop hook, which asks here and waits until the test lets the pod end.

    Attributes:
        port: of the HTTP server, on 127.0.0.1.
    """

    port: int = 0
    has_begun: threading.Event = dataclasses.field(default_factory=threading.Event)
    may_end: threading.Event = dataclasses.field(default_factory=threading.Event)

    @contextmanager
    def serving(self) -> Iterator["Ending"]:
        """Answer until the end; all pods may end then."""
        ending = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                ending.has_begun.set()
                ending.may_end.wait(LONG_S)
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Write nothing."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield self
        finally:
            self.may_end.set()
            server.shutdown()
            thread.join()
            server.server_close()


def lowest(available: Sequence[str], required: Sequence[str], size: int) -> Sequence[str]:
    """Prefer the lowest ids."""
    return [*required, *(one for one in sorted(available) if one not in required)][:size]


def run(cluster: Cluster, node: Node, resource: str, *names: str) -> None:
    """Run pods with one device each."""
    for name in names:
        cluster.pods.run(guaranteed(name, node.name, {resource: 1}))


def begin_to_end(cluster: Cluster, node: Node, resource: str, ending: Ending) -> None:
    """Run pod ``first``, and delete it; return while the kubelet waits for its hook."""
    pod = guaranteed("first", node.name, {resource: 1})
    hook = {"httpGet": {"host": "127.0.0.1", "port": ending.port, "path": "/"}}
    pod["spec"]["terminationGracePeriodSeconds"] = round(LONG_S)
    pod["spec"]["containers"][0]["lifecycle"] = {"preStop": hook}
    cluster.pods.run(pod)
    run(cluster, node, resource, "keep")
    cluster.api.delete(FIRST, grace_s=round(LONG_S))
    assert ending.has_begun.wait(LONG_S)


def held(pods: Sequence[Pod], resource: str) -> Counter[str]:
    """Return how many containers have each device."""
    return Counter(
        name
        for pod in pods
        for container in pod.containers
        for devices in container.devices or ()
        if devices.resource == resource
        for name in devices.ids
    )


@dataclasses.dataclass
class Stalls:
    """Our plugin of five devices, with lookups, in a process whose loops list all the time.

    Attributes:
        kubelet: its process.
        lookups: lists inside calls.
    """

    kubelet: int
    moment: str | None = None
    stall_s: float = 0.0
    end: str = ""
    ending: Ending | None = None
    lookups: int = 0
    numa: NumaReport = NumaReport.NONE
    resumed: list[threading.Timer] = dataclasses.field(default_factory=list)

    def stop_at(self, moment: str) -> None:
        """Stop the kubelet if it is to be stopped at this moment."""
        if self.moment != moment or self.ending is None:
            return
        self.moment = None
        if self.end != "before":
            self.ending.may_end.set()
        if self.end == "in":
            time.sleep(ENDED_S)
        os.kill(self.kubelet, signal.SIGSTOP)
        timer = threading.Timer(self.stall_s, os.kill, (self.kubelet, signal.SIGCONT))
        self.resumed.append(timer)
        timer.start()

    def look(self) -> None:
        """Have no device nodes."""

    def answer(self, devices: Sequence[PluginDevice]) -> pb.ContainerAllocateResponse:
        """Return nothing of *devices*, to a kubelet that may be stopped."""
        del devices
        self.stop_at("allocate")
        return pb.ContainerAllocateResponse()

    def prefer(self, available: Sequence[str], required: Sequence[str], size: int) -> Sequence[str]:
        """Prefer the lowest ids."""
        self.stop_at("choice")
        return lowest(available, required, size)


@contextmanager
def _reading(socket: Path) -> Iterator[None]:
    stopping = threading.Event()

    def read() -> None:
        kubelet = PodResources(socket)
        while not stopping.wait(READ_S):
            with suppress(UnreadableError):  # refused: it comes again
                kubelet.assigned()
        kubelet.close()

    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()


def kubelet_of(node: Node) -> int:
    """Return the process of *node*'s kubelet, which runs below those that make its namespace."""
    assert node._kubelet is not None
    first = psutil.Process(node._kubelet.process.pid)
    running = [first, *first.children(recursive=True)]
    return next(process.pid for process in running if process.name() == "kubelet")


@contextmanager
def offered(node: Node, prefer: Prefer, answers: Answers) -> Iterator[None]:
    """Offer five devices of a resource of nobody's."""
    plugin = DevicePlugin(TOY, node.agent.socket_dir, prefer, answers, structlog.get_logger())
    plugin.update([PluginDevice(id=f"toy-{number}", is_healthy=True) for number in range(COUNT)])
    plugin.start()
    try:
        node.wait_allocatable(TOY, COUNT)
        yield
    finally:
        plugin.stop()


@contextmanager
def serving(node: Node) -> Iterator[Stalls]:
    """Serve five devices, and list all the time."""
    found = Stalls(kubelet_of(node))
    lookups = PodResources(node.pod_resources_socket, gate=None)

    def assigned() -> Sequence[Pod]:
        found.lookups += 1
        found.stop_at("lookup")
        return lookups.assigned()

    requesters = Requesters(assigned, clock=lambda: 0.0)  # takes no kubelet for a slow one
    requesters.need("stalls", is_needed=True)
    around = requesters.around(TOY, found.prefer, found)
    try:
        with offered(node, *around), _reading(node.pod_resources_socket):
            yield found
    finally:
        for timer in found.resumed:
            timer.join()
        lookups.close()


def holders(cluster: Cluster, node: Node, stalls: Stalls, case: Case) -> int:
    """Admit a pod while another ends and the kubelet stalls; return the most pods of one device."""
    other = PodResources(node.pod_resources_socket)
    with Ending().serving() as ending:
        begin_to_end(cluster, node, TOY, ending)
        if case[1] == "before":
            ending.may_end.set()
        stalls.ending = ending
        stalls.moment, stalls.end, stalls.stall_s = case
        cluster.pods.create(guaranteed("during", node.name, {TOY: 1}))
        cluster.pods.wait_phase("during", "Running")
        ending.may_end.set()
        run(cluster, node, TOY, "next", "last")
        counts = held(other.assigned(), TOY)
    other.close()
    wait_for("pod first is gone", lambda: cluster.api.find(FIRST) is None)
    cluster.pods.delete_all()
    return max(counts.values())


def main() -> None:
    """Stop a kubelet at random, and count the devices that two pods have."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tries", type=int, default=100)
    parser.add_argument("--seed", type=int, default=7)
    args = parser.parse_args()
    cases = list(product(MOMENTS, ENDS, STALLS_S)) * (1 + args.tries // 45)
    random.Random(args.seed).shuffle(cases)
    cluster, twice = Cluster(), 0
    try:
        cluster.start()
        node = cluster.add_node("lists", SHAPE)
        with serving(node) as stalls:
            for number, case in enumerate(cases[: args.tries], 1):
                most = holders(cluster, node, stalls, case)
                twice += most > 1
                print(f"{number}: {case}: {most}", flush=True)
            print(f"{twice} of {args.tries} tries gave a device twice; {stalls.lookups} lookups")
    finally:
        cluster.stop()


if __name__ == "__main__":
    main()
