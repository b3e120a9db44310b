"""The condition for DRA: any API server, since other drivers can be present."""

from pathlib import Path

from nodetopo.components.dra.driver.claims_file import claims_document
from nodetopo.components.dra.settings import DraSettings
from nodetopo.errors import InputError
from nodetopo.kernel.component import Kernel, Start
from nodetopo.kubeapi.access import is_known

START = Start.AT_ONCE

CLAIMS_FILE = "claims.json"
"""Beside the health file: the claims that our DRA driver has prepared."""


def is_wanted(kernel: Kernel) -> bool:
    """Return whether the node's ResourceSlices can be followed.

    Even if no GPU is offered: that can change while the daemon runs, and pods can hold GPUs by
    claim all the same.

    Raises:
        InputError: our DRA driver is on, without an API server to publish to.
    """
    settings = kernel.settings
    goes_on = kernel.target.is_real and not settings.once
    if settings.dra and goes_on and not is_known(settings.kubeconfig):
        raise InputError("dra needs an API server", "give --kubeconfig, or run in a pod")
    return kernel.has_api


def claims_file(settings: DraSettings) -> Path | None:
    """Return the file that keeps prepared claims across restarts, or ``None``."""
    state = settings.health_file
    return None if state is None else state.with_name(CLAIMS_FILE)


def needs_driver(kernel: Kernel) -> bool:
    """Return whether our driver runs: it is on, or pods still have claims of it."""
    if kernel.target.served_by is not None:
        return False
    file = claims_file(kernel.settings)
    if kernel.settings.dra:
        return True
    if file is None:
        return False
    saved = claims_document(file, kernel.settings.node_name).read()
    if saved.content is None:  # a file that cannot be read must not keep GPUs from being served
        return saved.is_damaged or saved.is_newer
    return bool(saved.content.claims) or not saved.content.is_complete
