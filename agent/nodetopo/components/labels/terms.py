"""When labels are published."""

from nodetopo.kernel.component import Kernel, Start

START = Start.DECIDED


def is_wanted(kernel: Kernel) -> bool:
    """Return whether the settings enable labels, or the page of a simulated machine shows them."""
    settings = kernel.settings
    return bool(settings.publish_labels) or (kernel.target.is_demo and not settings.once)
