"""Specifications of the Container Device Interface for GPUs and what goes with them: pure.

They are JSON documents as CNCF CDI's SPEC.md 1.1.0 describes them, and give a container what
NVIDIA's own give for computing (nvidia-container-toolkit v1.19.0, pkg/nvcdi): device nodes, the
driver's libraries, programs and sockets, and hooks that make the libraries known to the loader.
"""

import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, TypeAlias

from agent.deviceplugin.cdi import is_device
from agent.deviceplugin.devices import Minors, capabilities
from agent.deviceplugin.host_files import below, link_target, resolved
from agent.deviceplugin.host_nodes import CONTROL_NODES, channel_node
from agent.model.gpu import Gpu

# Which files of the driver a container needs, found on the host; the rules are NVIDIA's.
#
# Sources in nvidia-container-toolkit v1.19.0: directories in pkg/lookup/library.go, libraries and
# programs in pkg/nvcdi/driver-nvml.go, sockets in internal/discover/ipc.go, links in
# internal/discover/symlinks.go. Left out are the firmware, which the kernel loads, and what only
# graphics needs.

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


Spec: TypeAlias = Mapping[str, Any]
"""A specification, to be written as JSON."""


ALL = "all"
"""The device that is everything of its kind at once."""


_LOWEST = "0.3.0"
"""The version of a specification that uses nothing that was added later."""


_FILE_OPTIONS = ("ro", "nosuid", "nodev", "rbind", "rprivate")


_SOCKET_OPTIONS = ("nosuid", "nodev", "rbind", "rprivate", "noexec")


@dataclass(frozen=True, slots=True, kw_only=True)
class Roots:
    """Where things are for the container runtime, which sees the host's file system.

    Attributes:
        driver: the driver's files are below it.
        dev: its ``dev/`` holds the device nodes.
        hook: the program ``nvidia-cdi-hook``, or ``nvidia-ctk``; ``None`` where there is none.
    """

    driver: Path = Path("/")
    dev: Path = Path("/")
    hook: Path | None = None


@dataclass(frozen=True, slots=True)
class Written:
    """A specification with what a person should know of it."""

    spec: Spec = field(hash=False)
    warnings: tuple[str, ...] = ()


def gpu_spec(
    kind: str,
    gpus: Sequence[Gpu],
    minors: Minors,
    *,
    files: DriverFiles,
    nodes: Iterable[str],
    roots: Roots,
) -> Written | None:
    """Return the specification of *gpus* and their MIG devices; ``None`` if none can be named.

    Every GPU and MIG device is a device by its UUID, and :data:`ALL` is every one that is not
    lost. A GPU in MIG mode is its device node alone, as the MIG strategy ``none`` offers it.
    *nodes* are the device nodes that the host has, below ``/dev``.
    """
    found, refused = _by_uuid(gpus, minors)
    if not found:
        return None
    lost = {gpu.uuid for gpu in gpus if gpu.is_lost} | {
        one.uuid for gpu in gpus if gpu.is_lost and gpu.mig for one in gpu.mig.instances
    }
    every = dict.fromkeys(node for name, own in found.items() if name not in lost for node in own)
    devices = [_device(name, _node_edits(own, roots.dev)) for name, own in found.items()]
    if every:
        devices.append(_device(ALL, _node_edits(every, roots.dev)))
    control = [name for name in CONTROL_NODES if name in set(nodes)]
    edits: dict[str, Any] = {
        "env": ["NVIDIA_VISIBLE_DEVICES=void"],  # or NVIDIA's hook would add GPUs of its own
        **_node_edits(control, roots.dev),
        "mounts": list(_driver_mounts(files, roots)),
    }
    if hooks := list(_hooks(files, roots.hook)):
        edits["hooks"] = hooks
    warnings = (*refused, *_hook_warning(files, roots))
    return Written(_spec(kind, devices, {k: v for k, v in edits.items() if v}), warnings)


def channel_spec(kind: str, channels: Iterable[int], roots: Roots) -> Spec | None:
    """Return the specification of IMEX channels by number; ``None`` for none."""
    devices = [_device(str(n), _node_edits([channel_node(n)], roots.dev)) for n in channels]
    return _spec(kind, devices, {}) if devices else None


def feature_spec(
    kind: str, nodes: Sequence[str], mounts: Iterable[HostPath], roots: Roots
) -> Spec | None:
    """Return the specification of a feature's one device, :data:`ALL`; ``None`` without *nodes*."""
    if not nodes:
        return None
    edits: dict[str, Any] = _node_edits(nodes, roots.dev)
    if found := [_mount(file, roots.driver, _FILE_OPTIONS) for file in mounts]:
        edits["mounts"] = found
    return _spec(kind, [_device(ALL, edits)], {})


