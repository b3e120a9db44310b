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

from nodetopo.errors import ApiUnavailable
from nodetopo.kubeapi import pods as pods_module
from nodetopo.kubeapi.pods import ApiServer, joined, pods_of_node
from nodetopo.model.node import NodeStatus
from nodetopo.model.numa import CpuSet
from nodetopo.model.pod import AssignedDevices, AssignedMemory, Container, Pod

GPUS = (AssignedDevices(resource="nvidia.com/gpu", ids=("GPU-1",)),)
MEMORY = (AssignedMemory(kind="memory", size_bytes=1, numa_nodes=(0,)),)
CPUS = CpuSet.parse("2-3")


class Server(ThreadingHTTPServer):
    """Answers every request with the next of *answers*, and keeps what was asked."""

    def __init__(self, answers: list[tuple[int, bytes]]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers = answers
        self.asked: list[tuple[str, dict[str, str], str | None]] = []
        self.bodies: list[Any] = []


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

    def do_POST(self) -> None:
        """Note the question with its body and give the next answer."""
        length = int(self.headers.get("Content-Length", "0"))
        self.server.bodies.append(json.loads(self.rfile.read(length)))
        self.do_GET()

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
        thread.join()
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


def test_the_pods_of_a_node_are_asked_for_page_by_page(tmp_path: Path) -> None:
    with serving(page("a", "b", token="next"), page("c")) as server:
        pods = pods_of_node(kubeconfig(tmp_path, server.server_port), "gpu-1")
    first = {"fieldSelector": "spec.nodeName=gpu-1", "limit": "100"}
    assert ([pod.name for pod in pods], server.asked) == (
        ["a", "b", "c"],
        [
            ("/api/v1/pods", first, "Bearer hush"),
            ("/api/v1/pods", {**first, "continue": "next"}, "Bearer hush"),
        ],
    )


def test_a_refusal_names_the_right_that_is_missing(tmp_path: Path) -> None:
    assert failure(tmp_path, (403, b"{}")) == (
        "GET http://127.0.0.1:PORT/api/v1/pods: HTTP 403 — allow `list` on pods to this account"
    )


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ((500, b""), "GET http://127.0.0.1:PORT/api/v1/pods: HTTP 500"),
        (
            (200, b"<html>"),
            (
                "GET http://127.0.0.1:PORT/api/v1/pods: the answer holds no object — "
                "is there a proxy in between? it is tried again later"
            ),
        ),
        ((200, b'{"a": 1}'), "the API server's list of pods has no items"),
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


def test_a_server_whose_pages_never_end_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pods_module, "MAX_PAGES", 3)
    answers = [page("a", token="again")] * 3
    assert failure(tmp_path, *answers) == "more than 300 pods on node 'gpu-1'"


def test_the_node_is_asked_for_by_its_name(tmp_path: Path) -> None:
    node = {"metadata": {}, "status": {"nodeInfo": {"kubeletVersion": "v1.36.3"}}}
    with serving((200, json.dumps(node).encode())) as server:
        found = ApiServer(kubeconfig(tmp_path, server.server_port)).node("../gpu-1")
    assert found == NodeStatus(kubelet_version="v1.36.3", labels={})
    assert [path for path, _, _ in server.asked] == ["/api/v1/nodes/..%2Fgpu-1"]


def test_a_node_that_cannot_be_read_is_unavailable(tmp_path: Path) -> None:
    with serving((200, b'{"status": 3}')) as server:
        api = ApiServer(kubeconfig(tmp_path, server.server_port))
        with pytest.raises(ApiUnavailable, match="sent an unreadable node: status: expected an"):
            api.node("gpu-1")


def test_rights_are_asked_for_one_by_one(tmp_path: Path) -> None:
    answers = [(201, b'{"status": {"allowed": true}}'), (201, b'{"status": {"allowed": false}}')]
    with serving(*answers, (201, b'{"status": "yes"}')) as server:
        api = ApiServer(kubeconfig(tmp_path, server.server_port))
        found = api.rights(("get nodes/proxy", "list pods", "get nodes/x"))
    assert found == {"get nodes/proxy": True, "list pods": False, "get nodes/x": False}
    assert server.asked[0][0] == "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    assert server.bodies[0] == {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {
            "resourceAttributes": {"verb": "get", "resource": "nodes", "subresource": "proxy"}
        },
    }


