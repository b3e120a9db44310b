"""Our CDI specifications on the host, kept true to the GPUs: written before GPUs are offered."""

import json
from dataclasses import dataclass
from pathlib import Path

from agent.deviceplugin.cdi import OWN_KIND, sibling_kind, written_kind
from agent.deviceplugin.cdi_spec import (
    DriverFiles,
    HostPath,
    Roots,
    Spec,
    channel_spec,
    driver_files,
    feature_spec,
    gpu_spec,
    has_program,
)
from agent.deviceplugin.devices import Minors
from agent.deviceplugin.host_files import HostFile, below, resolved, seen
from agent.deviceplugin.host_nodes import channel_node, features_with_nodes, present_nodes
from agent.deviceplugin.settings import Feature, PluginSettings
from agent.errors import InputError
from agent.model.snapshot import Snapshot

# The file of one CDI specification of ours, in a directory that others write to as well.

_OURS = "nodetopo-"
"""What our files' names begin with; NVIDIA's begin with a vendor or are ``nvidia.yaml``."""


class CdiFile:
    """The specification of one kind; the name says whose it is, and so does the kind inside."""

    def __init__(self, directory: Path, kind: str) -> None:
        """Touch nothing yet."""
        self._kind = kind
        self._file = HostFile(directory / f"{_OURS}{kind.replace('/', '-')}.json")

    @property
    def path(self) -> Path:
        """Where the file is, or would be."""
        return self._file.path

    def write(self, spec: Spec) -> tuple[str, ...]:
        """Make *spec* what the file says; return why that failed, nothing if it did not."""
        problem = self._file.write(json.dumps(spec, indent=2) + "\n")
        return () if problem is None else (f"CDI specification not written: {problem}",)

    def remove(self) -> tuple[str, ...]:
        """Delete the file if it is there and ours; return why that failed, or was not done."""
        text = self._file.text()
        if text is None:
            return ()
        if not _is_of_kind(text, self._kind):
            return (f"{self.path} was left alone: it is no specification of {self._kind}",)
        problem = self._file.remove()
        return () if problem is None else (problem,)


def _is_of_kind(text: str, kind: str) -> bool:
    try:
        found = json.loads(text)
    except ValueError:
        return False
    return isinstance(found, dict) and found.get("kind") == kind


_GDS_FILES = ("/run/udev", "/etc/cufile.json")
"""What GPUDirect Storage reads (nvidia-container-toolkit v1.19.0, internal/discover/gds.go)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CdiSettings:
    """How and where specifications are written.

    Attributes:
        directory: on the host, where the runtimes look; ``/var/run/cdi`` is emptied at boot.
        kind: of the GPUs; the others are of the same vendor.
        driver_root: on the host, what the driver's files are below: ``/``, or where a driver
            container puts them.
        hook: on the host, the program that makes the driver's libraries known in a container.

    Raises:
        InputError: the kind is no kind or NVIDIA's, or a path is relative.
    """

    directory: Path = Path("/var/run/cdi")
    kind: str = OWN_KIND
    driver_root: Path = Path("/")
    hook: Path = Path("/usr/bin/nvidia-cdi-hook")

    def __post_init__(self) -> None:
        if written_kind(self.kind) != self.kind:
            raise InputError(f"{self.kind} is not written here", f"write {OWN_KIND}")
        for path in (self.directory, self.driver_root, self.hook):
            if not path.is_absolute():
                raise InputError(f"{path} is relative", "start it with /")


class CdiWriter:
    """Write one file for each kind of device; one thread calls it, and no RPC does."""

    def __init__(self, settings: CdiSettings, plugin: PluginSettings) -> None:
        """Touch nothing yet; *plugin* says which nodes, channels and features there are."""
        self._settings = settings
        self._plugin = plugin

    def update(self, snapshot: Snapshot, minors: Minors) -> tuple[str, ...]:
        """Write what *snapshot* says, as far as it changed; return what a person should know.

        Its GPUs are to be those that are offered, lost ones included. Where it has none that can
        be named, what is written stays: NVML may only be slow. A channel or feature whose device
        nodes are gone has its file deleted. Files stay at the end of this process, for
        containers that start again meanwhile.
        """
        nodes = present_nodes(self._plugin)
        warnings = list(self._update_gpus(snapshot, minors, nodes))
        channels = [n for n in self._plugin.imex_channels if channel_node(n) in nodes]
        if self._plugin.imex_channels:
            kind = sibling_kind(self._settings.kind, "imex-channel")
            warnings += self._keep(kind, channel_spec(kind, channels, self._roots()))
        here = set(features_with_nodes(self._plugin.features, nodes))
        for feature in sorted(self._plugin.features):
            warnings += self._update_feature(feature, nodes, is_here=feature in here)
        return tuple(warnings)

    def _update_gpus(
        self, snapshot: Snapshot, minors: Minors, nodes: tuple[str, ...]
    ) -> tuple[str, ...]:
        if snapshot.driver_version is None or not snapshot.gpus:
            return ()
        root = self._driver_root()
        files = DriverFiles() if root is None else driver_files(root, snapshot.driver_version)
        kind = self._settings.kind
        written = gpu_spec(
            kind, snapshot.gpus, minors, files=files, nodes=nodes, roots=self._roots()
        )
        if written is None:
            return ("CDI specification not written: no GPU has a known minor number",)
        return (*written.warnings, *self._file(kind).write(written.spec))

    def _update_feature(
        self, feature: Feature, nodes: tuple[str, ...], *, is_here: bool
    ) -> tuple[str, ...]:
        kind = sibling_kind(self._settings.kind, feature.value)
        own = [node for node in nodes if any(features_with_nodes([feature], [node]))]
        mounts = self._gds_files() if feature is Feature.GDS else ()
        spec = feature_spec(kind, own, mounts, self._roots()) if is_here else None
        return self._keep(kind, spec)

    def _keep(self, kind: str, spec: Spec | None) -> tuple[str, ...]:
        file = self._file(kind)
        return file.remove() if spec is None else file.write(spec)

    def _gds_files(self) -> tuple[HostPath, ...]:
        root = self._driver_root()
        found = [(path, root and resolved(root, path)) for path in _GDS_FILES]
        return tuple(HostPath(path, at) for path, at in found if at)

    def _file(self, kind: str) -> CdiFile:
        return CdiFile(seen(self._plugin.host_root, self._settings.directory), kind)

    def _driver_root(self) -> Path | None:
        at = resolved(self._plugin.host_root, str(self._settings.driver_root))
        return None if at is None else below(self._plugin.host_root, at)

    def _roots(self) -> Roots:
        has_hook = has_program(self._plugin.host_root, str(self._settings.hook))
        return Roots(
            driver=self._settings.driver_root,
            dev=self._plugin.dev_root,
            hook=self._settings.hook if has_hook else None,
        )
