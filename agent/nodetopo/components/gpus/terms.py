"""The GPUs' component runs in every daemon."""

from nodetopo.components.gpus.plan import load_table
from nodetopo.components.gpus.settings import GpuSettings
from nodetopo.kernel.component import Kernel, Start

START = Start.AT_ONCE


def is_wanted(_kernel: Kernel) -> bool:
    """Return that it is: offers and publications begin with a scan."""
    return True


def check(settings: GpuSettings) -> None:
    """Read the files that the settings name.

    Raises:
        InputError: one is invalid, or cannot be read.
    """
    load_table(settings)


def resources(settings: GpuSettings) -> tuple[str, ...]:
    """Return the resource of whole GPUs that *settings* offer."""
    return (settings.resource_name,)
