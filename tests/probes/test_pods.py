"""Pods of the API server, and what the kubelet assigned to them."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from agent.errors import ApiUnavailable, DecodeError
from agent.model.numa import CpuSet
from agent.model.pod import AssignedDevices, AssignedMemory, Container, ContainerKind, Pod
from agent.probes.pods import joined, pod_from_object, pods_of_node

OBJECT = {
    "metadata": {"name": "train", "namespace": "ml", "uid": "u-1", "labels": {"secret": "x"}},
    "spec": {
        "nodeName": "gpu-1",
        "containers": [
            {
                "name": "app",
                "env": [{"name": "TOKEN", "value": "x"}],
                "resources": {"limits": {"nvidia.com/gpu": "1"}},
            }
        ],
        "ephemeralContainers": [{"name": "debug"}],
    },
    "status": {"phase": "Running", "qosClass": "BestEffort"},
}
GPUS = (AssignedDevices(resource="nvidia.com/gpu", ids=("GPU-1",)),)
MEMORY = (AssignedMemory(kind="memory", size_bytes=1, numa_nodes=(0,)),)
CPUS = CpuSet.parse("2-3")


class Server(ThreadingHTTPServer):
    """Answers every request with the next of *answers*, and keeps what was asked."""

    def __init__(self, answers: list[tuple[int, bytes]]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers = answers
        self.asked: list[tuple[str, dict[str, str], str | None]] = []


class Handler(BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:
        """Note the question and give the next answer."""
        url = urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        self.server.asked.append((url.path, query, self.headers.get("Authorization")))
        status, body = self.server.answers.pop(0)
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Keep quiet."""


@contextmanager
def serving(*answers: tuple[int, bytes]) -> Iterator[Server]:
    server = Server(list(answers))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join(10)
        server.server_close()


def kubeconfig(directory: Path, port: int) -> Path:
    path = directory / "kubeconfig"
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "u", "user": {"token": "hush"}}],
    }
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def page(*names: str, token: str = "") -> tuple[int, bytes]:
    items = [{"metadata": {"name": name}, "spec": {}} for name in names]
    return 200, json.dumps({"items": items, "metadata": {"continue": token}}).encode()


def failure(directory: Path, *answers: tuple[int, bytes]) -> str:
    with serving(*answers) as server, pytest.raises(ApiUnavailable) as caught:
        pods_of_node(kubeconfig(directory, server.server_port), "gpu-1")
    return str(caught.value).replace(str(server.server_port), "PORT")


def test_an_api_object_is_reduced_to_what_placement_needs_and_not_defaulted() -> None:
    app = Container(name="app", requests={}, limits={"nvidia.com/gpu": 1})
    assert pod_from_object(OBJECT) == Pod(
        namespace="ml",
        name="train",
        uid="u-1",
        phase="Running",
        qos_class="BestEffort",
        containers=(app,),
    )


def test_pod_level_resources_are_kept() -> None:
    spec = {"resources": {"requests": {"cpu": "2"}, "limits": {"memory": "1Ki"}}}
    pod = pod_from_object({"metadata": {"name": "p"}, "spec": spec})
    assert (pod.requests, pod.limits) == ({"cpu": 2000}, {"memory": 1024})


def test_an_init_container_that_restarts_is_a_sidecar() -> None:
    containers = [{"name": "a"}, {"name": "b", "restartPolicy": "Always"}]
    pod = pod_from_object({"metadata": {"name": "p"}, "spec": {"initContainers": containers}})
    assert [it.kind for it in pod.containers] == [ContainerKind.INIT, ContainerKind.SIDECAR]


def test_a_field_of_the_wrong_type_is_named() -> None:
    with pytest.raises(DecodeError, match=r"^status\.phase: expected a text, found int$"):
        pod_from_object({"metadata": {"name": "p"}, "status": {"phase": 1}})


