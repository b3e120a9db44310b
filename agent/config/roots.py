"""Where settings say that the node's trees are."""

from agent.config.settings import Settings
from agent.probes.sysfs.host import Roots


def roots(settings: Settings) -> Roots:
    """Return the mounts of sysfs, procfs and the host's file system."""
    return Roots(sysfs=settings.sysfs_root, procfs=settings.procfs_root, host=settings.host_root)
