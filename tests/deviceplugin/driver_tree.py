"""A driver's files, put into a directory that plays a host's root."""

import os
import socket
from pathlib import Path

from tests.formats.loader_caches import X86_64, loader_cache

VERSION = "580.95.05"
UBUNTU = "/usr/lib/x86_64-linux-gnu"
LIBRARIES = ("libcuda", "libnvidia-ml", "libnvidia-ptxjitcompiler")


def put(root: Path, path: str, text: str = "", mode: int = 0o644) -> None:
    """Make a file below *root*."""
    file = root / path.removeprefix("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(mode)


def link(root: Path, path: str, target: str) -> None:
    """Make a symbolic link below *root*."""
    file = root / path.removeprefix("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.symlink_to(target)


def install(root: Path, directory: str = UBUNTU, version: str = VERSION) -> None:
    """Install three libraries with the links that ldconfig makes, and one program."""
    for name in LIBRARIES:
        put(root, f"{directory}/{name}.so.{version}")
        link(root, f"{directory}/{name}.so.1", f"{name}.so.{version}")
    put(root, "/usr/bin/nvidia-smi", mode=0o755)


def add_nodes(root: Path, *names: str) -> None:
    """Make device nodes: links to a character device, for only root can make one."""
    for name in names:
        link(root, f"/dev/{name}", "/dev/null")


def add_socket(root: Path, path: str) -> None:
    """Make a socket that nobody listens on; its path may be longer than a socket's."""
    file = root / path.removeprefix("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    folder = os.open(file.parent, os.O_PATH | os.O_DIRECTORY)
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(f"/proc/self/fd/{folder}/{file.name}")
    os.close(folder)


def know(root: Path, *paths: str, kind: int = X86_64) -> None:
    """Write the loader's cache: the libraries at *paths*, by the names of their files."""
    entries = [(path.rpartition("/")[2], path, kind) for path in paths]
    file = root / "etc/ld.so.cache"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(loader_cache(*entries))
