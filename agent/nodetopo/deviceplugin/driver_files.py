"""The driver's files that a container needs, found below the driver's root.

The search paths follow NVIDIA's generator of CDI specifications (nvidia-container-toolkit v1.19.0:
libraries in internal/lookup/root/root.go, pkg/lookup/library.go and ldcache.go, programs in
pkg/nvcdi/driver-nvml.go, sockets in internal/discover/ipc.go, links in
internal/discover/symlinks.go). It searches the directories first and the loader's cache last; here
the cache comes first, as for the host's loader; both find only the libraries of the driver's
version. Firmware, which the kernel loads, and files for graphics are left out.

The root can differ from this process's. Links are followed as by a process in that root, and never
lead out of it.
"""

import os
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath

from msgspec import Struct

from nodetopo.deviceplugin.host_files import HostFile, below, is_directory, resolved
from nodetopo.errors import DecodeError
from nodetopo.formats.loader_cache import cached_libraries

LOADER_CACHE = "/etc/ld.so.cache"

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
)
"""Where distributions put the driver's libraries."""

LAST_LIBRARY_DIRECTORY = "/usr/lib"
"""Arch Linux's. Others keep 32-bit libraries there, so it counts only if no other has any."""

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
"""Below ``/run``, or ``/var/run`` if that is a separate directory."""

MPS = "/tmp/nvidia-mps"  # noqa: S108 - the MPS daemon's own choice
"""Of NVIDIA's MPS control daemon, if it runs."""

CUDA = "libcuda"
"""The library without which no program can use a GPU."""

NVML = "libnvidia-ml"
"""The library that nvidia-smi and NCCL open; CUDA does not need it."""

_DRIVERS_OWN = (f"{CUDA}.so", "libnvidia-")
"""Prefixes of the driver's libraries in the loader's cache that together name all of its
directories. Other entries need not be resolved, which takes a look-up for each part of their paths.
"""

_ALWAYS_LINKED = (
    ("libcuda.so.", "libcuda.so.1", "libcuda.so"),
    ("libnvidia-opticalflow.so.", "libnvidia-opticalflow.so.1", "libnvidia-opticalflow.so"),
)
"""(Beginning of a library's name, a link's target, the link): programs open the link, though not
every host has it."""


class HostPath(Struct, frozen=True, order=True):
    """A file for containers: *path* there, and *at* on the host, below the driver's root."""

    path: str
    at: str


class DriverFiles(Struct, frozen=True, kw_only=True):
    """The files of a driver that a container needs, each part sorted by path."""

    version: str
    libraries: tuple[HostPath, ...] = ()  # of the driver's version; empty without a driver
    # (target, path in the container) of links to the libraries next to them
    links: tuple[tuple[str, str], ...] = ()
    # programs, sockets: existing ones; the sockets include the directory of MPS
    programs: tuple[HostPath, ...] = ()
    sockets: tuple[HostPath, ...] = ()

    def has(self, name: str) -> bool:
        """Return whether the library *name*, such as :data:`CUDA`, was found."""
        return any(file.path.endswith(f"/{self.file_name(name)}") for file in self.libraries)

    def file_name(self, name: str) -> str:
        """Return the file name of the library *name*: with the driver's version."""
        return f"{name}.so.{self.version}"


def driver_files(root: Path, version: str, machine: str | None = None) -> DriverFiles:
    """Return the files of the driver of *version* below *root*, as this process sees that root.

    *machine* is what ``uname -m`` prints there; ``None`` for the same as here.
    """
    suffix = f".so.{version}"
    directories = _library_directories(root, version, machine or os.uname().machine)
    libraries: dict[str, HostPath] = {}
    links: set[tuple[str, str]] = set()
    for directory in (each for home in directories for each in (home, f"{home}/vdpau")):
        entries = _shared_objects(root, directory)
        own = {
            name: at
            for name in entries
            if _is_library(name, suffix)
            and (at := resolved(root, f"{directory}/{name}")) is not None
        }
        for name, at in own.items():
            libraries.setdefault(at, HostPath(f"{directory}/{name}", at))
        links |= set(_links(directory, entries, own.keys()))

    programs = []
    beside = (str(PurePosixPath(home).with_name("bin")) for home in directories)
    program_directories = tuple(dict.fromkeys((*PROGRAM_DIRECTORIES, *beside)))
    for name in PROGRAMS:
        paths = (f"{directory}/{name}" for directory in program_directories)
        path = next((path for path in paths if has_program(root, path)), None)
        if path is not None:
            programs.append(HostPath(path, resolved(root, path) or path))

    sockets = []
    for name in SOCKETS:
        for path in (f"/run/{name}", f"/var/run/{name}"):
            at_socket = resolved(root, path)
            if at_socket is not None and below(root, at_socket).is_socket():
                sockets.append(HostPath(path, at_socket))
                break
    at_mps = resolved(root, MPS)
    if at_mps is not None and is_directory(below(root, at_mps)):
        sockets.append(HostPath(MPS, at_mps))
    return DriverFiles(
        version=version,
        libraries=tuple(sorted(libraries.values())),
        links=tuple(sorted(links, key=lambda link: link[1])),
        programs=tuple(sorted(programs)),
        sockets=tuple(sorted(sockets)),
    )


