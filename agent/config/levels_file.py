"""The file that says where nodes stand in their cluster, as YAML or JSON."""

from pathlib import Path

from agent.config.data_files import document, read_text
from agent.errors import DecodeError, InputError
from agent.labels.levels_file import LevelFile, level_file

_CURE = "correct the file; docs/topology-labels.md describes it"


def load(path: Path) -> LevelFile:
    """Return what the file *path* says.

    Raises:
        InputError: it cannot be read, or says something else.
    """
    text = read_text(path, "a file of levels")
    try:
        return level_file(document(text, _CURE))
    except DecodeError as error:
        raise InputError(f"{path}: {error.cause}", error.cure or _CURE) from None
    except InputError as error:
        raise InputError(f"{path}: {error.cause}", error.cure) from None
