"""kube-scheduler's allocator of devices, by itself: an oracle, and the judge of a bench.

It is the library that the scheduler uses (k8s.io/dynamic-resource-allocation ``structured``), with
the features that the scheduler has by default, without API server and queue: an allocation takes
some milliseconds instead of a second.
"""

import json
import subprocess
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from msgspec import Struct

from tests.lab.build import binaries
from tests.lab.release import chosen

Json = Mapping[str, Any]

_WAIT_S = 60.0
"""A claim that cannot be met may take seconds: the search is exhaustive."""


class Allocated(Struct, frozen=True, kw_only=True):
    """One device of an allocation."""

    request: str
    driver: str
    pool: str
    device: str


class AllocatorBench(Struct, frozen=True, kw_only=True):
    """What pods cost the allocator on nodes that are alike and empty.

    CPU seconds are those of the program, all threads and garbage collection.

    Attributes:
        slices: of all nodes.
        construct_cpu_s: of one allocator, which the scheduler makes for each pod.
        filter_cpu_s: of one node; the scheduler filters up to all nodes for each pod.
        filtered: nodes that were filtered, for all pods.
        fitting: those of them that the claim fits.
    """

    slices: int
    construct_cpu_s: float
    filter_cpu_s: float
    filtered: int
    fitting: int


class AllocatorError(Exception):
    """The allocator refused to answer: a selector fails on a device, a class is missing."""


class DraAllocator:
    """The program, from entering to leaving a ``with`` block; what is allocated stays so."""

    def __init__(self, release: str | None = None) -> None:
        """Take the one of a Kubernetes *release*, as :func:`tests.lab.release.chosen` does."""
        self._release = chosen(release)
        self._program: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        """Start the program."""
        self._program = subprocess.Popen(
            [binaries(self._release.name) / "draalloc"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.set_gates({})
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End it."""
        program = self._program
        assert program is not None
        assert program.stdin is not None
        assert program.stdout is not None
        program.stdin.close()
        try:
            program.wait(_WAIT_S)
        finally:
            program.kill()
            program.stdout.close()

    def publish(self, slices: Sequence[Json]) -> None:
        """Replace all ResourceSlices."""
        self._ask({"do": "publish", "slices": list(slices)})

    def set_classes(self, classes: Sequence[Json]) -> None:
        """Replace all DeviceClasses."""
        self._ask({"do": "classes", "classes": list(classes)})

    def allocate(self, name: str, spec: Json, node: str) -> tuple[Allocated, ...] | None:
        """Allocate a claim called *name* with *spec* on *node*; ``None`` where nothing fits.

        Raises:
            AllocatorError: the allocator failed.
        """
        metadata = {"name": name, "namespace": "default", "uid": name}
        claim = {"metadata": metadata, "spec": _defaulted(spec)}
        answer = self._ask({"do": "allocate", "node": node, "claim": claim})
        results = answer.get("results")
        return None if not results else tuple(Allocated(**result) for result in results)

    def free(self, name: str) -> None:
        """Free what the claim *name* has."""
        self._ask({"do": "free", "name": name})

    def set_gates(self, gates: Mapping[str, bool]) -> None:
        """Give the scheduler's feature gates these values, and all others their defaults."""
        self._ask({"do": "gates", "gates": {**self._release.allocator_gates, **gates}})

    def bench(
        self, slices: Sequence[Json], nodes: int, spec: Json, *, pods: int = 2, per_pod: int = 8
    ) -> AllocatorBench:
        """Measure *pods* with a claim of *spec* on *nodes* nodes, whatever was published before.

        Args:
            slices: of one node, whose name in them is ``NODE``; those without it are there once.
            per_pod: nodes that are filtered for a pod.

        Raises:
            AllocatorError: the allocator failed.
        """
        metadata = {"name": "claim", "namespace": "default", "uid": "claim"}
        order = {
            "do": "bench",
            "slices": list(slices),
            "nodes": nodes,
            "claim": {"metadata": metadata, "spec": _defaulted(spec)},
            "pods": pods,
            "per_pod": per_pod,
        }
        return AllocatorBench(**self._ask(order)["bench"])

    def _ask(self, order: Json) -> Json:
        program = self._program
        assert program is not None, "use it in a with block"
        assert program.stdin is not None
        assert program.stdout is not None
        program.stdin.write(json.dumps(order) + "\n")
        program.stdin.flush()
        line = program.stdout.readline()
        if not line:
            raise AllocatorError(f"draalloc ended with {program.wait(_WAIT_S)}")
        answer: Json = json.loads(line)
        if "error" in answer:
            raise AllocatorError(answer["error"])
        return answer


def _defaulted(spec: Json) -> Json:
    """Return *spec* with what the API server adds (pkg/apis/resource/v1 defaults.go)."""
    devices = spec["devices"]

    def complete(ask: Json) -> Json:
        return {"allocationMode": "ExactCount", "count": 1, **ask}

    requests = []
    for request in devices["requests"]:
        if "exactly" in request:
            requests.append({**request, "exactly": complete(request["exactly"])})
        else:
            alternatives = [complete(each) for each in request["firstAvailable"]]
            requests.append({**request, "firstAvailable": alternatives})
    return {**spec, "devices": {**devices, "requests": requests}}
