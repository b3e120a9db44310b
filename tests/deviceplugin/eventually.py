"""Bounded waiting for what another thread does."""

from collections.abc import Callable
from time import monotonic, sleep


def eventually(claim: Callable[[], bool], timeout_s: float = 60.0) -> bool:
    """Return whether *claim* became true in time."""
    until = monotonic() + timeout_s
    while not claim():
        if monotonic() > until:
            return False
        sleep(0.005)
    return True
