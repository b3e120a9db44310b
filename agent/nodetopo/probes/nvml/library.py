"""The driver's library ``libnvidia-ml.so.1``, loaded from the path that was given."""

import ctypes

from nodetopo.errors import NvmlUnavailable

SONAME = "libnvidia-ml.so.1"
"""The name by which ``pynvml`` loads the library; it accepts no path."""

NOT_FOUND = 12
"""``NVML_ERROR_LIBRARY_NOT_FOUND``, the code that NVML's own bindings give in the same case."""

CURE = "name the driver's library, or its directory, with --nvml-library"
"""The cure for a library that does not load."""


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
        raise NvmlUnavailable(cause, CURE, code=NOT_FOUND) from None
    try:
        named = ctypes.CDLL(SONAME)
    except OSError:
        named = None
    if named is None or named._handle != ours._handle:  # noqa: SLF001 - ctypes' only identity
        raise NvmlUnavailable(
            f"{library} is not {SONAME}: its SONAME differs", CURE, code=NOT_FOUND
        )
