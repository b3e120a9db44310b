"""Known vulnerabilities: a package that nobody answered for is not a pass."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from scripts.supply.advisories import FAIL, PASS, UNKNOWN, main, report

SOUND: dict[str, Any] = {"name": "sound", "version": "1.0", "vulns": []}
SKIPPED: dict[str, Any] = {"name": "private", "skip_reason": "Dependency not found on PyPI"}
BROKEN: dict[str, Any] = {
    "name": "broken",
    "version": "1.0",
    "vulns": [{"id": "PYSEC-2026-1", "fix_versions": ["1.1", "2.0"], "aliases": []}],
}


@pytest.mark.parametrize(
    ("packages", "status", "line"),
    [
        ([SOUND], PASS, "PASS lock: no known vulnerability in 1 packages"),
        ([SOUND, SKIPPED], UNKNOWN, "UNKNOWN lock: no answer for 1 of 2 packages, such as private"),
        ([], UNKNOWN, "UNKNOWN lock: no answer for 0 of 0 packages"),
        (
            [BROKEN, SKIPPED],
            FAIL,
            "FAIL lock: broken 1.0 has PYSEC-2026-1 — fixed in 1.1, 2.0",
        ),
    ],
)
def test_the_status_says_what_is_known(
    capsys: pytest.CaptureFixture[str], packages: list[dict[str, Any]], status: int, line: str
) -> None:
    assert report("lock", packages) == status
    assert capsys.readouterr().out.startswith(line)


def test_without_the_service_it_is_unknown(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    lock.write_text(f"structlog==1.0 --hash=sha256:{'0' * 64}\n")
    # Nobody listens on the port "discard" (9) of this machine.
    nowhere = dict.fromkeys(("HTTPS_PROXY", "https_proxy"), "http://127.0.0.1:9")
    done = subprocess.run(
        [sys.executable, "-m", "scripts.supply.advisories", str(lock)],
        env={**os.environ, **nowhere, "NO_PROXY": "", "no_proxy": ""},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert done.returncode == UNKNOWN, done
    assert done.stdout.startswith(f"UNKNOWN {lock}: "), done


def test_without_a_lock_it_is_unknown() -> None:
    assert main([]) == UNKNOWN
