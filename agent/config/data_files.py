"""A file of data, as YAML or JSON, that a setting names."""

from pathlib import Path

from agent.errors import DecodeError, InputError
from agent.formats.yaml_slips import TRIPPED
from agent.model.codec import MAX_BYTES, load_json

MAX_YAML_BYTES = 1 << 18
"""Largest YAML accepted, some 6,000 entries: PyYAML needs about 20 s of CPU for 1 MiB, and its
faster C parser dies of deep nesting. JSON may have 16 MiB."""


def read_text(path: Path, what: str) -> str:
    """Return the text of the file *path*, which is to be *what*, such as ``a bandwidth table``.

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
    return _yaml(text, cure)


def _yaml(text: str, cure: str) -> object:
    import yaml  # noqa: PLC0415 - 2 MiB that only such a file needs

    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError) as error:
        raise DecodeError("", f"not YAML: {' '.join(str(error).split())}", cure) from None
    except TRIPPED as error:
        # What PyYAML's constructors come to where a text does not have the type of its tag.
        problem = f"not YAML: a value that its tag does not fit ({type(error).__name__}: {error})"
        raise DecodeError("", problem, cure) from None
