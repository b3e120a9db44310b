"""The outputs on the page of symptoms: each block that begins with ``$ nodetopo``."""

import contextlib
import re
import shlex
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.cli.outcome import run

PAGE = Path(__file__).parents[2] / "docs" / "operate" / "troubleshoot.md"

_BLOCK = re.compile(r"^```\n\$ nodetopo (?P<words>[^\n]*)\n.*?^```$", re.MULTILINE | re.DOTALL)
_POD = re.compile(r"```yaml\n(.*?)```", re.DOTALL)
"""The first manifest of the page is the ``pod.yaml`` of its commands."""


def made() -> Mapping[Path, str]:
    """Return the page with the outputs of its commands renewed; its text stays."""
    text = PAGE.read_text("utf-8")
    manifest = _POD.findall(text)[0]
    with tempfile.TemporaryDirectory() as scratch, contextlib.chdir(scratch):
        Path("pod.yaml").write_text(manifest, "utf-8")
        return {PAGE: _BLOCK.sub(_renewed, text)}


def owned() -> Iterable[Path]:
    """Return the page."""
    return (PAGE,)


def _renewed(block: re.Match[str]) -> str:
    words = block["words"]
    return f"```\n$ nodetopo {words}\n{run(*shlex.split(words)).out}```"
