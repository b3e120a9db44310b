"""NVIDIA's hooks that a CDI specification can call, depending on the installed program.

A container does not start if its specification calls a hook that the program lacks, and the program
is not run to ask: it contains the names of its hooks. A Go program contains a command's name
exactly if it has the command (nvidia-container-toolkit cmd/nvidia-cdi-hook/commands/commands.go).
The GPU operator installs a script with the program's name that runs ``nvidia-cdi-hook.real`` next
to it.
"""

import os
import stat
from pathlib import Path

from nodetopo.deviceplugin.host_files import below, resolved

CREATE_LINKS = "create-symlinks"
ENABLE_COMPAT = "enable-cuda-compat"
UPDATE_CACHE = "update-ldcache"
KEEP_NODES = "disable-device-node-modification"
"""NVIDIA's names (nvidia-container-toolkit v1.19.0, internal/discover/hooks.go): make the links of
the driver's libraries; let an image's libraries for a newer CUDA be found, since 1.17.5; renew the
loader's cache; keep nvidia-smi from making device nodes, since 1.17.8 and 1.18."""

ALL = "all"
"""Of ``cdi-disable-hooks``: every hook."""

OLDEST = frozenset((CREATE_LINKS, UPDATE_CACHE))
"""Hooks that every version of the program has."""

NEWER = (ENABLE_COMPAT, KEEP_NODES)

_SCRIPT = b"#!"
_REAL = ".real"
_CHUNK_BYTES = 1 << 20
_MOST_BYTES = 64 << 20
"""nvidia-ctk 1.19 has 20 MiB."""

_OVERLAP = max(map(len, NEWER))

_State = tuple[str, int, int, int]


class HookProgram:
    """Which hooks an installed program has; it is read again when the file changes."""

    def __init__(self) -> None:
        self._known: tuple[_State, frozenset[str]] | None = None

    def hooks(self, root: Path, path: str) -> frozenset[str] | None:
        """Return the hooks of the program *path* below *root*; ``None`` if it cannot be executed.

        Of a program that cannot be read they are :data:`OLDEST`.
        """
        at = resolved(root, path)
        program = None if at is None else _executable(below(root, at))
        if at is None or program is None:
            return None
        if self._known is None or self._known[0] != program:
            self._known = program, OLDEST | _named(root, at)
        return self._known[1]


def _executable(place: Path) -> _State | None:
    """Return the state of an executable file, ``None`` if *place* is none."""
    try:
        status = place.stat()
    except OSError:
        return None
    if not stat.S_ISREG(status.st_mode) or not status.st_mode & 0o111:
        return None
    return str(place), status.st_ino, status.st_size, status.st_mtime_ns


def _named(root: Path, path: str, *, is_real: bool = False) -> frozenset[str]:
    """Return the newer hooks named in the program at *path*, or in the program that it runs."""
    wanted = {name.encode(): name for name in NEWER}
    found: set[str] = set()
    try:
        with below(root, path).open("rb") as file:
            if file.read(len(_SCRIPT)) == _SCRIPT:
                real = None if is_real else resolved(root, path + _REAL)
                return frozenset() if real is None else _named(root, real, is_real=True)
            file.seek(0, os.SEEK_SET)
            rest = b""
            for _ in range(_MOST_BYTES // _CHUNK_BYTES):
                chunk = file.read(_CHUNK_BYTES)
                text = rest + chunk
                found |= {name for word, name in wanted.items() if word in text}
                if not chunk or len(found) == len(wanted):
                    break
                rest = text[-_OVERLAP:]
    except OSError:
        pass
    return frozenset(found)
