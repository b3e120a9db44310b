"""Specifications of the Container Device Interface for GPUs and related devices.

They are JSON documents by CNCF CDI's SPEC.md 1.1.0, and give a container the same as NVIDIA's
specifications for computing (nvidia-container-toolkit v1.19.0, pkg/nvcdi): device nodes, the
driver's libraries, programs and sockets, and hooks that make the libraries known to the loader.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, TypeAlias

from msgspec import Struct, field

from nodetopo.deviceplugin.cdi import ALL, is_device
from nodetopo.deviceplugin.cdi_hooks import (
    CREATE_LINKS,
    ENABLE_COMPAT,
    KEEP_NODES,
    OLDEST,
    UPDATE_CACHE,
)
from nodetopo.deviceplugin.devices import Minors, capabilities
from nodetopo.deviceplugin.driver_files import CUDA, NVML, DriverFiles, HostPath
from nodetopo.deviceplugin.host_nodes import CONTROL_NODES, INDISPENSABLE_NODES, channel_node
from nodetopo.model.digits import is_digits
from nodetopo.model.gpu import Gpu

Spec: TypeAlias = Mapping[str, Any]
"""A specification, to be written as JSON."""

_LOWEST_VERSION = "0.3.0"
"""The version of a specification without later features."""

_FILE_OPTIONS = ("ro", "nosuid", "nodev", "rbind", "rprivate")
_SOCKET_OPTIONS = ("nosuid", "nodev", "rbind", "rprivate", "noexec")


class Roots(Struct, frozen=True, kw_only=True):
    """Paths as seen by the container runtime, in the host's file system."""

    driver: Path = Path("/")  # the root of the driver's files
    dev: Path = Path("/")  # the parent of dev/ with the device nodes
    hook: Path | None = None  # nvidia-cdi-hook or nvidia-ctk; None without one
    hooks: frozenset[str] = OLDEST  # names of the program's hooks to call

    @property
    def makes_links(self) -> bool:
        """Whether a hook creates the links of libraries."""
        return self.hook is not None and CREATE_LINKS in self.hooks


class GpuSpec(Struct, frozen=True, kw_only=True):
    """The specification of GPUs, and its gaps."""

    # None if containers would start without a working driver.
    spec: Spec | None = None
    refusal: str | None = None  # why `spec` is None, with a cure
    # UUID of a GPU or MIG device → why it is left out.
    left_out: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


