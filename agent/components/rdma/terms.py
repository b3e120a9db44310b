"""When HCAs are watched: with the health of GPUs; while none is offered, nothing is read."""

from agent.components.rdma.settings import HcaSettings
from agent.daemon.plugin_plan import load_pools
from agent.kernel.component import Kernel, Start

START = Start.AT_ONCE


def is_wanted(_kernel: Kernel) -> bool:
    """Return that it is: settings that offer HCAs may come while the daemon runs."""
    return True


def check(settings: HcaSettings) -> None:
    """Read the file of the pools.

    Raises:
        InputError: it is invalid, or cannot be read.
    """
    load_pools(settings)


def resources(settings: HcaSettings) -> tuple[str, ...]:
    """Return the resources of the pools that *settings* offer."""
    config = load_pools(settings)
    return () if config is None else tuple(pool.resource for pool in config.pools)
