"""Lists of devices on the command line: names by comma, and ranges such as ``0-3``."""

import re
from collections.abc import Iterable, Iterator

from nodetopo.errors import InputError

MOST_IN_RANGE = 1024
"""Devices in one range; no node has as many GPUs, and HCAs are read up to so many."""

_RANGE = re.compile(r"((?:[a-z_]\w*?)?)([0-9]{1,6})-(\1)?([0-9]{1,6})", re.IGNORECASE | re.ASCII)
"""``0-3``, ``GPU0-GPU3``, ``GPU0-3`` or ``mlx5_0-mlx5_3``. UUIDs and PCI addresses do not match."""


def device_names(arguments: Iterable[str]) -> Iterator[str]:
    """Yield the names in *arguments*, which are lists by comma, with ranges written out.

    Raises:
        InputError: a range runs backwards, or is longer than any node's devices.
    """
    for text in (text.strip() for argument in arguments for text in argument.split(",")):
        if not text:
            continue
        match = _RANGE.fullmatch(text)
        if match is None:
            yield text
            continue
        stem, first, last = match[1], int(match[2]), int(match[4])
        if last < first:
            raise InputError(f"the range {text} runs backwards", f"write {stem}{last}-{first}")
        if last - first >= MOST_IN_RANGE:
            raise InputError(f"the range {text} is too long", "name devices that the node has")
        for number in range(first, last + 1):
            yield f"{stem}{number}"
