"""When HCAs are watched: with the health of GPUs; while none is offered, nothing is read."""

from agent.kernel.component import Kernel, Start

START = Start.AT_ONCE


def is_wanted(_kernel: Kernel) -> bool:
    """Return that it is: settings that offer HCAs may come while the daemon runs."""
    return True
