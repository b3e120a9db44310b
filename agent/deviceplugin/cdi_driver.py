"""Which files of the driver a container needs, found on the host; the rules are NVIDIA's.

nvidia-container-toolkit v1.19.0: pkg/lookup/library.go (directories), pkg/nvcdi/driver-nvml.go
(libraries and programs), internal/discover/ipc.go (sockets), internal/discover/symlinks.go
(links). Left out are the firmware, which the kernel loads, and what only graphics needs.
"""

import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from agent.deviceplugin.host_path import below, link_target, resolved

LIBRARY_DIRECTORIES = (
    "/usr/lib64",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu/nvidia/current",
    "/usr/lib/aarch64-linux-gnu/nvidia/current",
    "/lib64",
    "/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/lib/x86_64-linux-gnu/nvidia/current",
    "/lib/aarch64-linux-gnu/nvidia/current",
    "/usr/lib",
)
"""Where distributions put libcuda; the last is Arch Linux's, which NVIDIA finds otherwise."""

PROGRAM_DIRECTORIES = (
    "/usr/local/sbin",
    "/usr/local/bin",
    "/usr/sbin",
    "/usr/bin",
    "/sbin",
    "/bin",
)

PROGRAMS = (
    "nvidia-smi",
    "nvidia-debugdump",
    "nvidia-persistenced",
    "nvidia-cuda-mps-control",
    "nvidia-cuda-mps-server",
)

SOCKETS = ("nvidia-persistenced/socket", "nvidia-fabricmanager/socket")
"""Below ``/run``, or ``/var/run`` where that is a directory of its own."""

MPS = "/tmp/nvidia-mps"  # noqa: S108 - the MPS daemon's own choice
"""Of NVIDIA's MPS control daemon, if it runs."""

_ALWAYS_LINKED = (
    ("libcuda.so.", "libcuda.so.1", "libcuda.so"),
    ("libnvidia-opticalflow.so.", "libnvidia-opticalflow.so.1", "libnvidia-opticalflow.so"),
)
"""(Beginning of a library's name, what a link says, the link): programs open it, though not
every host has it."""


@dataclass(frozen=True, slots=True, order=True)
class HostPath:
    """A file for containers: *path* there, and *at* on the host, below the driver's root."""

    path: str
    at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverFiles:
    """What of a driver a container needs, each part sorted by path.

    Attributes:
        libraries: those of the driver's version; none where there is no driver.
        links: (what it says, path in the container) of the symbolic links beside them that lead
            to one.
        programs, sockets: those that exist; the directory of MPS is among the sockets.
    """

    libraries: tuple[HostPath, ...] = ()
    links: tuple[tuple[str, str], ...] = ()
    programs: tuple[HostPath, ...] = ()
    sockets: tuple[HostPath, ...] = ()


def driver_files(root: Path, version: str) -> DriverFiles:
    """Return what the driver of *version* has below *root*, as this process sees that root."""
    home = next((one for one in LIBRARY_DIRECTORIES if _has_driver(root, one, version)), None)
    directories = () if home is None else (home, f"{home}/vdpau")
    libraries = [found for one in directories for found in _libraries(root, one, version)]
    links = {link for one in directories for link in _links(root, one, libraries)}
    return DriverFiles(
        libraries=tuple(sorted(libraries)),
        links=tuple(sorted(links, key=lambda link: link[1])),
        programs=tuple(sorted(_programs(root))),
        sockets=tuple(sorted(_sockets(root))),
    )


def has_program(root: Path, path: str) -> bool:
    """Tell whether *path* below *root* is a file that may be executed."""
    at = resolved(root, path)
    try:
        mode = 0 if at is None else below(root, at).stat().st_mode
    except OSError:
        return False
    return stat.S_ISREG(mode) and bool(mode & 0o111)


def _has_driver(root: Path, directory: str, version: str) -> bool:
    names = (f"libcuda.so.{version}", f"libnvidia-ml.so.{version}")
    return any(resolved(root, f"{directory}/{name}") is not None for name in names)


def _libraries(root: Path, directory: str, version: str) -> Iterator[HostPath]:
    for name in _names(root, directory):
        if name.startswith("lib") and name.endswith(f".so.{version}"):
            at = resolved(root, f"{directory}/{name}")
            if at is not None:
                yield HostPath(f"{directory}/{name}", at)


def _links(root: Path, directory: str, libraries: Sequence[HostPath]) -> Iterator[tuple[str, str]]:
    """Yield the links of *directory* that lead to one of its *libraries*, some over others."""
    said = dict(_said(root, directory))
    split = (found.path.rpartition("/") for found in libraries)
    names = frozenset(name for parent, _, name in split if parent == directory)
    reached = names
    while found := {name for name, target in said.items() if target in reached} - reached:
        reached |= found
        yield from ((said[name], f"{directory}/{name}") for name in found)
    for beginning, target, link in _ALWAYS_LINKED:
        if link not in reached and any(name.startswith(beginning) for name in names):
            yield target, f"{directory}/{link}"


def _said(root: Path, directory: str) -> Iterator[tuple[str, str]]:
    """Yield name and target of each library in *directory* that is a link."""
    at = resolved(root, directory)
    for name in _names(root, directory):
        if ".so" in name:
            target = link_target(below(root, f"{at}/{name}"))
            if target is not None:
                yield name, target


def _programs(root: Path) -> Iterator[HostPath]:
    for name in PROGRAMS:
        paths = (f"{directory}/{name}" for directory in PROGRAM_DIRECTORIES)
        path = next((path for path in paths if has_program(root, path)), None)
        if path is not None:
            yield HostPath(path, resolved(root, path) or path)


def _sockets(root: Path) -> Iterator[HostPath]:
    for name in SOCKETS:
        paths = ((path, resolved(root, path)) for path in (f"/run/{name}", f"/var/run/{name}"))
        found = (HostPath(path, at) for path, at in paths if at and below(root, at).is_socket())
        yield from list(found)[:1]
    at = resolved(root, MPS)
    if at is not None and below(root, at).is_dir():
        yield HostPath(MPS, at)


def _names(root: Path, directory: str) -> list[str]:
    at = resolved(root, directory)
    try:
        return [] if at is None else sorted(one.name for one in below(root, at).iterdir())
    except OSError:
        return []
