"""The state files of the kubelet's managers.

``cpu_manager_state`` and ``memory_manager_state`` lie in ``--root-dir``; the device manager's
checkpoint and the plugins' sockets in ``/var/lib/kubelet/device-plugins``, regardless of it
(kubelet v1beta1 constants.go, DevicePluginPath). Checksums depend on Go's internals and are not
verified: the kubelet replaces these files atomically.
"""

from collections.abc import Callable, Iterator
from errno import EISDIR, ENOENT, ENOTDIR, ENOTSUP
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from nodetopo.errors import DecodeError
from nodetopo.formats.fields import Object, as_count, as_items, as_object, as_text
from nodetopo.formats.safe import load_json
from nodetopo.model.digits import is_digits
from nodetopo.model.kubelet_state import (
    CpuState,
    DeviceState,
    HeldDevices,
    HeldMemory,
    KubeletState,
    MemoryBlock,
    MemoryState,
)
from nodetopo.model.numa import CpuSet
from nodetopo.model.probe_issue import ProbeIssue
from nodetopo.probes.kubelet.sources import ROOT
from nodetopo.probes.sysfs.tree import MAX_BYTES, Root, Tree

PLUGINS = "var/lib/kubelet/device-plugins"

CHECKPOINT = "kubelet_internal_checkpoint"

NO_PLUGINS = frozenset({"kubelet.sock", CHECKPOINT, "DEPRECATION"})
"""Other entries of that directory: the kubelet's own socket and files (devicemanager/manager.go,
socket and checkpoint names; DEPRECATION was written until 1.27).
"""

NONE = "none"
"""The policy under which ``cpu_manager_state`` has no CPUs."""

MAX_CPUS = 1 << 17
"""Most CPUs of all containers together. The CPUs of Linux are 8192 at most, and init containers
hand theirs on; 4 MiB of ``0-65535`` would fill the memory."""

Record: TypeAlias = tuple[str, str, str, frozenset[str]]
"""The UID of a pod, the name of a container, a resource, and the ids that the container has."""

Records: TypeAlias = frozenset[Record]

_T = TypeVar("_T")


def read_kubelet_state(
    host: Root, root_directory: str | None
) -> tuple[KubeletState | None, tuple[ProbeIssue, ...]]:
    """Return the state of the kubelet's managers, and issues; None where no file exists.

    Reads three files and a directory.

    Args:
        root_directory: the kubelet's ``--root-dir``; None for its default.
    """
    reader = _Reader(Tree.of(host))
    root = (root_directory or ROOT).strip("/")
    state = KubeletState(
        cpu=reader.read(f"{root}/cpu_manager_state", cpu_state),
        memory=reader.read(f"{root}/memory_manager_state", memory_state),
        devices=reader.read(f"{PLUGINS}/{CHECKPOINT}", device_state),
        plugin_sockets=reader.sockets(),
    )
    return (None if state == KubeletState() else state), tuple(reader.issues)


class DeviceCheckpoint:
    """The device manager's checkpoint in *directory*, read again once the kubelet replaced it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._read: tuple[tuple[int, ...], Records | None] = (), None

    def records(self) -> Records | None:
        """Return what containers have; ``None`` if the checkpoint cannot be read."""
        try:
            status = (self._directory / CHECKPOINT).stat()
        except OSError:
            return None
        version = status.st_ino, status.st_mtime_ns, status.st_size
        if version != self._read[0]:
            state = _Reader(Tree.of(self._directory)).read(CHECKPOINT, device_state)
            if state is None:
                return None  # it is tried again: the kubelet may not write it for hours
            self._read = version, _records(state)
        return self._read[1]


class _Reader:
    """Reads the files and collects the issues."""

    def __init__(self, host: Tree) -> None:
        self.issues: list[ProbeIssue] = []
        self._host = host

    def read(self, path: str, decode: Callable[[Any], _T]) -> _T | None:
        """Return the content of a file; None where it does not exist, or with an issue."""
        try:
            raw = self._host.content(path)
            if len(raw) >= MAX_BYTES:
                self._report(path, f"larger than {MAX_BYTES >> 20} MiB")
                return None
            return decode(load_json(raw.decode("utf-8")))
        except OSError as error:
            if error.errno not in (ENOENT, ENOTDIR):
                is_other = error.errno in (EISDIR, ENOTSUP)  # a pipe would never end
                reason = "not a regular file" if is_other else error.strerror or str(error)
                self._report(path, reason)
        except (ValueError, DecodeError) as error:
            self._report(path, str(error))
        return None

    def sockets(self) -> tuple[str, ...] | None:
        """Return the plugins' sockets; files whose name begins with a dot are half-written."""
        try:
            names = self._host.names(PLUGINS)
        except OSError as error:
            if error.errno not in (ENOENT, ENOTDIR):
                self._report(PLUGINS, error.strerror or str(error))
            return None
        return tuple(name for name in names if name not in NO_PLUGINS and name[0] != ".")

    def _report(self, path: str, reason: str) -> None:
        place = str(Path("/", path))
        self.issues.append(ProbeIssue(probe="kubelet", subject=place, reason=reason))