def gpu_spec(
    kind: str,
    gpus: Sequence[Gpu],
    minors: Minors,
    *,
    files: DriverFiles,
    nodes: Collection[str],
    roots: Roots,
) -> GpuSpec:
    """Return the specification of *gpus* and their MIG devices.

    Every GPU and MIG device is a device named by its UUID, and :data:`ALL` has all that are not
    lost. A GPU in MIG mode has only its device node, as offered by the MIG strategy ``none``.
    *nodes* are the host's device nodes below ``/dev``; a device with a missing node is left out.
    Without the CUDA library, an indispensable node or any device, no specification is returned: a
    container would start without a GPU.
    """
    host_nodes, dev = set(nodes), roots.dev / "dev"
    nodes_by_uuid: dict[str, list[str]] = {}
    lost: set[str] = set()
    left_out: dict[str, str] = {}

    def add(uuid: str, what: str, names: list[str] | None, unknown: str) -> None:
        if names is None or not is_device(uuid):
            left_out[uuid] = f"{what} has no known {unknown}, or no CDI name"
        elif absent := [str(dev / name) for name in names if name not in host_nodes]:
            verb = "does" if len(absent) == 1 else "do"
            left_out[uuid] = f"{what} needs {' and '.join(absent)}, which {verb} not exist"
        else:
            nodes_by_uuid[uuid] = names

    for gpu in gpus:
        if gpu.uuid is None:
            continue  # never offered
        instances = gpu.mig.instances if gpu.mig else ()
        if gpu.is_lost:
            lost |= {gpu.uuid, *(instance.uuid for instance in instances)}
        own = None if gpu.minor is None else [f"nvidia{gpu.minor}"]
        add(gpu.uuid, f"{gpu.name} ({gpu.uuid})", own, "minor number")
        for instance in instances:
            numbers = None
            if gpu.minor is not None:
                numbers = capabilities(
                    minors, gpu.minor, instance.gpu_instance, instance.compute_instance
                )
            caps = None if numbers is None else [f"nvidia-caps/nvidia-cap{n}" for n in numbers]
            both = None if own is None or caps is None else [*own, *caps]
            add(instance.uuid, f"{instance.uuid} of {gpu.name}", both, "capabilities")

    if refusal := _refusal(files, host_nodes, nodes_by_uuid, left_out, roots):
        return GpuSpec(refusal=refusal, left_out=left_out)

    devices = [_device(uuid, _node_edits(own, roots.dev)) for uuid, own in nodes_by_uuid.items()]
    present = (own for uuid, own in nodes_by_uuid.items() if uuid not in lost)
    if every := dict.fromkeys(node for own in present for node in own):
        devices.append(_device(ALL, _node_edits(every, roots.dev)))

    edits: dict[str, Any] = {
        "env": ["NVIDIA_VISIBLE_DEVICES=void"],  # or NVIDIA's hook would add other GPUs
        **_node_edits([name for name in CONTROL_NODES if name in host_nodes], roots.dev),
        "mounts": _driver_mounts(files, roots),
    }
    if roots.hook is not None and (hooks := list(_hooks(files, roots.hook, roots.hooks))):
        edits["hooks"] = hooks
    warnings = [f"not in the CDI specification: {reason}" for reason in left_out.values()]
    if not files.has(NVML):
        warnings.append(
            f"the CDI specification has no {files.file_name(NVML)}, which nvidia-smi and NCCL use: "
            f"it is not where {files.file_name(CUDA)} is"
        )
    if roots.hook is None:
        warnings.append(
            "the CDI specification has no hook: the host has no nvidia-cdi-hook, and only images "
            f"whose loader looks into {files.libraries[0].path.rpartition('/')[0]} find the driver"
        )
    return GpuSpec(spec=_spec(kind, devices, edits), left_out=left_out, warnings=tuple(warnings))


def _refusal(
    files: DriverFiles,
    host_nodes: Collection[str],
    devices: Collection[str],
    left_out: Mapping[str, str],
    roots: Roots,
) -> str | None:
    """Return why no container could use a specification of these parts, ``None`` if one could."""
    if not files.has(CUDA):
        return (
            f"no {files.file_name(CUDA)} was found below {roots.driver}, neither by the "
            "loader's cache nor in the usual directories — set driver-root to where the driver is, "
            "and let the daemon see that directory and the host's /etc/ld.so.cache"
        )
    if absent := [name for name in INDISPENSABLE_NODES if name not in host_nodes]:
        paths = " and ".join(str(roots.dev / "dev" / name) for name in absent)
        return (
            f"without {paths} no container can use a GPU — make them with `nvidia-ctk system "
            "create-device-nodes --control-devices`, set dev-root to where they are, or let the "
            "daemon see that directory"
        )
    if not devices:
        reasons = list(left_out.values())
        return (
            f"no device can be described: {reasons[0]} — see whether NVML and the host's /dev "
            "agree on the GPUs"
            if reasons
            else "no GPU has a UUID — see `nodetopo health` for why NVML does not say"
        )
    return None


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
    if mounted := [_mount(file, roots.driver, _FILE_OPTIONS) for file in mounts]:
        edits["mounts"] = mounted
    return _spec(kind, [_device(ALL, edits)], {})


def nodes_spec(kind: str, nodes: Mapping[str, Sequence[str]], dev_root: Path) -> Spec | None:
    """Return a specification of devices that consist of device nodes; ``None`` without any.

    *nodes* are each device's nodes, below ``/dev``.
    """
    devices = [_device(name, _node_edits(own, dev_root)) for name, own in nodes.items() if own]
    return _spec(kind, devices, {}) if devices else None


