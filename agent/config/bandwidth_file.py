"""The file of measured bandwidths, as YAML or JSON."""

from pathlib import Path

from agent.allocation.measured import BandwidthTable, bandwidth_table
from agent.errors import DecodeError, InputError
from agent.model.codec import MAX_BYTES, load_json

MAX_YAML_BYTES = 1 << 18
"""Largest YAML accepted, some 6,000 entries: PyYAML needs about 20 s of CPU for 1 MiB, and its
faster C parser dies of deep nesting. JSON may have 16 MiB."""

_CURE = "correct the file; docs/placement.md describes it"


def load(path: Path) -> BandwidthTable:
    """Return the table of the file *path*.

    Raises:
        InputError: it cannot be read, or is no such table.
    """
    try:
        if not path.is_file():  # a device node could never end
            raise InputError(f"{path} is not a file", "name a bandwidth table")
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        return parse(str(path), content.decode("utf-8-sig"))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}", "check the path") from None
    except UnicodeDecodeError:
        raise InputError(f"{path} is not UTF-8 text", "save it as UTF-8") from None


def parse(name: str, text: str) -> BandwidthTable:
    """Return the table that *text* holds; *name* is its file, for messages.

    Raises:
        InputError: it is no such table.
    """
    try:
        return bandwidth_table(_document(text))
    except DecodeError as error:
        raise InputError(f"{name}: {error.cause}", error.cure or _CURE) from None


def _document(text: str) -> object:
    if text.lstrip().startswith("{"):
        try:
            return load_json(text)
        except DecodeError as error:  # may still be YAML, whose mappings can look like this
            if len(text) > MAX_YAML_BYTES:
                raise DecodeError("", error.problem, _CURE) from None
    if len(text) > MAX_YAML_BYTES:
        cause = f"larger than {MAX_YAML_BYTES >> 10} KiB of YAML"
        raise DecodeError("", cause, "save it as JSON, which is read faster")
    return _yaml(text)


def _yaml(text: str) -> object:
    import yaml  # noqa: PLC0415 - 2 MiB that only such a file needs

    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise DecodeError("", f"not YAML: {' '.join(str(error).split())}", _CURE) from None
