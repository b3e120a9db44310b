"""Kubernetes releases as numbers that can be compared."""

import re
from typing import TypeAlias

_VERSION = re.compile(r"v?([0-9]{1,4})\.([0-9]{1,4})(?:[.+-].{0,200})?")
_PATCH = re.compile(r"v?[0-9]{1,4}\.[0-9]{1,4}\.([0-9]{1,6})")

Release: TypeAlias = tuple[int, int]
"""Major and minor, which is what behaviour depends on: ``(1, 36)``."""


def release(version: str | None) -> Release | None:
    """Return the release of a version such as ``v1.36.3`` or ``v1.33.5-gke.1``.

    ``None`` where *version* is not known or is no such text.
    """
    found = _VERSION.fullmatch(version or "")
    return None if found is None else (int(found[1]), int(found[2]))


def patch(version: str | None) -> int | None:
    """Return the patch number of a version, 3 of ``v1.36.3``; ``None`` where it has none."""
    found = _PATCH.match(version or "")
    return None if found is None else int(found[1])
