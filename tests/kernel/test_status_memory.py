"""Metrics and probes are answered from memory: files that a whole daemon opens while it answers."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nodetopo.deviceplugin.fake_kubelet import FakeKubelet
from tests.fake_nvml.build import library
from tests.fake_nvml.fake import FakeNvml
from tests.generous_deadlines import use_generous_deadlines
from tests.kernel.http.scraped import fetch
from tests.kernel.test_app_health import eventually
from tests.lab.go_program import user_cache
from tests.test_footprint import EVERYTHING, MACHINE, environment

__all__ = ["use_generous_deadlines"]

TIMEOUT_S = 120.0
OPENMETRICS = "application/openmetrics-text; version=1.0.0"
IN_MEMORY = {"_io.BytesIO", "_io.StringIO"}
"""What a handler may call methods of, beside those of the client's socket."""

PROCESS_FILES = {
    "open '/proc/self/stat'",
    "open '/proc/self/limits'",
    "os.listdir '/proc/self/fd'",
}
"""Where a scrape reads ``process_*``."""

READING = {"fspath", "open", "listdir", "_io.BufferedReader"}
"""Functions and the type by which it reads them; the audit shows the path of each call."""

OBSERVED = """
import os, sys, threading
from pathlib import Path

written = os.open(sys.argv.pop(1), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
service_account_directory = Path(sys.argv.pop(1))
answering = threading.local()
MODULES = {"posix", "_io", "_socket", "_ssl", "_posixsubprocess", "fcntl", "select", "_ctypes"}

def write(path, what):
    os.write(written, f"{path} {what}\\n".encode())

def audited(event, arguments):
    path = getattr(answering, "path", None)
    if path and event.split(".")[0] in {"open", "os", "socket", "subprocess", "import", "ctypes"}:
        answering.path = None
        write(path, f"{event} {arguments[0]!r}")
        answering.path = path

def profiled(frame, event, function):
    if event == "c_call" and (path := getattr(answering, "path", None)):
        of = type(function.__self__)
        name = f"{of.__module__}.{of.__name__}"
        module = function.__module__ if name == "builtins.module" else of.__module__
        if module in MODULES:
            answering.path = None
            write(path, f"call {name} {function.__name__}")
            answering.path = path

from nodetopo.probes.host import service_account
service_account.DIRECTORY = service_account_directory
from nodetopo.kernel.http.server import _Handler

def observed(handler):
    answering.path = handler.path
    sys.setprofile(profiled)
    try:
        if handler.path == "/touch":
            os.stat("/")
            open("/dev/null").close()
        answer(handler)
    finally:
        sys.setprofile(None)
        answering.path = None

answer, _Handler.do_GET = _Handler.do_GET, observed
sys.addaudithook(audited)
from nodetopo.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


@contextmanager
def observed_daemon(directory: Path) -> Iterator[tuple[str, Path]]:
    """Run a daemon with everything on; yield where its metrics are, and what it opened for them."""
    nvml = FakeNvml(directory / "nvml", (MACHINE / "nvml.txt").read_text("utf-8"))
    account, sockets = directory / "account", directory / "s"
    account.mkdir()
    (account / "token").write_text("t")
    (account / "ca.crt").write_text("none")
    sockets.mkdir()
    (directory / "checks.yaml").write_text("severities: {KUB-004: info}")
    opened = directory / "opened"
    command = [
        *(sys.executable, "-c", OBSERVED, str(opened), str(account), "run", *EVERYTHING),
        *("--node-name=n", f"--device-plugin-dir={sockets}", f"--host-root={directory}"),
        f"--nvml-library={library(user_cache())}",
        f"--checks-file={directory / 'checks.yaml'}",
        f"--health-file={directory / 'health.json'}",
        f"--nccl-hints-dir={directory / 'nccl'}",
    ]
    pod = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": "1"}
    variables = environment(NODETOPO_FAKE_NVML=str(nvml.directory), **pod)
    lines: list[str] = []

    def url() -> str | None:
        told = (json.loads(line) for line in tuple(lines) if line.startswith("{"))
        return next((line["url"] for line in told if line["event"] == "metrics served"), None)

    with FakeKubelet(sockets):
        process = subprocess.Popen(
            command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **variables},
        )
        assert process.stderr is not None
        reader = threading.Thread(target=lines.extend, args=(process.stderr,), daemon=True)
        reader.start()
        try:
            yield str(eventually(url)), opened
        finally:
            process.terminate()
            try:
                process.wait(TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(TIMEOUT_S)
            reader.join(TIMEOUT_S)
            process.stderr.close()


@pytest.mark.usefixtures("use_generous_deadlines")
def test_a_probe_opens_nothing_and_a_scrape_only_the_files_of_its_process(tmp_path: Path) -> None:
    with observed_daemon(tmp_path) as (url, opened):
        for accept in ("*/*", OPENMETRICS):  # also the first scrapes
            assert fetch(url, accept)[0] == 200
        for path in ("/healthz", "/readyz", "/touch"):
            fetch(url.replace("/metrics", path))
        # Once the loops of the checks and of the audit have results.
        reports = ('nodetopo_checks{report="health"', 'nodetopo_checks{report="audit"')
        page = eventually(
            lambda: text if all(one in (text := fetch(url)[1]) for one in reports) else ""
        )
        for accept in ("*/*", OPENMETRICS):
            fetch(url, accept)
        fetch(url.replace("/metrics", "/readyz"))
        seen = opened.read_text("utf-8").splitlines()
    touched = [line for line in seen if line.startswith("/touch")]
    assert any(line.endswith(" stat") for line in touched)
    assert any("open '/dev/null'" in line for line in touched)
    lines = {tuple(line.split(" ", 1)) for line in seen if not line.startswith("/touch")}
    audited = {(path, text) for path, text in lines if not text.startswith("call ")}
    assert audited == {("/metrics", text) for text in PROCESS_FILES}
    calls = [(path, *text.split()[1:]) for path, text in lines if text.startswith("call ")]
    others = [words for words in calls if words[1] not in IN_MEMORY]
    assert [words for words in others if words[0] != "/metrics" or not READING & {*words}] == []
    for name in ("resident_memory_bytes", "cpu_seconds_total", "open_fds", "start_time_seconds"):
        assert f"\nprocess_{name} " in page
