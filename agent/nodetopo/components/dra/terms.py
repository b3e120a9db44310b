"""The condition for DRA: any API server, since other drivers can be present."""

from pathlib import Path

from nodetopo.components.dra.settings import DraSettings
from nodetopo.deviceplugin.host_files import HostFile
from nodetopo.errors import DecodeError, InputError
from nodetopo.kernel.component import Kernel, Start
from nodetopo.kubeapi.access import is_known
from nodetopo.model.codec import load_json

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
    return kernel.settings.dra or (file is not None and _is_any_prepared(file))


def _is_any_prepared(path: Path) -> bool:
    """Return whether the file *path* of :class:`ClaimsFile` has any claims."""
    text = HostFile(path).read().text
    try:
        document = None if text is None else load_json(text)
    except DecodeError:
        return False
    return isinstance(document, dict) and bool(document.get("claims"))
