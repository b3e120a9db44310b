"""When the status page is served."""

from nodetopo.kernel.component import Kernel, Start

START = Start.DECIDED


def is_wanted(kernel: Kernel) -> bool:
    """Return whether the settings enable the page and a server for it."""
    return kernel.settings.status_page and kernel.settings.metrics_address is not None