def cpu_state(value: Any) -> CpuState:
    """Return the content of ``cpu_manager_state`` (pkg/kubelet/cm/cpumanager/state/checkpoint.go).

    Versions 2 (1.18) and 3 (1.36) have the same fields at the top; version 4 (1.37) repeats them in
    a text ``data``, which takes precedence. Version 1, of kubelets before 1.18, named containers by
    the runtime's ids, and no pods.
    """
    document = authoritative(value)
    policy = as_text(document.get("policyName"), "policyName")
    default = _cpus(document.get("defaultCpuSet"), "defaultCpuSet")
    entries: dict[str, dict[str, CpuSet]] = {}
    count = 0
    for uid, containers in as_object(document.get("entries"), "entries").items():
        entries[uid] = {}
        for container, text in as_object(containers, f"entries.{uid}").items():
            entries[uid][container] = cpus = _cpus(text, f"entries.{uid}.{container}")
            count += len(cpus)
            if count > MAX_CPUS:
                raise DecodeError("entries", f"more than {MAX_CPUS} CPUs")
    return CpuState(policy=policy, default=None if policy == NONE else default, entries=entries)


def authoritative(value: Any) -> Object:
    """Return the fields that a 1.37 kubelet uses: from ``data`` if it exists."""
    document = as_object(value, "")
    if document.get("data"):
        try:
            return as_object(load_json(as_text(document["data"], "data")), "data")
        except ValueError as error:
            raise DecodeError("data", str(error)) from None
    return document


def _cpus(value: Any, path: str) -> CpuSet:
    try:
        return CpuSet.parse(as_text(value, path))
    except ValueError as error:
        raise DecodeError(path, str(error)) from None


def device_state(value: Any) -> DeviceState:
    """Return the content of the checkpoint, in its order; ids sorted.

    In this form since 1.20, up to 1.37 (pkg/kubelet/cm/devicemanager/checkpoint). What the plugins
    answered (``AllocResp``) is left out.
    """
    data = as_object(as_object(value, "").get("Data"), "Data")
    registered = as_object(data.get("RegisteredDevices"), "Data.RegisteredDevices")
    held = []
    for item, path in as_items(data.get("PodDeviceEntries"), "Data.PodDeviceEntries"):
        entry = as_object(item, path)
        names = ("PodUID", "ContainerName", "ResourceName")
        by_node = as_object(entry.get("DeviceIDs"), f"{path}.DeviceIDs")
        uid, container, resource = (as_text(entry.get(name), f"{path}.{name}") for name in names)
        ids = {node: _ids(by_node[node], f"{path}.DeviceIDs.{node}") for node in sorted(by_node)}
        held.append(HeldDevices(pod_uid=uid, container=container, resource=resource, ids=ids))
    return DeviceState(
        held=tuple(held),
        registered={
            resource: _ids(registered[resource], f"Data.RegisteredDevices.{resource}")
            for resource in sorted(registered)
        },
    )


def _records(state: DeviceState) -> Records:
    return frozenset(
        (held.pod_uid, held.container, held.resource, frozenset().union(*held.ids.values()))
        for held in state.held
    )


def _ids(value: Any, path: str) -> tuple[str, ...]:
    return tuple(sorted(as_text(item, at) for item, at in as_items(value, path)))


def memory_state(value: Any) -> MemoryState:
    """Return the content of ``memory_manager_state``, blocks by NUMA node and kind, in bytes.

    Versions 1 (1.21) and 2 (1.36) have the same fields at the top; version 3 (1.37) repeats them in
    a text ``data``, which takes precedence
    (pkg/kubelet/cm/memorymanager/state/{checkpoint,state}.go).
    """
    document = authoritative(value)
    blocks = sorted(_blocks(document), key=lambda block: (block.numa_node, block.kind))
    policy = as_text(document.get("policyName"), "policyName")
    entries: dict[str, dict[str, tuple[HeldMemory, ...]]] = {}
    for uid, containers in as_object(document.get("entries"), "entries").items():
        entries[uid] = {}
        for container, items in as_object(containers, f"entries.{uid}").items():
            held = []
            for item, at in as_items(items, f"entries.{uid}.{container}"):
                block = as_object(item, at)
                nodes = as_items(block.get("numaAffinity"), f"{at}.numaAffinity")
                held.append(
                    HeldMemory(
                        kind=as_text(block.get("type"), f"{at}.type"),
                        size=as_count(block.get("size"), f"{at}.size"),
                        numa_nodes=tuple(as_count(node, place) for node, place in nodes),
                    )
                )
            entries[uid][container] = tuple(held)
    return MemoryState(
        policy=policy,
        blocks=tuple(blocks),
        entries=entries,
    )


def _blocks(document: Object) -> Iterator[MemoryBlock]:
    for node, state in as_object(document.get("machineState"), "machineState").items():
        path = f"machineState.{node}"
        if not is_digits(node):
            raise DecodeError(path, "expected the number of a NUMA node")
        fields = as_object(state, path)
        items = as_items(fields.get("cells"), f"{path}.cells")
        cells = tuple(as_count(cell, at) for cell, at in items)
        for kind, table in as_object(fields.get("memoryMap"), f"{path}.memoryMap").items():
            at = f"{path}.memoryMap.{kind}"
            names = ("total", "systemReserved", "allocatable", "reserved", "free")
            values = as_object(table, at)
            sizes = [as_count(values.get(name), f"{at}.{name}") for name in names]
            total, system_reserved, allocatable, reserved, free = sizes
            yield MemoryBlock(
                numa_node=int(node),
                kind=kind,
                total=total,
                system_reserved=system_reserved,
                allocatable=allocatable,
                reserved=reserved,
                free=free,
                cells=cells,
            )
