"""Detects prepared claims of an earlier run; lightweight, as every daemon calls it."""

from pathlib import Path

from nodetopo.deviceplugin.host_files import HostFile
from nodetopo.errors import DecodeError
from nodetopo.model.codec import load_json

CLAIMS_FILE = "claims.json"
"""Beside the health file: the claims that our DRA driver has prepared."""


def is_any_prepared(path: Path) -> bool:
    """Return whether the file *path* of :class:`ClaimsFile` has any claims."""
    text = HostFile(path).text()
    try:
        document = None if text is None else load_json(text)
    except DecodeError:
        return False
    return isinstance(document, dict) and bool(document.get("claims"))
