"""File descriptors: as many as this process is allowed."""

import resource
from contextlib import suppress

MOST_DESCRIPTORS = 65_536
"""The soft limit is not raised beyond this: some programs walk through all that they could have."""


def raise_descriptor_limit() -> None:
    """Raise the soft limit of descriptors to the hard one; containers often start with 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MOST_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < most:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
