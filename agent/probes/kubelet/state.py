"""What the kubelet's managers wrote down, from their files.

``cpu_manager_state`` and ``memory_manager_state`` lie in ``--root-dir``; the device manager's
checkpoint and the plugins' sockets in ``/var/lib/kubelet/device-plugins``, whatever that says
(kubelet v1beta1 constants.go, DevicePluginPath). Checksums are of Go's own making and are not
verified: the kubelet replaces these files as a whole, by rename.
"""

from collections.abc import Callable, Iterator
from errno import EISDIR, ENOENT, ENOTDIR, ENOTSUP
from pathlib import Path
from typing import Any, TypeVar

from agent.errors import DecodeError
from agent.formats import json
from agent.formats.json import json_count, json_items, json_map, json_text
from agent.model.kubelet_state import (
    CpuState,
    DeviceState,
    HeldDevices,
    HeldMemory,
    KubeletState,
    MemoryBlock,
    MemoryState,
)
from agent.model.numa import CpuSet
from agent.model.snapshot import ProbeIssue
from agent.probes.kubelet.sources import ROOT
from agent.probes.sysfs.tree import MAX_BYTES, Root, Tree

# ``cpu_manager_state``: kubernetes pkg/kubelet/cm/cpumanager/state/checkpoint.go.
#
# Versions 2 (1.18) and 3 (1.36) have the same fields at the top; version 4 (1.37) repeats them in
# a text ``data``, which is what counts. Version 1, of kubelets before 1.18, named containers by
# the runtime's ids, and no pods.

NONE = "none"
"""The policy under which the file has no CPUs."""


MAX_CPUS = 1 << 17
"""Most CPUs of all containers together. The CPUs of Linux are 8192 at most, and init containers
hand theirs on; 4 MiB of ``0-65535`` would fill the memory."""


def cpu_state(value: Any) -> CpuState:
    """Return what the file's JSON says.

    Raises:
        DecodeError: it is not of this form.
    """
    document = authoritative(value)
    policy = json_text(document.get("policyName"), "policyName")
    default = _cpus(document.get("defaultCpuSet"), "defaultCpuSet")
    return CpuState(
        policy=policy,
        default=None if policy == NONE else default,
        entries=_entries(document),
    )


def _entries(document: dict[str, Any]) -> dict[str, dict[str, CpuSet]]:
    found: dict[str, dict[str, CpuSet]] = {}
    count = 0
    for uid, containers in json_map(document.get("entries"), "entries").items():
        found[uid] = {}
        for container, value in json_map(containers, f"entries.{uid}").items():
            found[uid][container] = cpus = _cpus(value, f"entries.{uid}.{container}")
            count += len(cpus)
            if count > MAX_CPUS:
                raise DecodeError("entries", f"more than {MAX_CPUS} CPUs")
    return found


def authoritative(value: Any) -> dict[str, Any]:
    """Return the fields that a 1.37 kubelet goes by, which are those of ``data`` if it is there.

    Raises:
        DecodeError: it is no object.
    """
    document = dict(json_map(value, ""))
    if document.get("data"):
        try:
            return dict(json_map(json.load(json_text(document["data"], "data")), "data"))
        except ValueError as error:
            raise DecodeError("data", str(error)) from None
    return document


def _cpus(value: Any, path: str) -> CpuSet:
    try:
        return CpuSet.parse(json_text(value, path))
    except ValueError as error:
        raise DecodeError(path, str(error)) from None


# ``kubelet_internal_checkpoint``: kubernetes pkg/kubelet/cm/devicemanager/checkpoint.
#
# In this form since 1.20, up to 1.37. What the plugins answered (``AllocResp``) is passed over.


def device_state(value: Any) -> DeviceState:
    """Return what the file's JSON says, in its order; ids sorted.

    Raises:
        DecodeError: it is not of this form.
    """
    data = json_map(json_map(value, "").get("Data"), "Data")
    registered = json_map(data.get("RegisteredDevices"), "Data.RegisteredDevices")
    entries = json_items(data.get("PodDeviceEntries"), "Data.PodDeviceEntries")
    return DeviceState(
        held=tuple(_held(entry, path) for entry, path in entries),
        registered={
            resource: _ids(registered[resource], f"Data.RegisteredDevices.{resource}")
            for resource in sorted(registered)
        },
    )


def _held(value: Any, path: str) -> HeldDevices:
    entry = json_map(value, path)
    by_node = json_map(entry.get("DeviceIDs"), f"{path}.DeviceIDs")

    def text(field: str) -> str:
        return json_text(entry.get(field), f"{path}.{field}")

    return HeldDevices(
        pod_uid=text("PodUID"),
        container=text("ContainerName"),
        resource=text("ResourceName"),
        ids={node: _ids(by_node[node], f"{path}.DeviceIDs.{node}") for node in sorted(by_node)},
    )


