"""kube-scheduler with a cluster of Nodes that no kubelet runs: what pods with claims cost it."""

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from tests.bench.dra_ways import Way, classes, json_bytes
from tests.bench.fleet_server import NamedProcesses, cpu_s
from tests.lab.api import Object
from tests.lab.build import binaries
from tests.lab.claims import CLAIMS, CLASSES, SLICES, TEMPLATES
from tests.lab.cluster import run_parent
from tests.lab.control_plane import ControlPlane
from tests.lab.waiting import wait_for

_NODES, _PODS = "/api/v1/nodes", "/api/v1/namespaces/default/pods"
_WRITERS = 4
_LOOK_S = 0.2
_QUIET_S = 1.0
"""The scheduler is taken for idle when it used no CPU for that long."""


class Scheduled(Struct, frozen=True, kw_only=True):
    """What one way costs on a cluster of some size.

    Attributes:
        bound: pods that were bound before the time was up.
        scheduler_s: CPU seconds of the scheduler for each of the pods that were asked for.
        store_s: CPU seconds of the API server to store the slices of one node.
        node_bytes: of one node's slices as the API server returns them, JSON without spaces.
        resident_mib: of the scheduler, afterwards.
    """

    bound: int
    scheduler_s: float
    store_s: float
    node_bytes: int
    resident_mib: float


class SchedulerBench(ControlPlane):
    """A control plane of *release*, with as many Nodes as a measurement wants."""

    def __init__(self, release: str) -> None:
        self._home = Path(tempfile.mkdtemp(prefix="nt-", dir=run_parent()))
        self._named = NamedProcesses(self._home)
        self._count = 0
        super().__init__(self._home, binaries(release), self._named)

    @classmethod
    @contextmanager
    def running(cls, release: str) -> Iterator["SchedulerBench"]:
        """Start all, and leave nothing behind."""
        bench = cls(release)
        try:
            bench.start()
            bench.start_claim_controllers()
            for each in classes():
                bench.api.create(CLASSES, each)
            yield bench
        finally:
            bench._named.stop_all()
            shutil.rmtree(bench._home, ignore_errors=True)

    def measure(
        self, way: Way, nodes: int, *, size: int, pods: int, patience_s: float
    ) -> Scheduled:
        """Return what *pods* cost that claim *size* GPUs each, one after the other.

        The cluster has at least as many nodes afterwards as before; a smaller one takes another
        control plane.
        """
        names = self._add_nodes(nodes)
        before = self._cpu("kube-apiserver")
        _for_each(names, lambda name: self._store(way, name))
        store_s = (self._cpu("kube-apiserver") - before) / nodes
        node_bytes = json_bytes(self._slices_of(names[0]))
        template = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate"}
        body = {**template, "metadata": {"name": "gpus"}, "spec": {"spec": way.claim(size)}}
        self.api.create(TEMPLATES, body)
        self._wait_idle()
        before = self._cpu("kube-scheduler")
        bound = 0
        deadline = time.monotonic() + patience_s
        for number in range(pods):
            self.api.create(_PODS, _pod(f"pod-{number}"))
            while not self._is_bound(f"pod-{number}") and time.monotonic() < deadline:
                time.sleep(_LOOK_S)
            bound += self._is_bound(f"pod-{number}")
        scheduler_s = (self._cpu("kube-scheduler") - before) / pods
        resident = self._resident_mib()
        self._forget(names)
        return Scheduled(
            bound=bound,
            scheduler_s=scheduler_s,
            store_s=store_s,
            node_bytes=node_bytes,
            resident_mib=resident,
        )

    def _add_nodes(self, count: int) -> Sequence[str]:
        names = [f"n{number:05d}" for number in range(count)]
        _for_each(names[self._count :], lambda name: self.api.create(_NODES, _node(name)))
        self._count = max(self._count, count)
        return names

    def _store(self, way: Way, node: str) -> None:
        for each in way.slices_of(node):
            self.api.apply(f"{SLICES}/{each['metadata']['name']}", each)

    def _slices_of(self, node: str) -> Sequence[Object]:
        found: Sequence[Object] = self.api.get(f"{SLICES}?fieldSelector=spec.nodeName={node}")[
            "items"
        ]
        return found

    def _delete_slices(self, node: str) -> None:
        for each in self._slices_of(node):
            self.api.delete(f"{SLICES}/{each['metadata']['name']}")

    def _is_bound(self, pod: str) -> bool:
        return bool(self.api.get(f"{_PODS}/{pod}")["spec"].get("nodeName"))

    def _forget(self, nodes: Sequence[str]) -> None:
        """Delete pods, claims and slices, and wait until the scheduler has seen it."""
        for pod in self.api.get(_PODS)["items"]:
            self.api.delete(f"{_PODS}/{pod['metadata']['name']}")
        for claim in self.api.get(CLAIMS)["items"]:  # the lab collects no garbage
            self.api.delete(f"{CLAIMS}/{claim['metadata']['name']}")
        self.api.delete(f"{TEMPLATES}/gpus")
        wait_for("all claims are gone", lambda: not self.api.get(CLAIMS)["items"])
        _for_each(nodes, self._delete_slices)
        self._wait_idle()

    def _wait_idle(self) -> None:
        """Return when the scheduler has nothing left to do."""
        before = -1.0
        while (now := self._cpu("kube-scheduler")) > before + 0.01:
            before = now
            time.sleep(_QUIET_S)

    def _cpu(self, program: str) -> float:
        return cpu_s(self._named.programs[program])

    def _resident_mib(self) -> float:
        pid = self._named.programs["kube-scheduler"].process.pid
        pages = int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def _for_each(names: Sequence[str], work: Callable[[str], object]) -> None:
    """Do *work* for all *names*, several at a time.

    Raises:
        ApiError: one of them was refused.
    """
    with ThreadPoolExecutor(_WRITERS) as writers:
        for _ in writers.map(work, names):
            pass


def _node(name: str) -> Object:
    room = {"cpu": "100", "memory": "500Gi", "pods": "110"}
    then = "2026-01-01T00:00:00Z"
    ready = {
        "type": "Ready",
        "status": "True",
        "reason": "Bench",
        "message": "",
        "lastHeartbeatTime": then,
        "lastTransitionTime": then,
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"capacity": room, "allocatable": room, "conditions": [ready]},
    }


def _pod(name: str) -> Object:
    container = {
        "name": "main",
        "image": "none",
        "resources": {"requests": {"cpu": "1"}, "claims": [{"name": "gpus"}]},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "automountServiceAccountToken": False,
            "resourceClaims": [{"name": "gpus", "resourceClaimTemplateName": "gpus"}],
            "containers": [container],
        },
    }