AGENT = "system:serviceaccount:nodetopo:nodetopo"
ONE = ("get nodes/proxy",)


def agent_rights(tmp_path: Path, user: str, *pods: object) -> tuple[dict[str, bool], Any]:
    """Return what is said of the agent to *user*, and the last question that was asked."""
    me = {"status": {"userInfo": {"username": user}}}
    answers = (me, {"items": pods}, {"status": {"allowed": True}})
    with serving(*((201, json.dumps(one).encode()) for one in answers)) as server:
        api = ApiServer(kubeconfig(tmp_path, server.server_port))
        found = api.agent_rights("gpu-1", ONE)
    who, listed, _ = (path for path, _, _ in server.asked)
    assert who == "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    assert listed == "/api/v1/pods"
    return found, server.bodies[-1]


def agent_pod(account: str = "nodetopo") -> object:
    return {"metadata": {"namespace": "nodetopo"}, "spec": {"serviceAccountName": account}}


@pytest.mark.parametrize(
    ("user", "pods"),
    [(AGENT, [agent_pod()]), (AGENT, []), ("system:serviceaccount:jobs:audit", [])],
    ids=["the agent", "not listed", "a job"],
)
def test_the_agent_asks_about_itself(tmp_path: Path, user: str, pods: list[object]) -> None:
    found, asked = agent_rights(tmp_path, user, *pods)
    assert (found, asked["kind"]) == ({ONE[0]: True}, "SelfSubjectAccessReview")


@pytest.mark.parametrize("user", ["kubernetes-admin", "system:serviceaccount:jobs:audit"])
def test_another_account_asks_about_the_agent(tmp_path: Path, user: str) -> None:
    found, asked = agent_rights(tmp_path, user, agent_pod())
    assert found == {ONE[0]: True}
    assert asked == {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "resourceAttributes": {"verb": "get", "resource": "nodes", "subresource": "proxy"},
            "user": AGENT,
            "groups": [
                "system:serviceaccounts",
                "system:serviceaccounts:nodetopo",
                "system:authenticated",
            ],
        },
    }


def test_a_person_s_rights_are_not_taken_for_the_agent_s(tmp_path: Path) -> None:
    with pytest.raises(ApiUnavailable, match="kubernetes-admin, and no pod of the agent is on"):
        agent_rights(tmp_path, "kubernetes-admin")


def test_an_answer_beyond_the_cap_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pods_module, "MAX_ANSWER_BYTES", 64)
    answer = (200, b'{"items": [' + b" " * 64 + b"]}")
    assert failure(tmp_path, answer) == (
        "GET http://127.0.0.1:PORT/api/v1/pods: the answer has more than 0 MiB — "
        "see what answers at this address, maybe a proxy; it is tried again later"
    )


def test_a_server_that_was_lost_is_not_asked_again(tmp_path: Path) -> None:
    with serving() as server:
        config = kubeconfig(tmp_path, server.server_port)
        api = ApiServer(config)
        with pytest.raises(ApiUnavailable) as first:
            api.pods("gpu-1")
        asked = len(server.asked)
        with pytest.raises(ApiUnavailable) as second:
            api.node("gpu-1")
    assert (asked, len(server.asked)) == (1, 1)
    assert second.value.cause == first.value.cause


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


def test_what_a_pod_has_as_a_whole_joins_too() -> None:
    api = Pod(namespace="a", name="p", uid="u")
    whole = Pod(namespace="a", name="p", cpus=CPUS, memory=MEMORY)
    joint = Pod(namespace="a", name="p", uid="u", cpus=CPUS, memory=MEMORY)
    assert joined((api,), (whole,)) == (joint,)


def test_pods_that_only_one_side_knows_are_kept() -> None:
    only_api = Pod(namespace="a", name="p", containers=(Container(name="x", requests={}),))
    only_kubelet = Pod(namespace="b", name="p", containers=(Container(name="x", devices=GPUS),))
    assert joined((only_api,), (only_kubelet,)) == (only_api, only_kubelet)


def test_a_container_that_only_the_kubelet_knows_joins_its_pod() -> None:
    extra = Container(name="extra", devices=GPUS)
    pod = Pod(namespace="a", name="p", containers=(Container(name="x"),))
    assert joined((pod,), (Pod(namespace="a", name="p", containers=(extra,)),)) == (
        Pod(namespace="a", name="p", containers=(Container(name="x"), extra)),
    )
