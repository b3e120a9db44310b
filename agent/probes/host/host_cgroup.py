"""Which version of control groups the host uses."""

from agent.probes.sysfs.files import Files

_ROOT = "fs/cgroup"
_UNIFIED = f"{_ROOT}/cgroup.controllers"
"""Only a unified hierarchy has it in its root (kernel admin-guide/cgroup-v2.rst); where both are
mounted, as ``fs/cgroup/unified``, controllers are version 1's."""


def cgroup_version(files: Files) -> int | None:
    """Return 1 or 2; ``None`` where no hierarchy is mounted."""
    if files.content(_UNIFIED) is not None:
        return 2
    return 1 if files.names(_ROOT) else None
