"""Starts the process that calls NVML with as few modules as it needs."""

import sys

from nodetopo.footprint import put_off

DEFERRED = (
    # ctypes.util imports them, which pynvml imports to find a library elsewhere than on Linux.
    *("shutil", "subprocess", "tempfile"),
    # msgspec imports them for what records alone do without.
    *("msgspec._json_schema", "msgspec.inspect", "msgspec.json", "msgspec.msgpack"),
    *("msgspec.toml", "msgspec.yaml"),
)

put_off(DEFERRED)
sys.modules["typing_extensions"] = None  # type: ignore[assignment]  # msgspec then takes typing

from nodetopo.probes.nvml.child import main  # noqa: E402 - once the modules are put off

main()
