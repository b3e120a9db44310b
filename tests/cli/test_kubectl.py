"""``kubectl nodetopo``: which pod is asked, with which words, and what stays on this machine."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.kubeapi.fake_api_server import kubeconfig

TIMEOUT_S = 60.0
POD: dict[str, Any] = {
    "metadata": {
        "name": "nodetopo-x7k2p",
        "namespace": "gpu-system",
        "creationTimestamp": "2026-11-01T00:00:00Z",
        "ownerReferences": [{"kind": "DaemonSet", "name": "nodetopo"}],
    },
    "spec": {
        "nodeName": "gpu-17",
        "containers": [
            {
                "name": "nodetopo",
                "args": [
                    "run",
                    "--node-name=$(NODE_NAME)",
                    "--metrics-address=[$(POD_IP)]:9430",
                    "--sysfs-root=/host/sys",
                    "--host-root",
                    "/host",
                    "--recovery=5m",
                ],
                "env": [
                    {
                        "name": "NODE_NAME",
                        "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}},
                    },
                    {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
                ],
            }
        ],
    },
    "status": {"podIP": "10.1.2.3"},
}
DAEMON = ["--node-name=gpu-17", "--sysfs-root=/host/sys", "--host-root=/host"]
KUBECTL = """\
#!/bin/sh
printf '%s\\n' "$@" >"$RECORD"
case " $* " in *" --stdin "*) cat >"$RECORD.stdin" ;; esac
printf 'from the pod'
exit 3
"""
"""Stands for kubectl: notes its arguments and its input."""


class Done(NamedTuple):
    """What the plugin did."""

    code: int
    out: str
    err: str
    argv: list[str]
    stdin: str | None


Plugin = Callable[..., Done]


@contextmanager
def api_server(pods: list[dict[str, Any]], directory: Path) -> Iterator[Path]:
    """Serve the *pods* as an API server does, and yield a kubeconfig of it."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            url = urlsplit(self.path)
            query = {name: values[0] for name, values in parse_qs(url.query).items()}
            body: dict[str, Any] = {"kind": "List", "items": []}
            if url.path in ("/api/v1/pods", "/api/v1/namespaces/gpu-system/pods"):
                asked = dict(part.split("=") for part in query["fieldSelector"].split(","))
                assert query["labelSelector"] == "app.kubernetes.io/name=nodetopo"
                assert asked.pop("status.phase") == "Running"
                found = [pod for pod in pods if pod["spec"]["nodeName"] == asked["spec.nodeName"]]
                body["items"] = [{"metadata": pod["metadata"]} for pod in found]
            elif url.path == "/api/v1/nodes":
                body["items"] = [{"metadata": {"name": name}} for name in ("gpu-17", "gpu-18")]
            elif not url.path.startswith("/apis/resource.k8s.io/"):
                (body,) = [pod for pod in pods if url.path.endswith(f"/{pod['metadata']['name']}")]
            content = json.dumps(body).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_args: object) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        path = directory / "kubeconfig"
        path.write_text(kubeconfig(f"http://127.0.0.1:{server.server_address[1]}"), "utf-8")
        yield path
        server.shutdown()
        thread.join(TIMEOUT_S)


@pytest.fixture
def plugin(tmp_path: Path) -> Iterator[Plugin]:
    """Return a function that runs the plugin with a cluster, and kubectl's stand-in on PATH."""
    programs, record = tmp_path / "bin", tmp_path / "record"
    programs.mkdir()
    (programs / "kubectl").write_text(KUBECTL, "utf-8")
    (programs / "kubectl").chmod(0o755)
    with api_server([POD], tmp_path) as config:

        def run(*words: str, entry: str = "main", stdin: str = "", path: str | None = None) -> Done:
            variables = {name: value for name, value in os.environ.items() if "KUBE" not in name}
            program = f"import sys; from nodetopo.cli.kubectl import {entry}; sys.exit({entry}())"
            done = subprocess.run(
                [sys.executable, "-c", program, *words],
                env={
                    **variables,
                    "PATH": f"{programs}:{os.environ['PATH']}" if path is None else path,
                    "KUBECONFIG": str(config),
                    "RECORD": str(record),
                },
                cwd=tmp_path,
                input=stdin,
                capture_output=True,
                text=True,
                timeout=TIMEOUT_S,
                check=False,
            )
            argv = record.read_text("utf-8").splitlines() if record.exists() else []
            sent = record.with_name("record.stdin")
            return Done(
                code=done.returncode,
                out=done.stdout,
                err=done.stderr,
                argv=argv,
                stdin=sent.read_text("utf-8") if sent.exists() else None,
            )

        yield run


def executed(*words: str, flags: tuple[str, ...] = (), more: tuple[str, ...] = ()) -> list[str]:
    """Return the arguments by which kubectl runs *words* in the pod."""
    place = ["--namespace=gpu-system", "nodetopo-x7k2p", "--container=nodetopo"]
    return [*flags, "exec", "--quiet", *more, *place, "--", "nodetopo", *words]


def test_a_command_runs_in_the_pod_of_its_node_with_the_daemon_s_view(plugin: Plugin) -> None:
    done = plugin("gpu-17", "health", "-o", "json")
    assert done.argv == executed("health", "-o", "json", *DAEMON)
    assert (done.code, done.out, done.err, done.stdin) == (3, "from the pod", "", None)


