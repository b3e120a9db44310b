"""What the kubelet's managers wrote down, from their files.

``cpu_manager_state`` and ``memory_manager_state`` lie in ``--root-dir``; the device manager's
checkpoint and the plugins' sockets in ``/var/lib/kubelet/device-plugins``, whatever that says
(kubelet v1beta1 constants.go, DevicePluginPath). Checksums are of Go's own making and are not
verified: the kubelet replaces these files as a whole, by rename.
"""

from collections.abc import Callable
from errno import EISDIR, ENOENT, ENOTDIR, ENOTSUP
from pathlib import Path
from typing import Any, TypeVar

from agent.errors import DecodeError
from agent.formats import json
from agent.model.kubelet_state import KubeletState
from agent.model.snapshot import ProbeIssue
from agent.probes.kubelet.kubelet_state_cpu import cpu_state
from agent.probes.kubelet.kubelet_state_devices import device_state
from agent.probes.kubelet.kubelet_state_memory import memory_state
from agent.probes.kubelet.sources import ROOT
from agent.probes.sysfs.tree import MAX_BYTES, Root, Tree

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
