"""When DRA concerns the node: wherever there is an API server, for other drivers may be there."""

from pathlib import Path

from nodetopo.components.dra.kept import CLAIMS_FILE, is_any_prepared
from nodetopo.components.dra.settings import DraSettings
from nodetopo.errors import InputError
from nodetopo.kernel.component import Kernel, Start
from nodetopo.kubeapi.access import is_known

START = Start.AT_ONCE


def is_wanted(kernel: Kernel) -> bool:
    """Return whether the node's ResourceSlices can be followed.

    Also where no GPU is offered: that may change while the daemon runs, and pods have GPUs by
    claim all the same.

    Raises:
        InputError: our DRA driver is on, and there is no API server to publish to.
    """
    settings = kernel.settings
    goes_on = kernel.target.is_real and not settings.once
    if settings.dra and goes_on and not is_known(settings.kubeconfig):
        raise InputError("dra needs an API server", "give --kubeconfig, or run in a pod")
    return kernel.has_api


def claims_file(settings: DraSettings) -> Path | None:
    """Return where prepared claims outlive the process; ``None`` where nothing does."""
    state = settings.health_file
    return None if state is None else state.with_name(CLAIMS_FILE)


def needs_driver(kernel: Kernel) -> bool:
    """Return whether our driver runs: it is on, or it was and pods have claims of it."""
    if kernel.target.served_by is not None:
        return False
    file = claims_file(kernel.settings)
    return kernel.settings.dra or (file is not None and is_any_prepared(file))
