"""How many drawn cases a test looks at: few in every run, many in `scripts/test --nightly`."""

import os

IS_NIGHTLY = bool(os.environ.get("NODETOPO_NIGHTLY"))


def cases(daily: int, nightly: int) -> int:
    """Return how many cases to draw: *daily*, or *nightly* where ``NODETOPO_NIGHTLY`` is set."""
    return nightly if IS_NIGHTLY else daily
