"""Look for known vulnerabilities of a lock: ``python -m scripts.supply.advisories LOCK...``.

Exits with 0 if none is known, with 1 if there is one, and with 3 if it is unknown for a package.
pip-audit asks the advisory database of the Python Package Index. It passes where that does not know
a package, as a private mirror of the index does not; here this is UNKNOWN.
"""

import json
import subprocess
import sys
from collections.abc import Iterable, Sequence
from typing import Any

PASS, FAIL, UNKNOWN = 0, 1, 3
"""Exit statuses, as those of ``nodetopo``."""

_TIMEOUT_S = 300
"""pip-audit asks once for each package, some 120 in the larger lock."""
_CURE = "check again where the Python Package Index answers"


def main(locks: Sequence[str]) -> int:
    """Print a line for each of *locks* and what is known; return the exit status."""
    verdicts = [_judge(lock) for lock in locks]
    return FAIL if FAIL in verdicts else max(verdicts, default=UNKNOWN)


def _judge(lock: str) -> int:
    # The hashes are in the lock, so that pip need not resolve anything.
    command = [sys.executable, "-m", "pip_audit", "--require-hashes", "--disable-pip"]
    command += ["--progress-spinner", "off", "--format", "json", "-r", lock]
    try:
        ended = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S
        )
        packages = json.loads(ended.stdout)["dependencies"]
    except subprocess.TimeoutExpired:
        return _unknown(lock, f"no answer within {_TIMEOUT_S} s")
    except ValueError:
        return _unknown(lock, (ended.stderr.strip().splitlines() or ["no answer"])[-1])
    return report(lock, packages)


def report(lock: str, packages: Iterable[dict[str, Any]]) -> int:
    """Print what pip-audit found in *lock*; return the exit status.

    Args:
        lock: its name.
        packages: ``dependencies`` of pip-audit's JSON: each with ``vulns``, or ``skip_reason``.
    """
    packages = list(packages)
    known = [(package, entry) for package in packages for entry in package.get("vulns", ())]
    unasked = [package["name"] for package in packages if "vulns" not in package]
    for package, entry in known:
        fixed = ", ".join(entry["fix_versions"]) or "no version yet"
        at = f"{package['name']} {package['version']}"
        print(f"FAIL {lock}: {at} has {entry['id']} — fixed in {fixed}")
    if unasked or not packages:
        cause = f"no answer for {len(unasked)} of {len(packages)} packages"
        _unknown(lock, cause + (f", such as {unasked[0]}" if unasked else ""))
    elif not known:
        print(f"PASS {lock}: no known vulnerability in {len(packages)} packages")
    if known:
        return FAIL
    return UNKNOWN if unasked or not packages else PASS


def _unknown(lock: str, cause: str) -> int:
    print(f"UNKNOWN {lock}: {cause} — {_CURE}")
    return UNKNOWN


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
