"""Device nodes of the host that GPUs and RDMA need beside the GPUs' own."""

import re

from agent.probes.sysfs.files import Files

_DEV = "dev"
_CHAR = f"{_DEV}/char"
_GPU = re.compile(r"nvidia([0-9]{1,3})")
_MAJOR = 195
"""Of the driver's own nodes; a GPU's minor is its number (kernel admin-guide/devices.txt)."""

_CONTROL_MINOR = 255
"""Of ``/dev/nvidiactl``."""

_GDRCOPY = "gdrdrv"


def char_devices(files: Files) -> bool | None:
    """Return whether each GPU's node and the driver's have their link; ``None`` without a GPU."""
    gpus = [match[1] for match in map(_GPU.fullmatch, _device_names(files)) if match]
    if not gpus:
        return None
    links = frozenset(files.names(_CHAR) or ())
    return {f"{_MAJOR}:{minor}" for minor in (*gpus, _CONTROL_MINOR)} <= links


def infiniband_devices(files: Files) -> tuple[str, ...] | None:
    """Return the names of RDMA device nodes; ``None`` where no device can be seen."""
    if not _device_names(files):
        return None
    return files.names(f"{_DEV}/infiniband") or ()


def gdrcopy(sysfs: Files, host: Files) -> bool | None:
    """Return whether GDRCopy's module and its node are there; ``None`` if one cannot be seen."""
    modules, devices = sysfs.names("module"), _device_names(host)
    return None if modules is None or not devices else _GDRCOPY in modules and _GDRCOPY in devices


def _device_names(files: Files) -> tuple[str, ...]:
    """Return the names in ``/dev``; none where it is an empty stand-in."""
    return files.names(_DEV) or ()
