"""The file of topology levels that settings name."""

from pathlib import Path

from nodetopo.components.labels.levels import LevelFile, level_file
from nodetopo.errors import DecodeError, InputError
from nodetopo.kernel.settings.data_files import document, read_text

_LEVELS_CURE = "correct the file; docs/reference/topology-labels.md describes it"


def load_levels(path: Path) -> LevelFile:
    """Return the positions of nodes from the file *path*."""
    text = read_text(path, "a file of levels")
    try:
        return level_file(document(text, _LEVELS_CURE))
    except DecodeError as error:
        raise InputError(f"{path}: {error.cause}", error.cure or _LEVELS_CURE) from None
    except InputError as error:
        raise InputError(f"{path}: {error.cause}", error.cure) from None
