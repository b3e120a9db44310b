"""How the NVML child is started: with which library, and in which environment."""

import os
import sys
from pathlib import Path

from nodetopo.errors import NvmlUnavailable
from nodetopo.probes.nvml.library import CURE, NOT_FOUND, SONAME

_SCRUBBED = ("PYTHON", "LD_", "GLIBC_TUNABLES", "GCONV_PATH")
"""Prefixes of the variables that the NVML child does not inherit: they make the loader or the
interpreter run other code (ld.so(8)) in a process that we rely on, or write where they say."""

_KEPT = "LD_LIBRARY_PATH"
"""Where some images of drivers say that the library is."""


def child_environment() -> dict[str, str]:
    """Return our environment without :data:`_SCRUBBED` variables, and our own module path."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name == _KEPT or not name.startswith(_SCRUBBED)
    }
    package_parent = str(Path(__file__).resolve().parents[3])
    own = [path for path in sys.path if Path(path).is_absolute()]
    return {
        **kept,
        "PYTHONPATH": os.pathsep.join([package_parent, *own]),
        "MALLOC_ARENA_MAX": "1",  # mallopt(3); its three threads rarely run at the same time
    }


def library_file(library: Path) -> Path:
    """Return the library's file; *library* is that file or its directory."""
    reason: str | None = "no such file"
    try:
        file = library / SONAME if library.is_dir() else library
        if file.is_file():
            return file.absolute()
    except OSError as error:  # e.g. a directory without search permission
        reason = error.strerror
    raise NvmlUnavailable(f"cannot load {SONAME} from {library}: {reason}", CURE, code=NOT_FOUND)
