"""Starts the process that calls NVML with as few modules as it needs."""

import sys

from nodetopo.footprint import DEFERRED, put_off

# ctypes.util imports both, which pynvml imports to find a library elsewhere than on Linux.
put_off((*DEFERRED, "subprocess", "tempfile"))
sys.modules["typing_extensions"] = None  # type: ignore[assignment]  # msgspec then takes typing

from nodetopo.probes.nvml.child import main  # noqa: E402 - once the modules are put off

main()
