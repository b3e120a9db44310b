"""Data files that settings name, as YAML or JSON, and the table of bandwidths."""

from pathlib import Path

from nodetopo.allocation.measured import BandwidthTable, bandwidth_table
from nodetopo.errors import DecodeError, InputError
from nodetopo.formats import document as documents
from nodetopo.formats.yaml import LOADER
from nodetopo.model.codec import MAX_BYTES, load_json

MAX_YAML_BYTES = 1 << 18
"""Largest accepted YAML, some 6,000 entries: without its C parser, PyYAML needs about 20 s of CPU
for 1 MiB. JSON can have 16 MiB.
"""

_TABLE_CURE = "correct the file; docs/internals/placement.md describes it"


def load(path: Path) -> BandwidthTable:
    """Return the measured bandwidths of the file *path*.

    Raises:
        InputError: it cannot be read, or is no such table.
    """
    return parse(str(path), read_text(path, "a bandwidth table"))


def parse(name: str, text: str) -> BandwidthTable:
    """Return the measured bandwidths that *text* holds; *name* is its file, for messages.

    Raises:
        InputError: it is no such table.
    """
    try:
        return bandwidth_table(document(text, _TABLE_CURE))
    except DecodeError as error:
        raise InputError(f"{name}: {error.cause}", error.cure or _TABLE_CURE) from None


def read_text(path: Path, what: str) -> str:
    """Return the text of the file *path*, which should be *what*, such as ``a bandwidth table``.

    Raises:
        InputError: it cannot be read, or is no text.
    """
    try:
        if not path.is_file():  # a device node could never end
            raise InputError(f"{path} is not a file", f"name {what}")
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        return content.decode("utf-8-sig")
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}", "check the path") from None
    except UnicodeDecodeError:
        raise InputError(f"{path} is not UTF-8 text", "save it as UTF-8") from None


def document(text: str, cure: str) -> object:
    """Return what *text* holds.

    Raises:
        DecodeError: neither JSON nor YAML, or too large; with *cure* where it has none better.
    """
    if text.lstrip().startswith("{"):
        try:
            return load_json(text)
        except DecodeError as error:  # may still be YAML, whose mappings can look like this
            if len(text) > MAX_YAML_BYTES:
                raise DecodeError("", error.problem, cure) from None
    if len(text) > MAX_YAML_BYTES:
        cause = f"larger than {MAX_YAML_BYTES >> 10} KiB of YAML"
        raise DecodeError("", cause, "save it as JSON, which is read faster")
    try:
        return documents.load(text, loader=LOADER)
    except ValueError as error:
        problem = str(error).removeprefix("not YAML: ")
        raise DecodeError("", f"not YAML: {problem}", cure) from None
