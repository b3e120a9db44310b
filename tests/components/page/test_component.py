"""The page of a daemon: what of its components it shows, and what it loads only when asked."""

import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

TIMEOUT_S = 120

ROOT = Path(__file__).parents[3]

PROGRAM = """
import json, sys, threading
from nodetopo.kernel import app
parts = ("answer", "html", "style", "view")
ours = ("nodetopo.drawing", *(f"nodetopo.components.page.{part}" for part in parts))
loaded = lambda: sorted(name for name in sys.modules if name.startswith(ours))
real = app.Daemon._serve
def serve(self, address):
    real(self, address)
    print(json.dumps({"url": self._metrics.url, "loaded": loaded()}), flush=True)
    def tell():
        for line in sys.stdin:
            print(json.dumps({"loaded": loaded()}), flush=True)
    threading.Thread(target=tell, daemon=True).start()
app.Daemon._serve = serve
from nodetopo.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


@contextmanager
def daemon(*flags: str) -> Iterator[tuple[str, list[str], "subprocess.Popen[str]"]]:
    """Run a simulated daemon; yield its URL, what it had loaded by then, and itself."""
    command = [
        *(sys.executable, "-c", PROGRAM, "run", "--machine=l40s-pcie-4", "--node-name=gpu-1"),
        *("--metrics-address=127.0.0.1:0", "--log-format=json", *flags),
    ]
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=ROOT,
    )
    try:
        assert process.stdout is not None
        first = json.loads(process.stdout.readline())
        yield first["url"].removesuffix("/metrics"), first["loaded"], process
    finally:
        process.terminate()
        process.communicate(timeout=TIMEOUT_S)


def get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_the_first_request_loads_the_page_and_shows_the_node() -> None:
    with daemon() as (url, before, process):
        assert before == []
        assert get(f"{url}/favicon.ico")[0] == 404
        assert get(f"{url}/readyz")[0] in (200, 503)
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("\n")
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["loaded"] == before
        code, text = get(f"{url}/")
        assert code == 200
        assert "gpu-1" in text
        assert "SIMULATED machine l40s-pcie-4" in text
        found: Any = json.loads(get(f"{url}/status.json")[1])
        assert found["schema"] == "nodetopo/status/v1"
        assert len(found["gpus"]) == 4
        assert get(f"{url}/status?refresh=30")[0] == 200


def test_a_simulated_machine_has_something_to_show() -> None:
    with daemon() as (url, _, _process):
        end = time.monotonic() + TIMEOUT_S
        found: Any = {"reports": [], "allocations": []}
        while len(found["reports"]) < 2 or not found["allocations"] or not found["pods_listed_at"]:
            assert time.monotonic() < end, found
            time.sleep(0.1)
            found = json.loads(get(f"{url}/status.json")[1])
        held = [row["holders"] for row in found["gpus"]]
        assert held == [["simulated/trainer-0"], ["simulated/server-0"], [], []]
        assert {row["by"] for row in found["allocations"]} == {"nodetopo"}
        assert found["labels"]["nvidia.com/gpu.count"] == "4"
        assert found["label_outputs"] == []
        text = get(f"{url}/")[1]
        assert "neither this hardware nor a pod in the namespace simulated exists" in text
        assert "computed, not published" in text


@pytest.mark.parametrize("path", ["/", "/status", "/status.json"])
def test_a_daemon_without_the_page_has_none(path: str) -> None:
    with daemon("--no-status-page") as (url, _, _process):
        assert get(f"{url}{path}")[0] == 404
        assert get(f"{url}/metrics")[0] == 200
