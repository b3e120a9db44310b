"""A server of metrics, and what it tells."""

import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from msgspec import structs
from prometheus_client.parser import text_string_to_metric_families

from nodetopo.kernel.http.families import KERNEL, KernelReading
from nodetopo.kernel.http.server import MetricsServer, serve_metrics
from nodetopo.machines.bundled import machine
from nodetopo.model.gpu_health import GpuHealth, HealthClass, HealthView
from nodetopo.model.snapshot import Snapshot
from tests.kernel.readings import readings

Readings = Mapping[str, object]

NOTHING = readings()
GPU0 = "GPU-00000140-0000-4000-8000-000000000000"
FORGOTTEN = "GPU-99999999-0000-4000-8000-000000000000"
BROKEN = GpuHealth(is_healthy=False, reason="Xid79", said="fell off", kind=HealthClass.REBOOT)
WORN = GpuHealth(is_degraded=True, reason="Xid63", said="worn", kind=HealthClass.DEGRADED)


@contextmanager
def served(state: Readings) -> Iterator[MetricsServer]:
    kernel = state[KERNEL]
    assert isinstance(kernel, KernelReading)
    server = serve_metrics("127.0.0.1:0", lambda: state, lambda: kernel.not_ready)
    try:
        yield server
    finally:
        server.close()


def connected(server: MetricsServer) -> socket.socket:
    """Return a connection to *server*."""
    host, _, port = server.url.split("/")[2].rpartition(":")
    return socket.create_connection((host, int(port)), timeout=120)


def fetch(url: str, accept: str = "*/*") -> tuple[int, str]:
    request = Request(url, headers={"Accept": accept})
    try:
        with urlopen(request, timeout=120) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()


def samples(state: Readings, name: str) -> dict[tuple[str, ...], float]:
    """Return the samples of *name*, by their label values in alphabetic order of names."""
    with served(state) as server:
        _, text = fetch(server.url)
    return {
        tuple(value for _, value in sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name
    }


def of(snapshot: Snapshot) -> Readings:
    return readings(snapshot)


def with_health(view: HealthView) -> Readings:
    node = machine("l40s-pcie-4")
    return readings(structs.replace(node, gpus=node.gpus[:1]), health=view)