def lowest_version(kind: str, devices: Sequence[Mapping[str, Any]], edits: Spec) -> str:
    """Return the first version of CDI that knows all that is used (SPEC.md, "Released versions").

    A runtime refuses a specification of a version that it does not know, and containerd 1.7.0
    (CDI's library v0.5.4) knows none after 0.5.0. What we never write is not looked for.
    """
    every = [edits, *(device["containerEdits"] for device in devices)]
    if "." in kind.partition("/")[2]:
        return "0.6.0"
    has_host_path = any("hostPath" in node for one in every for node in one.get("deviceNodes", ()))
    if has_host_path or any(device["name"][0].isdigit() for device in devices):
        return "0.5.0"
    return _LOWEST


def _spec(kind: str, devices: Sequence[Mapping[str, Any]], edits: Spec) -> Spec:
    version = lowest_version(kind, devices, edits)
    spec = {"cdiVersion": version, "kind": kind, "devices": list(devices)}
    return {**spec, "containerEdits": edits} if edits else spec


def _by_uuid(gpus: Sequence[Gpu], minors: Minors) -> tuple[dict[str, list[str]], list[str]]:
    """Return the device nodes of each GPU and MIG device, and what has none that are known."""
    found: dict[str, list[str]] = {}
    refused: list[str] = []
    for gpu in gpus:
        if gpu.uuid is None:
            continue  # never offered
        if gpu.minor is None or not is_device(gpu.uuid):
            refused.append(f"{gpu.name} ({gpu.uuid}) has no known minor number, or no CDI name")
            continue
        found[gpu.uuid] = [f"nvidia{gpu.minor}"]
        for one in gpu.mig.instances if gpu.mig else ():
            numbers = capabilities(minors, gpu.minor, one.gpu_instance, one.compute_instance)
            if numbers is None or not is_device(one.uuid):
                refused.append(
                    f"{one.uuid} of {gpu.name} has no known capabilities, or no CDI name"
                )
            else:
                caps = (f"nvidia-caps/nvidia-cap{number}" for number in numbers)
                found[one.uuid] = [f"nvidia{gpu.minor}", *caps]
    return found, [f"not in the CDI specification: {what}" for what in refused]


def _device(name: str, edits: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": name, "containerEdits": edits}


def _node_edits(names: Iterable[str], dev_root: Path) -> dict[str, Any]:
    nodes = [_node(name, dev_root) for name in names]
    return {"deviceNodes": nodes} if nodes else {}


def _node(name: str, dev_root: Path) -> dict[str, str]:
    """Return a device node; its numbers are left to the runtime, which looks at the host's."""
    path, host = f"/dev/{name}", str(dev_root / "dev" / name)
    node = {"path": path, "permissions": "rw"}  # no "m": nothing in a container makes nodes
    return node if host == path else {**node, "hostPath": host}


def _driver_mounts(files: DriverFiles, roots: Roots) -> Iterator[dict[str, Any]]:
    for file in (*files.libraries, *files.programs):
        yield _mount(file, roots.driver, _FILE_OPTIONS)
    if roots.hook is None:
        for file in _as_linked(files):
            yield _mount(file, roots.driver, _FILE_OPTIONS)
    for file in files.sockets:
        yield _mount(file, roots.driver, _SOCKET_OPTIONS)


def _as_linked(files: DriverFiles) -> Iterator[HostPath]:
    """Yield each library once more at each of its links, for want of a hook to make them."""
    known = {file.path: file.at for file in files.libraries}
    waiting = {path: str(PurePosixPath(path).with_name(said)) for said, path in files.links}
    while found := {path: known[to] for path, to in waiting.items() if to in known}:
        yield from (HostPath(path, at) for path, at in sorted(found.items()))
        known |= found  # for links to links
        waiting = {path: to for path, to in waiting.items() if path not in found}


def _mount(file: HostPath, root: Path, options: Sequence[str]) -> dict[str, Any]:
    host = str(root / file.at.removeprefix("/"))
    return {"hostPath": host, "containerPath": file.path, "options": list(options)}


def _hooks(files: DriverFiles, hook: Path | None) -> Iterator[dict[str, Any]]:
    """Yield calls that every version of the toolkit knows that has the program."""
    if hook is None:
        return
    links = [word for said, path in files.links for word in ("--link", f"{said}::{path}")]
    folders = dict.fromkeys(file.path.rpartition("/")[0] for file in files.libraries)
    if links:
        yield _hook(hook, "create-symlinks", links)
    if folders:
        words = [word for folder in folders for word in ("--folder", folder)]
        yield _hook(hook, "update-ldcache", words)


def _hook(hook: Path, name: str, words: Sequence[str]) -> dict[str, Any]:
    called = [hook.name, "hook"] if hook.name == "nvidia-ctk" else [hook.name]
    return {"hookName": "createContainer", "path": str(hook), "args": [*called, name, *words]}


def _hook_warning(files: DriverFiles, roots: Roots) -> Iterator[str]:
    if not files.libraries:
        yield "the CDI specification has no library of the driver, for none was found"
    elif roots.hook is None:
        yield (
            "the CDI specification has no hook: the host has no nvidia-cdi-hook, and only images "
            f"whose loader looks into {files.libraries[0].path.rpartition('/')[0]} find the driver"
        )