def test_the_pods_of_a_node_are_asked_for_page_by_page(tmp_path: Path) -> None:
    with serving(page("a", "b", token="next"), page("c")) as server:
        pods = pods_of_node(kubeconfig(tmp_path, server.server_port), "gpu-1")
    first = {"fieldSelector": "spec.nodeName=gpu-1", "limit": "500"}
    assert ([pod.name for pod in pods], server.asked) == (
        ["a", "b", "c"],
        [
            ("/api/v1/pods", first, "Bearer hush"),
            ("/api/v1/pods", {**first, "continue": "next"}, "Bearer hush"),
        ],
    )


def test_a_refusal_names_the_right_that_is_missing(tmp_path: Path) -> None:
    assert failure(tmp_path, (403, b"{}")) == (
        "GET http://127.0.0.1:PORT/api/v1/pods: HTTP 403 Forbidden — "
        "allow `list` on pods to this account"
    )


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ((500, b""), "GET http://127.0.0.1:PORT/api/v1/pods: HTTP 500 Internal Server Error"),
        ((200, b"<html>"), "GET http://127.0.0.1:PORT/api/v1/pods: the answer is not JSON"),
        ((200, b"[]"), "the API server's list of pods has no items"),
        (
            (200, b'{"items": [3]}'),
            "the API server sent a pod that cannot be read: metadata.name: missing",
        ),
    ],
)
def test_an_answer_that_is_no_list_of_pods_is_unavailable(
    tmp_path: Path, answer: tuple[int, bytes], reason: str
) -> None:
    assert failure(tmp_path, answer) == reason


def test_a_server_whose_pages_never_end_is_left(tmp_path: Path) -> None:
    answers = [page("a", token="again")] * 20
    assert failure(tmp_path, *answers) == "more than 10000 pods on node 'gpu-1'"


def test_a_server_that_is_not_there_is_unavailable(tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound, not listening: nobody else can answer
        config = kubeconfig(tmp_path, unused.getsockname()[1])
        with pytest.raises(ApiUnavailable, match="check the address in the kubeconfig"):
            pods_of_node(config, "gpu-1")


@pytest.mark.parametrize("text", [None, "", "- x", "a: [", "{clusters: 3}"])
def test_a_file_that_is_no_kubeconfig_is_unavailable(tmp_path: Path, text: str | None) -> None:
    config = tmp_path / "kubeconfig"
    if text is not None:
        config.write_text(text, encoding="utf-8")
    with pytest.raises(ApiUnavailable, match="give a readable kubeconfig with --kubeconfig"):
        pods_of_node(config, "gpu-1")


def test_assignments_join_by_pod_and_container() -> None:
    spec = Container(name="app", requests={"cpu": 2000}, limits={"cpu": 2000})
    given = Container(name="app", devices=GPUS, cpus=CPUS, memory=MEMORY)
    api = Pod(namespace="a", name="p", uid="u", containers=(spec, Container(name="idle")))
    assert joined((api,), (Pod(namespace="a", name="p", containers=(given,)),)) == (
        Pod(
            namespace="a",
            name="p",
            uid="u",
            containers=(
                Container(
                    name="app",
                    requests={"cpu": 2000},
                    limits={"cpu": 2000},
                    devices=GPUS,
                    cpus=CPUS,
                    memory=MEMORY,
                ),
                Container(name="idle"),
            ),
        ),
    )


def test_what_only_one_side_knows_of_is_kept() -> None:
    only_api = Pod(namespace="a", name="p", containers=(Container(name="x", requests={}),))
    only_kubelet = Pod(namespace="b", name="p", containers=(Container(name="x", devices=GPUS),))
    assert joined((only_api,), (only_kubelet,)) == (only_api, only_kubelet)


def test_a_container_that_only_the_kubelet_knows_of_joins_its_pod() -> None:
    extra = Container(name="extra", devices=GPUS)
    pod = Pod(namespace="a", name="p", containers=(Container(name="x"),))
    assert joined((pod,), (Pod(namespace="a", name="p", containers=(extra,)),)) == (
        Pod(namespace="a", name="p", containers=(Container(name="x"), extra)),
    )
