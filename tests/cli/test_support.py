"""``support``: one archive that every reader takes, without what nobody else should see."""

import json
import stat
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from msgspec.structs import replace

from nodetopo.formats.support_archive import unpack
from nodetopo.machines.bundled import machine
from nodetopo.model.codec import decode, encode
from nodetopo.model.pod import Container, Pod
from tests.cli.conftest import Cli
from tests.cli.outcome import READERS, slug

TOKEN = "eyJhbGciOiJSUzI1NiIsImtpZCI6IngifQ.eyJpc3MiOiJrdWJlcm5ldGVzIn0.c2lnbmF0dXJl"
UUID = "7b0e2f2c-51c7-4a0e-9d7b-0a5f2c9d1e44"
PLANTED = {
    "token": TOKEN,
    "password": "hunter2-correct-horse",
    "cloud key": "AKIAIOSFODNN7EXAMPLE",
    "container id": "3f4e8a" * 10 + "9b1c",
    "host": "gpu-17.corp.example",
    "API host": "api.prod.corp.example",
    "address": "10.20.30.40",
    "pod": "llama-pretrain-0",
    "pod that is gone": "secret-project-7",
    "namespace": "team-moonshot",
    "pod uid": UUID,
    "person": "/home/alice",
    "config path": "/etc/acme/nodetopo.yaml",
}
LOG = [
    json.dumps(
        {
            "event": "pod aligned",
            "level": "info",
            "pod": "team-moonshot/llama-pretrain-0",
            "uid": UUID,
            "node": "gpu-17.corp.example",
        }
    ),
    json.dumps({"event": "rejected", "object": "team-moonshot/secret-project-7", "level": "info"}),
    json.dumps({"event": "api", "problem": "GET https://api.prod.corp.example:6443/api: timeout"}),
    json.dumps({"event": "x", "error": f"Authorization: Bearer {TOKEN}", "took_ms": 12}),
    f"Traceback: password=hunter2-correct-horse of 10.20.30.40, key {PLANTED['cloud key']}",
    f"llama-pretrain-0 in team-moonshot, /home/alice/.kube/config, {PLANTED['container id']}",
]
METRICS = (
    'nodetopo_node_info{node="gpu-17.corp.example",driver="570.86.10"} 1\n'
    'nodetopo_alignment{namespace="team-moonshot",pod="secret-project-7"} 1\n'
)


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """Return a snapshot file of a node with a pod."""
    pod = Pod(
        namespace="team-moonshot",
        name="llama-pretrain-0",
        uid=UUID,
        containers=(Container(name="trainer"),),
    )
    path = tmp_path / "node.json"
    snapshot = replace(machine("dgx-h100"), node="gpu-17.corp.example", pods=(pod,))
    path.write_text(encode(snapshot), "utf-8")
    return path


@pytest.fixture
def archive(cli: Cli, node: Path, tmp_path: Path) -> Path:
    """Return the archive of that node, with a log."""
    path, log = tmp_path / "support.tar.gz", tmp_path / "log"
    log.write_text("\n".join(LOG) + "\n", "utf-8")
    outcome = cli("support", "--snapshot", str(node), "--log", str(log), "-o", str(path))
    assert outcome.code == 0, outcome.err
    return path


def test_every_reader_answers_from_the_archive_as_from_its_snapshot(
    cli: Cli, archive: Path, tmp_path: Path
) -> None:
    plain = tmp_path / "plain.json"
    plain.write_bytes(unpack(archive.read_bytes())["snapshot.json"])
    for command in READERS:
        expected = cli(*command, "-o", "json", "--snapshot", str(plain))
        found = cli(*command, "-o", "json", "--snapshot", str(archive))
        assert (slug(command), found) == (slug(command), expected)
        assert expected.out


@pytest.mark.parametrize("what", sorted(PLANTED))
def test_what_was_planted_is_nowhere_in_the_archive(archive: Path, what: str) -> None:
    files = unpack(archive.read_bytes())
    found = [name for name, content in files.items() if PLANTED[what].encode() in content]
    assert found == []
    original = encode(machine("dgx-h100"))
    for gpu in decode(original).snapshot.gpus:
        assert not [name for name, text in files.items() if (gpu.uuid or "?").encode() in text]


def test_a_pod_has_one_substitute_in_all_files(archive: Path) -> None:
    files = unpack(archive.read_bytes())
    (pod,) = decode(files["snapshot.json"].decode()).snapshot.pods or ()
    first = json.loads(files["log.txt"].decode().splitlines()[0])
    assert first["pod"].endswith(f"/{pod.name}")
    assert first["uid"] == pod.uid
    assert first["event"] == "pod aligned"


