"""Thousands of clients that never end their requests keep the daemon from nothing."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from nodetopo.deviceplugin.fake_kubelet import FakeKubelet
from tests.generous_deadlines import use_generous_deadlines
from tests.kernel.http.scraped import fetch
from tests.kernel.test_app import COMMAND, TIMEOUT_S, environment

__all__ = ["use_generous_deadlines"]

CLIENTS = 3000
DESCRIPTORS = 1024
"""Of the daemon: a usual limit of containers, which it cannot raise here."""

ATTACK = """
import resource, select, socket, sys
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
count, address, made = int(sys.argv[1]), ("127.0.0.1", int(sys.argv[2])), 0
held = []
while not select.select([sys.stdin], [], [], 0.1)[0]:
    for client in tuple(held):
        try:
            client.sendall(b"a")
        except OSError:
            held.remove(client)
            client.close()
    for _ in range(min(500, count - len(held))):
        client = socket.socket()
        client.settimeout(60)
        client.connect(address)
        client.sendall(b"GET /metrics HTTP/1.1\\r\\nX: ")
        held.append(client)
        made += 1
    if made >= count:
        print(made, flush=True)
"""


@contextmanager
def attacked(port: str) -> Iterator[None]:
    """Attack *port* of 127.0.0.1 while the block runs; it begins once all clients have come."""
    process = subprocess.Popen(
        [sys.executable, "-c", ATTACK, str(CLIENTS), port],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert int(process.stdout.readline()) >= CLIENTS
        yield
        assert process.poll() is None
    finally:
        process.kill()
        process.communicate(timeout=TIMEOUT_S)


def test_slow_clients_keep_no_probe_no_allocation_and_no_registration_waiting(
    tmp_path: Path,
) -> None:
    flags = ("--machine=dgx-1v", f"--device-plugin-dir={tmp_path}", "--log-format=json")
    limited = ("sh", "-c", f'ulimit -n {DESCRIPTORS}; exec "$@"', "sh", *COMMAND, *flags)
    daemon = subprocess.Popen(
        limited, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment()
    )
    try:
        with FakeKubelet(tmp_path) as kubelet:
            gpus = [device.id for device in kubelet.wait_registered(TIMEOUT_S).devices]
            assert daemon.stderr is not None
            lines = (json.loads(line) for line in daemon.stderr)
            url = next(line["url"] for line in lines if line["event"] == "metrics served")
            with attacked(url.split("/")[2].rpartition(":")[2]):
                for gpu in gpus:
                    kubelet.allocate([gpu])
                kubelet.stop()
                with FakeKubelet(tmp_path) as after:
                    assert len(after.wait_registered(TIMEOUT_S).devices) == len(gpus)
                    after.allocate(gpus[:2])
                    assert fetch(url.replace("/metrics", "/healthz")) == (200, "ok\n")
                    assert fetch(url.replace("/metrics", "/readyz"))[0] in (200, 503)
                    found = _values(fetch(url)[1])
            assert found["nodetopo_http_connections"] <= 32
            assert found["process_open_fds"] < DESCRIPTORS / 4
    finally:
        daemon.kill()
        daemon.communicate(timeout=TIMEOUT_S)


def _values(text: str) -> dict[str, float]:
    families = text_string_to_metric_families(text)
    return {sample.name: sample.value for family in families for sample in family.samples}
