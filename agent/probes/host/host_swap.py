"""Swap areas (`/proc/swaps`)."""

import re

from agent.model.host import SwapArea
from agent.probes.sysfs.files import Files

_SWAPS = "swaps"
_LINE = re.compile(r"(\S{1,4096})\s+\S+\s+([0-9]{1,19})\s+([0-9]{1,19})\s+-?[0-9]+")
"""``/swap.img file 8388604 0 -2``: name, type, size and use in KiB, priority
(kernel mm/swapfile.c, swap_show)."""

_MAX_AREAS = 32
"""MAX_SWAPFILES of the kernel (include/linux/swap.h)."""


def swap_areas(files: Files) -> tuple[SwapArea, ...] | None:
    """Return the areas in use; none in a kernel that has swap and uses none."""
    text = files.text(_SWAPS)
    if text is None:
        return None
    lines = text.splitlines()[1 : _MAX_AREAS + 1]
    found = [_LINE.fullmatch(line.strip()) for line in lines]
    if not all(found):
        files.report(_SWAPS, f"not a swap area: {lines[found.index(None)][:40]!r}")
        return None
    return tuple(
        SwapArea(name=match[1], size=int(match[2]) << 10, used=int(match[3]) << 10)
        for match in found
        if match
    )
