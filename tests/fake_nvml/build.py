"""Compile the fake ``libnvidia-ml.so.1`` with whatever compiler the machine has."""

import hashlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

NAME = "libnvidia-ml.so.1"
_HERE = Path(__file__).resolve().parent
_LIBRARY = _HERE / "libnvidia-ml.c"
_SOURCES = (_LIBRARY, *sorted(_HERE.glob("*.h")))
_FLAGS = ("-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-pthread")


def library(cache: Path, *, without_newer: bool = False, only_fabric_v3: bool = False) -> Path:
    """Return the directory that holds the compiled library, named as the loader wants it.

    It is compiled once for each text of the sources; processes may race for it.

    Args:
        cache: where compiled libraries are kept.
        without_newer: leave out the functions that older drivers lack.
        only_fabric_v3: take no older version of the fabric's struct.
    """
    flags = [
        *_FLAGS,
        *(["-DWITHOUT_NEWER"] if without_newer else []),
        *(["-DONLY_FABRIC_V3"] if only_fabric_v3 else []),
    ]
    text = b"".join(source.read_bytes() for source in _SOURCES) + " ".join(flags).encode()
    directory = cache / f"fake-nvml-{hashlib.sha256(text).hexdigest()[:16]}"
    if not (directory / NAME).exists():
        directory.mkdir(parents=True, exist_ok=True)
        _compile(flags, directory)
    return directory


def _compile(flags: list[str], directory: Path) -> None:
    with tempfile.TemporaryDirectory(dir=directory) as temporary:
        output = Path(temporary) / NAME
        soname = f"-Wl,-soname,{NAME}"
        command = [*c_compiler(), *flags, soname, str(_LIBRARY), "-o", str(output)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}\n{done.stderr}")
        output.replace(directory / NAME)


def c_compiler() -> list[str]:
    """Return a C compiler's command; the `ziglang` wheel brings one where the system has none."""
    for name in ("cc", "gcc", "clang"):
        if shutil.which(name):
            return [name]
    return [sys.executable, "-m", "ziglang", "cc"]