def lowest_version(kind: str, devices: Sequence[Mapping[str, Any]], edits: Spec) -> str:
    """Return the first version of CDI with all used features (SPEC.md, "Released versions").

    A runtime refuses a specification of an unknown version, and containerd 1.7.0 (CDI's library
    v0.5.4) knows none after 0.5.0. Only features written by this program are checked.
    """
    every = [edits, *(device["containerEdits"] for device in devices)]
    if "." in kind.partition("/")[2]:
        return "0.6.0"
    has_host_path = any(
        "hostPath" in node for edits in every for node in edits.get("deviceNodes", ())
    )
    if has_host_path or any(is_digits(device["name"][0]) for device in devices):
        return "0.5.0"
    return _LOWEST_VERSION


def _spec(kind: str, devices: Sequence[Mapping[str, Any]], edits: Spec) -> Spec:
    version = lowest_version(kind, devices, edits)
    spec = {"cdiVersion": version, "kind": kind, "devices": list(devices)}
    return {**spec, "containerEdits": edits} if edits else spec


def _device(name: str, edits: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": name, "containerEdits": edits}


def _node_edits(names: Iterable[str], dev_root: Path) -> dict[str, Any]:
    """Return device nodes; their numbers are left to the runtime, which looks at the host's."""
    nodes = []
    for name in names:
        path, host_path = f"/dev/{name}", str(dev_root / "dev" / name)
        node = {"path": path, "permissions": "rw"}  # no "m": nothing in a container makes nodes
        nodes.append(node if host_path == path else {**node, "hostPath": host_path})
    return {"deviceNodes": nodes} if nodes else {}


def _mount(file: HostPath, root: Path, options: Sequence[str]) -> dict[str, Any]:
    host_path = str(root / file.at.removeprefix("/"))
    return {"hostPath": host_path, "containerPath": file.path, "options": list(options)}


def _driver_mounts(files: DriverFiles, roots: Roots) -> list[dict[str, Any]]:
    mounted = [*files.libraries, *files.programs]
    if not roots.makes_links:
        # Without a hook to make the links, each library is mounted at each of its links.
        known = {file.path: file.at for file in files.libraries}
        waiting = {path: str(PurePosixPath(path).with_name(to)) for to, path in files.links}
        while reached := {path: known[to] for path, to in waiting.items() if to in known}:
            mounted += [HostPath(path, at) for path, at in sorted(reached.items())]
            known |= reached  # for links to links
            waiting = {path: to for path, to in waiting.items() if path not in reached}
    return [
        *(_mount(file, roots.driver, _FILE_OPTIONS) for file in mounted),
        *(_mount(file, roots.driver, _SOCKET_OPTIONS) for file in files.sockets),
    ]


def _hooks(files: DriverFiles, hook: Path, names: Collection[str]) -> Iterator[dict[str, Any]]:
    """Yield the calls of those hooks of *names* that have something to do, in NVIDIA's order."""
    command = [hook.name, "hook"] if hook.name == "nvidia-ctk" else [hook.name]
    links = [word for target, path in files.links for word in ("--link", f"{target}::{path}")]
    folders = dict.fromkeys(file.path.rpartition("/")[0] for file in files.libraries)
    folder_words = [word for folder in folders for word in ("--folder", folder)]
    calls: tuple[tuple[str, list[str] | None], ...] = (
        (CREATE_LINKS, links or None),
        (ENABLE_COMPAT, [f"--host-driver-version={files.version}"]),
        (UPDATE_CACHE, folder_words or None),
        (KEEP_NODES, []),
    )
    for name, words in calls:
        if words is not None and name in names:
            yield {
                "hookName": "createContainer",
                "path": str(hook),
                "args": [*command, name, *words],
            }