def test_a_gpu_is_cleared_by_the_daemon_in_the_pod(plugin: Plugin) -> None:
    done = plugin("gpu-17", "health", "--clear", "GPU3", "--yes")
    assert done.argv == executed("health", "--clear", "GPU3", "--yes", *DAEMON)


def test_flags_that_reach_the_cluster_are_passed_on(plugin: Plugin) -> None:
    done = plugin("-n", "gpu-system", "--context=it", "gpu-17", "topo", "matrix")
    assert done.argv == executed("topo", "matrix", *DAEMON, flags=("--context=it",))


def test_what_the_caller_says_counts_before_what_the_daemon_says(plugin: Plugin) -> None:
    done = plugin("gpu-17", "labels", "--sysfs-root=/x")
    assert done.argv[-4:] == ["labels", "--sysfs-root=/x", DAEMON[0], DAEMON[2]]


def test_a_manifest_of_this_machine_is_sent_to_the_pod(plugin: Plugin, tmp_path: Path) -> None:
    (tmp_path / "pod.yaml").write_text("kind: Pod\n", "utf-8")
    done = plugin("gpu-17", "admit", "--manifest", "pod.yaml", "-o", "short")
    words = ("admit", "--manifest", "-", "-o", "short")
    assert done.argv == executed(*words, *DAEMON, more=("--stdin",))
    assert done.stdin == "kind: Pod\n"


def test_a_log_of_this_machine_is_sent_to_the_pod(plugin: Plugin, tmp_path: Path) -> None:
    (tmp_path / "nccl.log").write_text("a log\n", "utf-8")
    done = plugin("gpu-17", "nccl", "check", "--gpus", "0,1", "nccl.log", "-o", "short")
    words = ("nccl", "check", "--gpus", "0,1", "-", "-o", "short")
    assert done.argv == executed(*words, *DAEMON, more=("--stdin",))
    assert done.stdin == "a log\n"


def test_an_archive_is_written_on_this_machine_for_its_owner_only(
    plugin: Plugin, tmp_path: Path
) -> None:
    done = plugin("gpu-17", "support", "-o", "node.tar.gz")
    written = tmp_path / "node.tar.gz"
    assert (written.read_text("utf-8"), written.stat().st_mode & 0o777) == ("from the pod", 0o600)
    assert done.out == ""
    assert done.argv == executed(
        "support", "--output=-", DAEMON[0], "--metrics-address=[10.1.2.3]:9430", *DAEMON[1:]
    )


def test_without_a_word_it_prints_its_help(plugin: Plugin) -> None:
    bare = plugin()
    assert (bare.code, bare.err) == (0, "")
    assert bare.out.startswith("usage: kubectl nodetopo ")
    assert bare == plugin("--help")


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("gpu-99", "health"), "error: no agent runs on node 'gpu-99' — see where it runs: "),
        (("gpu-17", "run"), "error: 'run' is no command for a node — commands are: topo, "),
        (("gpu-17",), "error: no command is named — commands are: topo, "),
        (("--server=x", "n", "health"), "error: unknown argument: '--server' — see "),
        (("gpu-17", "admit", "--manifest", "gone.yaml"), "error: gone.yaml: No such file"),
        (("gpu-17", "capture", "--raw", "-o", "d"), "error: --raw writes a directory — "),
        (("gpu-17", "nccl", "check", "gone.log"), "error: gone.log: No such file"),
        (("gpu-17", "nccl", "check", "x", "--save", "t"), "error: --save writes a file in the pod"),
        (("gpu-17", "nccl", "check"), "error: the following arguments are required: FILE — "),
    ],
)
def test_what_cannot_be_done_is_one_line(
    plugin: Plugin, words: tuple[str, ...], error: str
) -> None:
    done = plugin(*words)
    assert done.err.startswith(error), done.err
    assert (done.err.count("\n"), done.argv) == (1, [])
    assert done.code in (2, 3)


def test_without_kubectl_the_cure_is_to_install_it(plugin: Plugin) -> None:
    done = plugin("gpu-17", "health", path="/nonexistent")
    cause, cure = done.err.split(" — ")
    assert cause == "error: cannot run kubectl: No such file or directory"
    assert cure == "install kubectl, or add it to PATH\n"
    assert done.code == 3


def test_a_command_about_the_cluster_runs_on_this_machine(plugin: Plugin) -> None:
    done = plugin("explain", "NVL-001", "-o", "short")
    assert (done.code, done.argv) == (0, [])
    assert done.out.strip()


def test_a_claim_is_explained_on_this_machine_with_the_caller_s_rights(plugin: Plugin) -> None:
    done = plugin("explain-claim", "job")
    assert (done.code, done.argv) == (2, [])
    assert done.err.startswith("error: no ResourceClaim default/job in the cluster")


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        (("gpu",), ["gpu-17", "gpu-18", ":4"]),
        (("doc",), ["doctor", ":4"]),
        (("gpu-17", "heal"), ["health", ":4"]),
        (("gpu-17", "topo", "ma"), ["matrix", ":4"]),
        (("gpu-17", "labels", "--machine", "dgx-1"), ["dgx-1v", ":4"]),
        (("gpu-17", "admit", "--manifest", ""), [":0"]),
    ],
)
def test_kubectl_completes_nodes_commands_and_flags(
    plugin: Plugin, typed: tuple[str, ...], offered: list[str]
) -> None:
    assert plugin(*typed, entry="complete").out.split() == offered
