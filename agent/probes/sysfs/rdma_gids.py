"""The GID table of one port: the addresses that it answers to.

Files: kernel Documentation/ABI/stable/sysfs-class-infiniband, ``gids`` and ``gid_attrs``.
"""

import re

from agent.model.hca import Gid
from agent.probes.sysfs.rdma_files import RdmaFiles

_INDEX = re.compile(r"[0-9]{1,5}")
_GID = re.compile(r"[0-9a-f]{4}(:[0-9a-f]{4}){7}")
_UNSET = (":".join(["0000"] * 8), ":".join(["fe80"] + ["0000"] * 7))
"""No address, or the link-local prefix without an interface identifier."""

_TYPES = ("IB/RoCE v1", "RoCE v2")
"""All that the kernel prints (drivers/infiniband/core/cache.c, gid_type_str)."""


def read_gids(files: RdmaFiles, port: str) -> tuple[Gid, ...]:
    """Return the entries that are set of the port whose directory is *port*, by index."""
    names = files.names(f"{port}/gids") or ()
    indexes = sorted(int(name) for name in names if _INDEX.fullmatch(name))
    found = (_gid(files, port, index) for index in indexes)
    return tuple(gid for gid in found if gid is not None)


def _gid(files: RdmaFiles, port: str, index: int) -> Gid | None:
    place = f"{port}/gids/{index}"
    text = files.offered(place)
    if text is None or text in _UNSET:
        return None
    if _GID.fullmatch(text) is None:
        files.report(place, f"not a GID: {text[:40]!r}")
        return None
    return Gid(
        index=index,
        gid=text,
        type=_type(files, f"{port}/gid_attrs/types/{index}"),
        netdev=files.interface(f"{port}/gid_attrs/ndevs/{index}"),
    )


def _type(files: RdmaFiles, path: str) -> str | None:
    text = files.offered(path)
    if text is None or text in _TYPES:
        return text
    files.report(path, f"not a GID type that we know: {text[:40]!r}")
    return None
