"""Prometheus and promtool of Debian's package: unpacked below the cache, not installed."""

import json
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode
from urllib.request import urlopen

from tests.lab.debian import extracted

ALERTS = Path(__file__).parents[2] / "deploy" / "helm" / "files" / "alerts.yaml"
DASHBOARD = ALERTS.with_name("dashboard.json")

START_S = 120.0
"""How long a start may take on a busy machine."""

_PROMTOOL_S = 300.0


@cache
def program(name: str) -> Path:
    """Return ``prometheus`` or ``promtool``."""
    return extracted("prometheus") / "usr" / "bin" / name


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run promtool; its status and what it printed are the caller's to judge."""
    return subprocess.run(
        [str(program("promtool")), *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_PROMTOOL_S,
        check=False,
    )


class Prometheus:
    """A running server."""

    def __init__(self, port: int, process: subprocess.Popen[bytes], log: Path) -> None:
        self._address = f"http://127.0.0.1:{port}"
        self._process = process
        self._log = log

    def get(self, path: str, **parameters: str) -> Any:
        """Return the data of an answer of the API.

        Raises:
            AssertionError: it is an error, such as a query that cannot be evaluated.
        """
        url = f"{self._address}/api/v1/{path}?{urlencode(parameters)}"
        try:
            with urlopen(url, timeout=60) as answer:
                document = json.load(answer)
        except HTTPError as error:
            with error:
                raise AssertionError(f"{parameters}: {error.read().decode()}") from None
        assert document["status"] == "success", document
        return document["data"]

    def query(self, expression: str) -> list[Mapping[str, Any]]:
        """Return the series of an instant query, each with ``metric`` and ``value``."""
        series: list[Mapping[str, Any]] = self.get("query", query=expression)["result"]
        return series

    def own_metrics(self) -> Mapping[str, float]:
        """Return the samples of Prometheus itself, by name and labels."""
        with urlopen(f"{self._address}/metrics", timeout=60) as answer:
            lines = answer.read().decode().splitlines()
        pairs = (line.rpartition(" ") for line in lines if not line.startswith("#"))
        return {name: float(value) for name, _, value in pairs}

    def text(self) -> str:
        """Return the log."""
        return self._log.read_text("utf-8")

    def is_ready(self) -> bool:
        """Return whether it answers queries.

        Raises:
            AssertionError: it has ended.
        """
        assert self._process.poll() is None, self.text()
        try:
            with urlopen(f"{self._address}/-/ready", timeout=60):
                return True
        except (URLError, OSError):
            return False


@contextmanager
def running(directory: Path, configuration: str) -> Iterator[Prometheus]:
    """Run Prometheus with *configuration*, its data in *directory*, and end it afterwards."""
    config, log = directory / "prometheus.yml", directory / "prometheus.log"
    config.write_text(configuration, "utf-8")
    port = _free_port()
    with log.open("wb") as output:
        process = subprocess.Popen(
            [
                str(program("prometheus")),
                f"--config.file={config}",
                f"--storage.tsdb.path={directory / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
                "--log.level=debug",
            ],
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        server = Prometheus(port, process, log)
        eventually(server.is_ready)
        yield server
    finally:
        process.terminate()
        try:
            process.wait(START_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(START_S)


def eventually(look: Callable[[], object], limit_s: float = START_S) -> None:
    """Wait until *look* returns something true."""
    deadline = time.monotonic() + limit_s
    while not (found := look()):
        assert time.monotonic() < deadline, f"it never came true; last seen: {found!r}"
        time.sleep(0.2)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        return port