def _ids(value: Any, path: str) -> tuple[str, ...]:
    return tuple(sorted(_texts(value, path)))


def _texts(value: Any, path: str) -> Iterator[str]:
    return (json_text(item, at) for item, at in json_items(value, path))


# ``memory_manager_state``: kubernetes pkg/kubelet/cm/memorymanager/state/{checkpoint,state}.go.
#
# Versions 1 (1.21) and 2 (1.36) have the same fields at the top; version 3 (1.37) repeats them in a
# text ``data``, which is what counts. Sizes are in bytes.


def memory_state(value: Any) -> MemoryState:
    """Return what the file's JSON says, blocks by NUMA node and kind.

    Raises:
        DecodeError: it is not of this form.
    """
    document = authoritative(value)
    blocks = sorted(_blocks(document), key=lambda block: (block.numa_node, block.kind))
    return MemoryState(
        policy=json_text(document.get("policyName"), "policyName"),
        blocks=tuple(blocks),
        entries={
            uid: {
                container: tuple(_memory_held(held, f"entries.{uid}.{container}"))
                for container, held in json_map(containers, f"entries.{uid}").items()
            }
            for uid, containers in json_map(document.get("entries"), "entries").items()
        },
    )


def _blocks(document: dict[str, Any]) -> Iterator[MemoryBlock]:
    for node, state in json_map(document.get("machineState"), "machineState").items():
        path = f"machineState.{node}"
        if not node.isdecimal():
            raise DecodeError(path, "expected the number of a NUMA node")
        fields = json_map(state, path)
        cells = json_items(fields.get("cells"), f"{path}.cells")
        together = tuple(json_count(cell, at) for cell, at in cells)
        for kind, table in json_map(fields.get("memoryMap"), f"{path}.memoryMap").items():
            yield _block(int(node), kind, table, together)


def _block(node: int, kind: str, value: Any, cells: tuple[int, ...]) -> MemoryBlock:
    path = f"machineState.{node}.memoryMap.{kind}"
    table = json_map(value, path)

    def size(field: str) -> int:
        return json_count(table.get(field), f"{path}.{field}")

    return MemoryBlock(
        numa_node=node,
        kind=kind,
        total=size("total"),
        system_reserved=size("systemReserved"),
        allocatable=size("allocatable"),
        reserved=size("reserved"),
        free=size("free"),
        cells=cells,
    )


def _memory_held(value: Any, path: str) -> Iterator[HeldMemory]:
    for item, at in json_items(value, path):
        block = json_map(item, at)
        nodes = json_items(block.get("numaAffinity"), f"{at}.numaAffinity")
        yield HeldMemory(
            kind=json_text(block.get("type"), f"{at}.type"),
            size=json_count(block.get("size"), f"{at}.size"),
            numa_nodes=tuple(json_count(node, place) for node, place in nodes),
        )


PLUGINS = "var/lib/kubelet/device-plugins"


CHECKPOINT = "kubelet_internal_checkpoint"


NO_PLUGINS = frozenset({"kubelet.sock", CHECKPOINT, "DEPRECATION"})
"""What else is in that directory: the kubelet's own socket and files (devicemanager/manager.go,
socket and checkpoint names; DEPRECATION was written until 1.27)."""


_T = TypeVar("_T")


def read_kubelet_state(
    host: Root, root_directory: str | None
) -> tuple[KubeletState | None, tuple[ProbeIssue, ...]]:
    """Return what the kubelet's managers wrote down; ``None`` where nothing of it is there.

    Reads three files and a directory.

    Args:
        root_directory: the kubelet's ``--root-dir``; ``None`` for its default.
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


class _Reader:
    """Reads the files, and remembers what was wrong with them."""

    def __init__(self, host: Tree) -> None:
        self.issues: list[ProbeIssue] = []
        self._host = host

    def read(self, path: str, decode: Callable[[Any], _T]) -> _T | None:
        """Return what a file has; ``None`` where it is not there, or with an issue."""
        try:
            return decode(json.load(self._text(path)))
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

    def _text(self, path: str) -> str:
        raw = self._host.content(path)
        if len(raw) >= MAX_BYTES:
            raise ValueError(f"larger than {MAX_BYTES >> 20} MiB")
        return raw.decode("utf-8")

    def _report(self, path: str, reason: str) -> None:
        place = str(Path("/", path))
        self.issues.append(ProbeIssue(probe="kubelet", subject=place, reason=reason))
