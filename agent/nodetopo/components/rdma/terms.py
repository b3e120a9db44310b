"""When HCAs concern the daemon: while the settings offer any, alone or together with GPUs."""

from nodetopo.components.rdma.settings import HcaSettings, load_pools
from nodetopo.kernel.component import Kernel, Start

START = Start.AT_ONCE


def is_wanted(kernel: Kernel) -> bool:
    """Return whether the settings name a file of pools, or a resource of pairs."""
    settings = kernel.settings
    return settings.rdma_config is not None or settings.gpu_hca_resource is not None


def check(settings: HcaSettings) -> None:
    """Read the file of the pools."""
    load_pools(settings)


def resources(settings: HcaSettings) -> tuple[str, ...]:
    config = load_pools(settings)
    return () if config is None else tuple(pool.resource for pool in config.pools)
