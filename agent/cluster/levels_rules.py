"""What schedulers accept as the levels of a topology."""

import re
from collections.abc import Sequence

from agent.errors import InputError
from agent.labels.syntax import DNS_NAME, PART

HOSTNAME = "kubernetes.io/hostname"
"""The narrowest level of all; KAI and Kueue take it nowhere else."""

MAX_LEVELS = 16
"""Of KAI's and Kueue's Topology (KAI v0.17 topology_types.go, Kueue v0.19.2 the same)."""

_KEY = re.compile(f"(?P<prefix>{DNS_NAME}/)?{PART}")
_MAX_PREFIX = 253
"""Characters of a label key's prefix (k8s.io/apimachinery validation, IsQualifiedName)."""


def check_levels(keys: Sequence[str], max_key: int) -> None:
    """Hold that *keys*, broadest first, can be the levels of a topology.

    *max_key* is how many characters a key may have.

    Raises:
        InputError: a scheduler would refuse them.
    """
    if len(keys) > MAX_LEVELS:
        raise InputError(f"{len(keys)} levels", f"schedulers take {MAX_LEVELS} at most: drop some")
    for key in keys:
        _check_key(key, max_key)
        if keys.count(key) > 1:
            raise InputError(f"level {key!r} is named twice", "name each once")
    if HOSTNAME in keys[:-1]:
        raise InputError(f"{HOSTNAME} is not the last level", "levels go from broad to narrow")


def _check_key(key: str, max_key: int) -> None:
    found = _KEY.fullmatch(key)
    if found is None or len(key) > max_key:
        cure = f"keys are PREFIX/NAME, here up to {max_key} characters"
        raise InputError(f"not a usable label key: {key!r}", cure)
    if len((found["prefix"] or "").rstrip("/")) > _MAX_PREFIX:
        raise InputError(f"prefix too long in {key!r}", f"up to {_MAX_PREFIX} characters")
