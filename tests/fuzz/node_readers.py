"""Readers of what the node's other programs say: the kubelet, container runtimes, HTTP clients."""

import socket
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError

from nodetopo.formats.safe import load_json
from nodetopo.kernel.http.server import MetricsServer, serve_metrics
from nodetopo.machines.bundled import machine
from nodetopo.probes.host.cdi import cdi_specs
from nodetopo.probes.host.paths import HostPaths
from nodetopo.probes.kubelet.file import UnusableError, read_configuration
from nodetopo.probes.kubelet.pb import podresources_pb2 as pb
from nodetopo.probes.kubelet.podresources import ALLOCATABLE, LIST, PodResources
from nodetopo.probes.kubelet.state import cpu_state, device_state, memory_state
from nodetopo.probes.sysfs.files import Files
from nodetopo.probes.sysfs.tree import Tree
from tests.kernel.readings import readings

_STATES = {"cpu": cpu_state, "memory": memory_state, "devices": device_state}


def kubelet_state(text: str) -> object:
    """Read a state file of one of the kubelet's managers: ``{"manager": …, "file": …}``."""
    document = load_json(text)
    decode = _STATES.get(str(document.get("manager"))) if isinstance(document, dict) else None
    if decode is None:
        raise ValueError("names no manager")
    return decode(document.get("file"))


class _Answered(PodResources):
    """A kubelet that gives *message*, the bytes of one, wherever they are an answer at all."""

    def __init__(self, message: bytes) -> None:
        super().__init__(Path("/nowhere"))
        self._answers: dict[str, Any] = {}
        for method, kind in _KINDS.items():
            with suppress(DecodeError):
                self._answers[method] = kind.FromString(message)

    def _ask(self, name: str) -> Any:
        return self._answers.get(name, _KINDS[name]())

    def _list(self) -> Iterable[Any]:
        pods: Iterable[Any] = self._ask(LIST).pod_resources
        return pods

    @property
    def is_understood(self) -> bool:
        return bool(self._answers)


_KINDS: dict[str, Any] = {
    LIST: pb.ListPodResourcesResponse,
    ALLOCATABLE: pb.AllocatableResourcesResponse,
}


def pod_resources(text: str) -> object:
    """Read the bytes of the kubelet's answers, in Latin-1, and make zones of them."""
    kubelet = _Answered(text.encode("latin-1", "replace"))
    if not kubelet.is_understood:
        raise ValueError("no message")
    from nodetopo.components.zones import (  # noqa: PLC0415 - can be dropped
        node_resource_topology as topology,
    )
    from nodetopo.components.zones.zones import zones  # noqa: PLC0415 - same

    held = kubelet.held()
    numa_nodes = machine("h200-nvl-4").numa_nodes or ()
    found = zones(numa_nodes, kubelet.offer(), held)
    return kubelet.assigned(), topology.content(found, topology.attributes(None, held))


def cdi(text: str) -> object:
    """Read a specification, as YAML and as JSON."""
    with tempfile.TemporaryDirectory(prefix="nt-fuzz-") as directory:
        root = Path(directory)
        (root / "etc" / "cdi").mkdir(parents=True)
        for name in ("a.yaml", "b.json"):
            (root / "etc" / "cdi" / name).write_bytes(text.encode("utf-8", "surrogatepass"))
        files = Files("host", root)
        found = cdi_specs(files, HostPaths(files))
    assert found is not None
    assert [spec.path for spec in found] == ["/etc/cdi/a.yaml", "/etc/cdi/b.json"]
    if all(spec.error is not None for spec in found):
        raise ValueError("no specification")
    return found


def kubelet_configuration(text: str) -> object:
    """Read a configuration file of the kubelet."""
    with tempfile.TemporaryDirectory(prefix="nt-fuzz-") as directory:
        (Path(directory) / "config.yaml").write_bytes(text.encode("utf-8", "surrogatepass"))
        try:
            return read_configuration(Tree.of(Path(directory)), Path("/config.yaml"))
        except UnusableError as error:
            raise ValueError(str(error)) from None


@cache
def _server() -> MetricsServer:
    return serve_metrics("127.0.0.1:0", readings)


def http_request(text: str) -> object:
    """Send bytes, in Latin-1, to the server of metrics, which answers or hangs up, and lives on.

    Raises:
        ValueError: it was no request that the server carries out.
    """
    host, _, port = _server().url.removeprefix("http://").partition("/")[0].partition(":")
    answers = []
    for request in (text.encode("latin-1", "replace"), b"GET /healthz HTTP/1.0\r\n\r\n"):
        with socket.create_connection((host, int(port)), timeout=LIMIT_S) as client:
            answer = b""
            try:
                client.sendall(request)
                client.shutdown(socket.SHUT_WR)
                while chunk := client.recv(1 << 16):
                    answer += chunk
            except TimeoutError:
                raise
            except OSError:  # it hung up with bytes unread, maybe before the shutdown: ENOTCONN
                pass
        answers.append(answer)
    assert answers[1].startswith(b"HTTP/1.0 200 "), answers
    first = answers[0].partition(b"\r\n")[0]
    if not first.startswith(b"HTTP/1.") or b" 200 " not in first:
        raise ValueError("refused")
    return first


LIMIT_S = 30.0
"""Of wall time, for one answer."""
