"""The environment that the NVML child runs in."""

import os
import sys
from pathlib import Path

_SCRUBBED = ("PYTHON", "LD_PRELOAD", "LD_AUDIT")
"""Beginnings of variables that it does not get: a preloaded library would run inside a process
that we count on, and PYTHON* could replace modules."""


def child_environment() -> dict[str, str]:
    """Return our own environment, scrubbed, with modules from where we have ours."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_SCRUBBED)}
    package_parent = str(Path(__file__).resolve().parents[2])
    own = [path for path in sys.path if Path(path).is_absolute()]
    return {**kept, "PYTHONPATH": os.pathsep.join([package_parent, *own])}
