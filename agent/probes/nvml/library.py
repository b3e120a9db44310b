"""The driver's library ``libnvidia-ml.so.1``: where it is, and how `pynvml` comes to use it."""

import ctypes
import os
import sys
from pathlib import Path

from agent.errors import NvmlUnavailable

# The environment that the NVML child runs in.

_SCRUBBED = ("PYTHON", "LD_PRELOAD", "LD_AUDIT")
"""Beginnings of variables that it does not get: a preloaded library would run inside a process
that we count on, and PYTHON* could replace modules."""


def child_environment() -> dict[str, str]:
    """Return our own environment, scrubbed, with modules from where we have ours."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_SCRUBBED)}
    package_parent = str(Path(__file__).resolve().parents[3])
    own = [path for path in sys.path if Path(path).is_absolute()]
    return {**kept, "PYTHONPATH": os.pathsep.join([package_parent, *own])}


SONAME = "libnvidia-ml.so.1"
"""What ``pynvml`` asks the loader for; it knows no path."""


NOT_FOUND = 12
"""``NVML_ERROR_LIBRARY_NOT_FOUND``, which NVML's own bindings answer in the same case."""


_CURE = "name the driver's library, or its directory, with --nvml-library"


def library_file(library: Path) -> Path:
    """Return the file that *library* names, by itself or as the directory around it.

    Raises:
        NvmlUnavailable: there is none, or it cannot be reached.
    """
    reason: str | None = "no such file"
    try:
        file = library / SONAME if library.is_dir() else library
        if file.is_file():
            return file.absolute()
    except OSError as error:  # e.g. a directory that may not be searched
        reason = error.strerror
    raise NvmlUnavailable(f"cannot load {SONAME} from {library}: {reason}", _CURE, code=NOT_FOUND)


def load(library: str) -> None:
    """Load the library at that path, so that the loader finds it by name from then on.

    A search path (``LD_LIBRARY_PATH``) would do too, but would make this interpreter take
    its other libraries from there: with a mounted host directory, the host's libc.

    Raises:
        NvmlUnavailable: not loadable, or not known to the loader as ``libnvidia-ml.so.1``.
    """
    try:
        ours = ctypes.CDLL(library)
    except OSError as error:
        cause = f"cannot load {SONAME} from {library}: {error}"
        raise NvmlUnavailable(cause, _CURE, code=NOT_FOUND) from None
    try:
        named = ctypes.CDLL(SONAME)
    except OSError:
        named = None
    if named is None or named._handle != ours._handle:  # noqa: SLF001 - ctypes' only identity
        raise NvmlUnavailable(
            f"{library} is not {SONAME}: its SONAME differs", _CURE, code=NOT_FOUND
        )
