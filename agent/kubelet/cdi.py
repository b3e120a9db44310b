"""Names of devices in the Container Device Interface (CNCF CDI, SPEC.md, version 0.8)."""

import re

from agent.errors import InputError

KIND = "nvidia.com/gpu"
"""What ``nvidia-ctk cdi generate`` calls NVIDIA's GPUs unless told otherwise."""

_KIND = re.compile(r"[A-Za-z](?:[\w.-]*[A-Za-z0-9])?/[A-Za-z](?:[\w-]*[A-Za-z0-9])?", re.ASCII)


def device_name(kind: str, device: str) -> str:
    """Return the fully qualified name of *device*, ``vendor/class=device``."""
    return f"{kind}={device}"


def checked_kind(kind: str) -> str:
    """Return *kind* if it is ``vendor/class`` as the specification spells it.

    Raises:
        InputError: it is not.
    """
    if _KIND.fullmatch(kind) is None:
        raise InputError(f"not a CDI kind: {kind!r}", f"write vendor/class, such as {KIND}")
    return kind
