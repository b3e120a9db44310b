"""What does not serve GPUs begins when they are served, or when that would take too long."""

import threading
from collections.abc import Callable

QUIET_S = 3.0
"""How long after the registration: pods that waited for GPUs ask for them then."""

MOST_S = 30.0
"""How long a registration is waited for. It may never come: another plugin has the resource, or no
kubelet runs."""

STEP_S = 0.5
"""How often there is a look at it."""


def wait_served(stopping: threading.Event, is_served: Callable[[], bool]) -> bool:
    """Wait until some time after *is_served*, not for ever; return whether *stopping* was set."""
    for _ in range(round(MOST_S / STEP_S)):
        if is_served() or stopping.wait(STEP_S):
            break
    return stopping.wait(QUIET_S)
