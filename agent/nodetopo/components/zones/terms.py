"""When zones and placements are published."""

from nodetopo.kernel.component import Kernel, Start

START = Start.DECIDED


def is_wanted(kernel: Kernel) -> bool:
    """Return whether the settings enable zones or placements of a real machine."""
    settings = kernel.settings
    return kernel.target.is_real and (settings.publish_zones or settings.annotate_pods)