def has_program(root: Path, path: str) -> bool:
    """Return whether *path* below *root* is an executable file."""
    at = resolved(root, path)
    try:
        mode = 0 if at is None else below(root, at).stat().st_mode
    except OSError:
        return False
    return stat.S_ISREG(mode) and bool(mode & 0o111)


def _library_directories(root: Path, version: str, machine: str) -> tuple[str, ...]:
    """Return the directories with libraries of *version*: the cache's if CUDA's is among them.

    A directory that has several names is returned once, by the first that is usual.
    """
    suffix = f".so.{version}"
    files = [
        at
        for path in _cached_paths(root, machine)
        if (at := resolved(root, path)) is not None and at.endswith(suffix)
    ]
    if f"{CUDA}{suffix}" in {at.rpartition("/")[2] for at in files}:
        homes = dict.fromkeys(at.rpartition("/")[0] for at in files)
        usual = {resolved(root, name): name for name in reversed(LIBRARY_DIRECTORIES)}
        return tuple(usual.get(home, home) for home in homes)

    found: dict[str, str] = {}
    for directory in (*LIBRARY_DIRECTORIES, LAST_LIBRARY_DIRECTORY):
        if directory == LAST_LIBRARY_DIRECTORY and found:
            break
        home = resolved(root, directory)
        is_new = home is not None and home not in found
        if is_new and any(_is_library(name, suffix) for name in _shared_objects(root, directory)):
            found[str(home)] = directory
    return tuple(found.values())


def _cached_paths(root: Path, machine: str) -> Iterable[str]:
    """Return where the loader's cache of *root* has libraries of a driver, each path once."""
    at = resolved(root, LOADER_CACHE)
    if at is None:
        return ()
    try:
        libraries = cached_libraries(HostFile(below(root, at)).read().data or b"", machine)
        paths = [library.path for library in libraries if library.name.startswith(_DRIVERS_OWN)]
    except DecodeError:
        return ()  # the usual directories are left
    return dict.fromkeys(paths)


def _is_library(name: str, suffix: str) -> bool:
    return name.startswith("lib") and name.endswith(suffix)


def _links(
    directory: str, entries: Mapping[str, str | None], libraries: Collection[str]
) -> Iterator[tuple[str, str]]:
    """Yield (target, path) of the links of *directory* to its *libraries*, also over others.

    *entries* is what :func:`_shared_objects` returns for it.
    """
    reached = set(libraries)
    while more := {name for name, target in entries.items() if target in reached} - reached:
        reached |= more
        yield from ((str(entries[name]), f"{directory}/{name}") for name in more)
    for beginning, target, link in _ALWAYS_LINKED:
        if link not in reached and any(name.startswith(beginning) for name in libraries):
            yield target, f"{directory}/{link}"


def _shared_objects(root: Path, directory: str) -> Mapping[str, str | None]:
    """Return the libraries in *directory* by name, each with its target if it is a link.

    Some directories have thousands, which are looked at once a scan.
    """
    at = resolved(root, directory)
    if at is None:
        return {}
    try:
        with os.scandir(below(root, at)) as entries:
            found = [entry for entry in entries if ".so" in entry.name]
            return {
                entry.name: os.readlink(entry.path) if entry.is_symlink() else None  # noqa: PTH115
                for entry in found
            }
    except OSError:
        return {}
