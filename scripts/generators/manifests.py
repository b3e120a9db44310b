"""The real API server's answers to manifests with one thing changed. It needs the lab."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.probes.pods.manifest_cases import ANSWERS

_ROOT = Path(__file__).parents[2]
_TEST = "tests/lab/test_manifests_refused.py::test_the_answers_of_the_table_are_the_server_s"
RECORD = "NODETOPO_RECORD_ANSWERS"
"""Names the file that the test writes the answers to."""


def made() -> Mapping[Path, str]:
    """Return the answers, asked now.

    Raises:
        RuntimeError: the lab cannot ask.
    """
    with tempfile.TemporaryDirectory() as directory:
        record = Path(directory) / ANSWERS.name
        command = [sys.executable, "-m", "pytest", "-m", "lab", "-q", _TEST]
        environment = {**os.environ, RECORD: str(record)}
        done = subprocess.run(
            command, cwd=_ROOT, env=environment, capture_output=True, text=True, check=False
        )
        if not record.exists():
            raise RuntimeError(f"{' '.join(command)} recorded nothing:\n{done.stdout}{done.stderr}")
        return {ANSWERS: record.read_text("utf-8")}


def owned() -> Iterable[Path]:
    """Return the file of answers."""
    return (ANSWERS,)
