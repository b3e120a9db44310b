"""The comparison program over go-gpuallocator: compiled once for its sources, and kept.

Its library binds NVML through cgo, so this takes a C compiler; NVML itself is not needed, it
is looked up when first called, which is never.
"""

from pathlib import Path

from tests.lab.go_program import GoPrograms

_NAME = "gpuallocator"


def program() -> Path:
    """Return the compiled program, building it if its sources changed; some 30 s.

    Raises:
        RuntimeError: it does not compile, or there is no Go and none can be fetched.
    """
    programs = GoPrograms(
        shelf="bench",
        title="go-gpuallocator",
        module=Path(__file__).parent / _NAME,
        packages={_NAME: "."},
        has_c=True,
    )
    return programs.folder() / _NAME
