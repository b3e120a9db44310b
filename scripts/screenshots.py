"""Renew the pictures of the status page in the documentation: ``python -m scripts.screenshots``.

A daemon on a simulated machine serves the page, and headless Chromium takes the pictures.
"""

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import urllib3

from tests.lab.browser import chromium

FOLDER = Path(__file__).parents[1] / "docs" / "operate"

MACHINE = "dgx-h100"

PICTURES: Mapping[str, tuple[int, int, bool]] = {
    "status-page.png": (1280, 1100, False),
    "status-page-phone.png": (390, 1000, True),
}
"""File → width and height in CSS pixels, and whether the color scheme is dark."""

LIMIT_S = 120
"""For the first scan, the list of pods and the audit."""


@contextmanager
def daemon() -> Iterator[str]:
    """Run a simulated daemon; yield the URL of its page, once the page has all sections."""
    command = [
        *(sys.executable, "-m", "nodetopo", "run", f"--machine={MACHINE}", "--or-simulate"),
        *("--node-name=gpu-node-1", "--metrics-address=127.0.0.1:0", "--log-format=json"),
    ]
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stderr is not None
        events = (json.loads(line) for line in process.stderr if line.startswith("{"))
        url = next(it["url"] for it in events if it["event"] == "metrics served")
        page = url.removesuffix("metrics")
        end = time.monotonic() + LIMIT_S
        while not _is_complete(_status(page)):
            if time.monotonic() > end:
                raise TimeoutError(f"the page is incomplete after {LIMIT_S} s")
            time.sleep(0.5)
        yield page
    finally:
        process.terminate()
        process.communicate(timeout=LIMIT_S)


def _status(page: str) -> Any:
    return urllib3.request("GET", f"{page}status.json", timeout=LIMIT_S).json()


def _is_complete(status: Any) -> bool:
    return bool(status["resources"] and status["allocations"] and status["labels"]) and {
        row["report"] for row in status["reports"]
    } >= {"health", "audit"}


if __name__ == "__main__":
    with daemon() as url, chromium() as browser:
        for name, (width, height, dark) in PICTURES.items():
            seen = browser.look(url, width=width, dark=dark, most=height)
            (FOLDER / name).write_bytes(seen.png)
