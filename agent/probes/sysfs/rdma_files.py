"""The files of RDMA devices, of which drivers refuse some."""

import re
from errno import EINVAL, EOPNOTSUPP

from agent.probes.sysfs.files import Files
from agent.probes.sysfs.tree import Root

_REFUSED = (EINVAL, EOPNOTSUPP)
"""How drivers answer for what a device, or this function of it, does not have: EINVAL for
counters of restricted functions and for unset GIDs (kernel drivers/infiniband/core/sysfs.c),
EOPNOTSUPP for attributes of network interfaces (net/core/net-sysfs.c)."""

_INTERFACE = re.compile(r"[^\s/\x00-\x1f\x7f]{1,15}")
"""Length: IFNAMSIZ less the closing zero (kernel include/uapi/linux/if.h)."""


class RdmaFiles(Files):
    """One pass over RDMA devices."""

    def __init__(self, root: Root) -> None:
        super().__init__("rdma", root)

    def word(self, path: str) -> str | None:
        """Return the text of a file; ``None`` for an empty one too."""
        return self.text(path) or None

    def offered(self, path: str) -> str | None:
        """Return the text of a file; ``None`` and no issue where the driver refuses it."""
        try:
            return self._tree.content(path).decode("utf-8", "replace").strip()
        except OSError as error:
            if error.errno not in _REFUSED:
                self._failed(path, error)
            return None

    def interface(self, path: str) -> str | None:
        """Return the name of a network interface; ``None`` where the driver gives none."""
        name = self.offered(path)
        if not name:
            return None
        if _INTERFACE.fullmatch(name) is None or name in (".", ".."):
            self.report(path, f"not the name of an interface: {name[:40]!r}")
            return None
        return name
