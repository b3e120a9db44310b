"""The output of ``nodetopo run --once`` in docs/operate/try.md, from the answer to a pod on."""

import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "operate" / "try.md"

ARGUMENTS = (
    *("run", "--once", "--machine=dgx-h100", "--node-name=my-node", "--metrics-address=none"),
    "--health-file=none",
)

_FIRST, _LAST = "\na pod asks for GPUs\n", "\nmetrics\n"


def once() -> str:
    """Return the standard output of the daemon that runs once on a simulated machine."""
    command = [sys.executable, "-m", "nodetopo", *ARGUMENTS]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def made() -> Mapping[Path, str]:
    """Return the page with that part of the output renewed; its text stays."""
    before, first, rest = PAGE.read_text("utf-8").partition(_FIRST)
    _old, last, after = rest.partition(_LAST)
    answer = once().partition(_FIRST)[2].partition(_LAST)[0]
    return {PAGE: f"{before}{first}{answer}{last}{after}"}


def owned() -> Iterable[Path]:
    """Return the page."""
    return (PAGE,)
