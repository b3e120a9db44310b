"""Our CDI specifications on the host, written before the GPUs are offered."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from agent.deviceplugin.cdi import OWN_KIND, sibling_kind, written_kind
from agent.deviceplugin.cdi_spec import Roots, Spec, channel_spec, feature_spec, gpu_spec
from agent.deviceplugin.devices import Minors
from agent.deviceplugin.driver_files import DriverFiles, HostPath, driver_files, has_program
from agent.deviceplugin.host_files import HostFile, below, resolved, seen
from agent.deviceplugin.host_nodes import channel_node, features_with_nodes, present_nodes
from agent.deviceplugin.settings import Feature, PluginSettings
from agent.errors import InputError
from agent.model.snapshot import Snapshot

_PREFIX = "nodetopo-"
"""Prefix of our files' names; NVIDIA's begin with a vendor or are ``nvidia.yaml``."""

_GDS_FILES = ("/run/udev", "/etc/cufile.json")
"""What GPUDirect Storage reads (nvidia-container-toolkit v1.19.0, internal/discover/gds.go)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CdiSettings:
    """How and where specifications are written.

    Attributes:
        directory: on the host, where the runtimes look; ``/var/run/cdi`` is emptied at boot.
        kind: of the GPUs; the others are of the same vendor.
        hook: on the host, the program that makes the driver's libraries known to the loader of a
            container.

    Raises:
        InputError: the kind is invalid or NVIDIA's, or a path is relative.
    """

    directory: Path = Path("/var/run/cdi")
    kind: str = OWN_KIND
    hook: Path = Path("/usr/bin/nvidia-cdi-hook")

    def __post_init__(self) -> None:
        if written_kind(self.kind) != self.kind:
            raise InputError(f"{self.kind} is not written here", f"write {OWN_KIND}")
        for path in (self.directory, self.hook):
            if not path.is_absolute():
                raise InputError(f"{path} is relative", "start it with /")


class CdiWriter:
    """Write one file for each kind of device; one thread calls it, and no RPC does."""

    def __init__(self, settings: CdiSettings, plugin: PluginSettings) -> None:
        """Touch nothing yet; *plugin* has the roots, device nodes, channels and features."""
        self._settings = settings
        self._plugin = plugin

    def update(self, snapshot: Snapshot, minors: Minors) -> tuple[str, ...]:
        """Write the specifications of *snapshot* that changed; return warnings for an operator.

        Its GPUs have to be those that are offered, lost ones included. If none of them can be
        named, the file stays: NVML may only be slow. A channel or feature whose device nodes are
        gone has its file deleted. Files stay at the end of this process, for containers that
        restart in the meantime.
        """
        settings, plugin = self._settings, self._plugin
        nodes = present_nodes(plugin)
        at = resolved(plugin.host_root, str(plugin.driver_root))
        driver_root = None if at is None else below(plugin.host_root, at)
        has_hook = has_program(plugin.host_root, str(settings.hook))
        roots = Roots(
            driver=plugin.driver_root,
            dev=nodes.root,
            hook=settings.hook if has_hook else None,
        )
        warnings: list[str] = []
        if snapshot.driver_version is not None and snapshot.gpus:
            files = DriverFiles(version=snapshot.driver_version)
            if driver_root is not None:
                files = driver_files(driver_root, snapshot.driver_version)
            written = gpu_spec(
                settings.kind, snapshot.gpus, minors, files=files, nodes=nodes.names, roots=roots
            )
            if written is None:
                warnings.append("CDI specification not written: no GPU has a known minor number")
            else:
                warnings += (*written.warnings, *self._file(settings.kind).write(written.spec))

        if plugin.imex_channels:
            kind = sibling_kind(settings.kind, "imex-channel")
            channels = [n for n in plugin.imex_channels if channel_node(n) in nodes.names]
            warnings += self._keep(kind, channel_spec(kind, channels, roots))

        for feature in sorted(plugin.features):
            kind = sibling_kind(settings.kind, feature.value)
            own = [node for node in nodes.names if features_with_nodes([feature], [node])]
            mounts = []
            if feature is Feature.GDS and driver_root is not None:
                paths = ((path, resolved(driver_root, path)) for path in _GDS_FILES)
                mounts = [HostPath(path, at) for path, at in paths if at]
            warnings += self._keep(kind, feature_spec(kind, own, mounts, roots))
        return tuple(warnings)

    def _keep(self, kind: str, spec: Spec | None) -> tuple[str, ...]:
        file = self._file(kind)
        return file.remove() if spec is None else file.write(spec)

    def _file(self, kind: str) -> CdiFile:
        return CdiFile(seen(self._plugin.host_root, self._settings.directory), kind)


class CdiFile:
    """The specification of one kind, in a directory that other programs write to as well.

    Its name and the kind inside show that it is ours.
    """

    def __init__(self, directory: Path, kind: str) -> None:
        """Touch nothing yet."""
        self._kind = kind
        self._file = HostFile(directory / f"{_PREFIX}{kind.replace('/', '-')}.json")

    @property
    def path(self) -> Path:
        """Where the file is, or would be."""
        return self._file.path

    def write(self, spec: Spec) -> tuple[str, ...]:
        """Write *spec*; return why that failed, nothing after a success."""
        problem = self._file.write(json.dumps(spec, indent=2) + "\n")
        return () if problem is None else (f"CDI specification not written: {problem}",)

    def remove(self) -> tuple[str, ...]:
        """Delete the file if it exists and is ours; return why that failed, or was not done."""
        text = self._file.text()
        if text is None:
            return ()
        try:
            spec = json.loads(text)
        except ValueError:
            spec = None
        if not isinstance(spec, dict) or spec.get("kind") != self._kind:
            return (f"{self.path} was left alone: it is no specification of {self._kind}",)
        problem = self._file.remove()
        return () if problem is None else (problem,)
