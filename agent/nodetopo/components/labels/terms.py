"""When labels are published."""

from nodetopo.kernel.component import Kernel, Start

START = Start.DECIDED


def is_wanted(kernel: Kernel) -> bool:
    """Return whether the settings enable labels."""
    return bool(kernel.settings.publish_labels)