def test_the_manifest_says_what_was_redacted_and_what_is_missing(archive: Path) -> None:
    manifest = json.loads(unpack(archive.read_bytes())["manifest.json"])
    assert "8 GPU UUIDs replaced" in manifest["redacted"]
    assert "1 pod name replaced" not in manifest["redacted"], "the log names a second pod"
    assert any(text.endswith("credentials left out") for text in manifest["redacted"])
    lacking = ("metrics.txt", "readyz.txt", "settings.json")
    assert manifest["missing"] == dict.fromkeys(lacking, "the source is no live node")


def test_the_verdicts_are_those_of_the_commands(cli: Cli, archive: Path) -> None:
    files = unpack(archive.read_bytes())
    for command in ("health", "audit"):
        printed = json.loads(cli(command, "-o", "json", "--snapshot", str(archive)).out)
        assert json.loads(files[f"{command}.json"])["results"] == printed["results"]


def test_versions_are_of_the_program_and_of_the_node(archive: Path) -> None:
    versions = json.loads(unpack(archive.read_bytes())["versions.json"])
    assert versions["driver"] == machine("dgx-h100").driver_version
    assert versions["libraries"]["grpcio"]


def test_the_archive_is_private_replaces_an_old_one_and_is_the_same_each_time(
    cli: Cli, node: Path, tmp_path: Path
) -> None:
    path = tmp_path / "a.tar.gz"
    path.write_text("old", "utf-8")
    assert cli("support", "--snapshot", str(node), "-o", str(path)).code == 0
    first = path.read_bytes()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert cli("support", "--snapshot", str(node), "-o", str(path)).code == 0
    assert path.read_bytes() == first
    assert [entry.name for entry in tmp_path.iterdir() if "a.tar" in entry.name] == ["a.tar.gz"]


def test_an_archive_that_was_cut_is_one_clear_line(cli: Cli, archive: Path) -> None:
    archive.write_bytes(archive.read_bytes()[:-200])
    outcome = cli("health", "--snapshot", str(archive))
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert outcome.err.startswith(f"error: {archive}: not a gzip file"[:60])


@pytest.fixture
def server() -> Iterator[str]:
    """Serve :data:`METRICS`, and yield the address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(METRICS.encode() if self.path == "/metrics" else b"ok\n")

        def log_message(self, *_args: object) -> None:
            """Print nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as served:
        thread = threading.Thread(target=served.serve_forever, daemon=True)
        thread.start()
        yield f"127.0.0.1:{served.server_address[1]}"
        served.shutdown()
        thread.join(10)


def test_of_a_live_node_it_takes_log_settings_and_metrics_of_the_daemon(
    cli: Cli, tmp_path: Path, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    state = tmp_path / "state"
    state.mkdir()
    (state / "log.1").write_text(f"{LOG[1]}\n", "utf-8")
    (state / "log").write_text(f"{LOG[2]}\n", "utf-8")
    given = {
        "node-name": {"value": "gpu-17.corp.example", "origin": "flag --node-name"},
        "host-root": {"value": "/", "origin": "default"},
        "kubeconfig": {"value": "/home/alice/.kube/config", "origin": "flag --kubeconfig"},
        "label-prefix": {"value": "x/", "origin": "file /etc/acme/nodetopo.yaml"},
    }
    (state / "settings.json").write_text(json.dumps(given), "utf-8")
    path = tmp_path / "live.tar.gz"
    outcome = cli(
        "support",
        f"--output={path}",
        f"--health-file={state / 'health.json'}",
        f"--metrics-address={server}",
        f"--nvml-library={tmp_path / 'libnvidia-ml.so.1'}",
        *(f"--{name}-root={tmp_path / 'empty'}" for name in ("sysfs", "procfs", "host")),
        "--node-name=gpu-17.corp.example",
    )
    assert outcome.code == 3, "NVML is missing"
    files = {name: text.decode() for name, text in unpack(path.read_bytes()).items()}
    assert files["readyz.txt"] == "ok\n"
    assert 'nodetopo_node_info{node="node",driver="570.86.10"} 1\n' in files["metrics.txt"]
    assert [json.loads(line)["event"] for line in files["log.txt"].splitlines()] == [
        "rejected",
        "api",
    ]
    settings = json.loads(files["settings.json"])
    assert settings["of"] == "the daemon, when it started"
    assert settings["settings"] == {
        "node-name": {"value": "node", "origin": "flag --node-name"},
        "host-root": {"value": "/", "origin": "default"},
        "kubeconfig": {"value": "…", "origin": "flag --kubeconfig"},
        "label-prefix": {"value": "x/", "origin": "file"},
    }
    for what, text in PLANTED.items():
        assert [name for name, content in files.items() if text in content] == [], what
