"""The driver's library ``libnvidia-ml.so.1``: its path, and the environment it is loaded in."""

import ctypes
import os
import sys
from pathlib import Path

from agent.errors import NvmlUnavailable

SONAME = "libnvidia-ml.so.1"
"""The name by which ``pynvml`` loads the library; it takes no path."""

NOT_FOUND = 12
"""``NVML_ERROR_LIBRARY_NOT_FOUND``, the code that NVML's own bindings give in the same case."""

_CURE = "name the driver's library, or its directory, with --nvml-library"

_SCRUBBED = ("PYTHON", "LD_PRELOAD", "LD_AUDIT")
"""Prefixes of the variables that the NVML child does not inherit: a preloaded library would run
in a process that we rely on, and PYTHON* could replace modules."""


def child_environment() -> dict[str, str]:
    """Return our environment without :data:`_SCRUBBED` variables, with our own module path."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_SCRUBBED)}
    package_parent = str(Path(__file__).resolve().parents[3])
    own = [path for path in sys.path if Path(path).is_absolute()]
    return {**kept, "PYTHONPATH": os.pathsep.join([package_parent, *own])}


def library_file(library: Path) -> Path:
    """Return the library's file; *library* is that file or its directory.

    Raises:
        NvmlUnavailable: the file does not exist or cannot be reached.
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
