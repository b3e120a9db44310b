"""The file of measured bandwidths, as YAML or JSON."""

from pathlib import Path

from agent.allocation.measured import BandwidthTable, bandwidth_table
from agent.config.data_files import document, read_text
from agent.errors import DecodeError, InputError

_CURE = "correct the file; docs/placement.md describes it"


def load(path: Path) -> BandwidthTable:
    """Return the table of the file *path*.

    Raises:
        InputError: it cannot be read, or is no such table.
    """
    return parse(str(path), read_text(path, "a bandwidth table"))


def parse(name: str, text: str) -> BandwidthTable:
    """Return the table that *text* holds; *name* is its file, for messages.

    Raises:
        InputError: it is no such table.
    """
    try:
        return bandwidth_table(document(text, _CURE))
    except DecodeError as error:
        raise InputError(f"{name}: {error.cause}", error.cure or _CURE) from None
