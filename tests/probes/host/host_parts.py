"""Trees of a test's own host, for the readers of one part of its settings."""

from collections.abc import Callable
from pathlib import Path

from nodetopo.probes.sysfs.files import Files

HostTree = Callable[[str], Path]


def files_of(root: Path) -> Files:
    """Return *root* as readers of the host's settings see it."""
    return Files("host", root)
