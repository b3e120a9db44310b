"""The character devices through which programs use an RDMA device.

Files: kernel Documentation/ABI/stable/sysfs-class-infiniband, ``infiniband_verbs`` and
``infiniband_mad``. Each port has a umad and an issm, so a device may have several.
"""

import re
from collections.abc import Mapping

from agent.probes.sysfs.rdma_files import RdmaFiles

_CLASSES = ("class/infiniband_verbs", "class/infiniband_mad")
_NUMBERED = re.compile(r"([a-z]+)([0-9]{1,9})")


def read_char_devices(files: RdmaFiles) -> Mapping[str, tuple[str, ...]]:
    """Return RDMA device → names under ``/dev/infiniband``, sorted by kind and number."""
    found: dict[str, list[tuple[str, int]]] = {}
    for folder in _CLASSES:
        for name in files.names(folder) or ():
            match = _NUMBERED.fullmatch(name)
            device = files.offered(f"{folder}/{name}/ibdev") if match else None
            if match and device:
                found.setdefault(device, []).append((match[1], int(match[2])))
    return {
        device: tuple(f"{kind}{number}" for kind, number in sorted(numbered))
        for device, numbered in found.items()
    }
