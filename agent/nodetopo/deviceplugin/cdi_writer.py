"""Our CDI specifications on the host, written before the GPUs are offered."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path

from msgspec import Struct

from nodetopo.deviceplugin.cdi import OWN_KIND, sibling_kind, written_kind
from nodetopo.deviceplugin.cdi_hooks import ALL, ENABLE_COMPAT, HookProgram
from nodetopo.deviceplugin.cdi_spec import (
    GpuSpec,
    Roots,
    Spec,
    channel_spec,
    feature_spec,
    gpu_spec,
)
from nodetopo.deviceplugin.devices import Minors
from nodetopo.deviceplugin.driver_files import DriverFiles, HostPath, driver_files
from nodetopo.deviceplugin.host_files import HostFile, below, resolved, seen
from nodetopo.deviceplugin.host_nodes import (
    channel_node,
    driver_nodes,
    features_with_nodes,
    present_nodes,
)
from nodetopo.deviceplugin.settings import Feature, PluginSettings
from nodetopo.errors import InputError
from nodetopo.formats.safe import load_json
from nodetopo.model.snapshot import Snapshot

_PREFIX = "nodetopo-"
"""Prefix of our files' names; NVIDIA's begin with a vendor or are ``nvidia.yaml``."""

_GDS_FILES = ("/run/udev", "/etc/cufile.json")
"""Files that GPUDirect Storage reads (nvidia-container-toolkit v1.19.0, internal/discover/gds.go).
"""

_MOST_REASONS = 3
"""Named in a problem, which becomes the message of an Event of 1 KiB at most."""


class CdiSettings(Struct, frozen=True, kw_only=True):
    """How and where specifications are written.

    Raises:
        InputError: the kind is invalid or NVIDIA's, or a path is relative.
    """

    # On the host, where runtimes look; /var/run/cdi is emptied at boot.
    directory: Path = Path("/var/run/cdi")
    kind: str = OWN_KIND  # of the GPUs; the others are of the same vendor
    # On the host; makes the driver's libraries known to a container's loader.
    hook: Path = Path("/usr/bin/nvidia-cdi-hook")
    disabled_hooks: tuple[str, ...] = ()  # names of hooks not to call, or `ALL`

    def __post_init__(self) -> None:
        if written_kind(self.kind) != self.kind:
            raise InputError(f"{self.kind} is not written here", f"write {OWN_KIND}")
        for path in (self.directory, self.hook):
            if not path.is_absolute():
                raise InputError(f"{path} is relative", "start it with /")


class CdiReport(Struct, frozen=True, kw_only=True):
    """The devices that containers can get by our specifications."""

    # UUIDs defined in the host's file, which a runtime can resolve.
    devices: frozenset[str] = frozenset()
    problem: str | None = None  # why offered GPUs are missing, or the file is wrong, with a cure
    warnings: tuple[str, ...] = ()


class CdiWriter:
    """Write one file for each kind of device; one thread calls it, and no RPC does."""

    def __init__(self, settings: CdiSettings, plugin: PluginSettings) -> None:
        """Touch nothing yet; *plugin* has the roots, device nodes, channels and features."""
        self._settings = settings
        self._plugin = plugin
        self._refusal: str | None = None
        self._program = HookProgram()

    def update(self, snapshot: Snapshot, minors: Minors, wanted: Collection[str] = ()) -> CdiReport:
        """Write the specifications of *snapshot* that changed.

        Its GPUs must be the offered ones, lost ones included; *wanted* are the UUIDs that
        containers can get now. A specification that would start containers without a driver is not
        written, and the file is unchanged. If the device nodes of a channel or feature are gone,
        its file is deleted. Files remain after this process ends, for containers that restart in
        the meantime.
        """
        settings, plugin = self._settings, self._plugin
        nodes = present_nodes(plugin)
        at = resolved(plugin.host_root, str(plugin.driver_root))
        driver_root = None if at is None else below(plugin.host_root, at)
        known = self._program.hooks(plugin.host_root, str(settings.hook))
        called = frozenset() if ALL in settings.disabled_hooks else known or frozenset()
        roots = Roots(
            driver=plugin.driver_root,
            dev=nodes.root,
            hook=None if known is None else settings.hook,
            hooks=called.difference(settings.disabled_hooks),
        )

        file, version = self._file(settings.kind), snapshot.driver_version
        gpus = GpuSpec()
        if version is not None and snapshot.gpus:
            files = DriverFiles(version=version)
            if driver_root is not None:
                files = driver_files(driver_root, version)
            gpus = gpu_spec(
                settings.kind,
                snapshot.gpus,
                minors,
                files=files,
                nodes=driver_nodes(plugin).names,
                roots=roots,
            )
            self._refusal = gpus.refusal
            if gpus.spec is not None:
                self._refusal = file.write(gpus.spec)
        devices = file.devices()
        lacking = [uuid for uuid in wanted if uuid not in devices]
        problem = _problem(self._refusal, lacking, gpus.left_out, is_there=bool(devices))

        warnings = list(gpus.warnings)
        is_disabled = not {ALL, ENABLE_COMPAT}.isdisjoint(settings.disabled_hooks)
        if known is not None and ENABLE_COMPAT not in known and not is_disabled:
            warnings.append(
                f"the CDI specification has no hook {ENABLE_COMPAT}, which {settings.hook} lacks: "
                "images for a newer CUDA than the driver's do not use their libraries — install "
                "NVIDIA Container Toolkit 1.17.5 or newer, or disable the hook by cdi-disable-hooks"
            )
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
        return CdiReport(devices=devices, problem=problem, warnings=tuple(warnings))

    def _keep(self, kind: str, spec: Spec | None) -> tuple[str, ...]:
        file = self._file(kind)
        problem = file.remove() if spec is None else file.write(spec)
        return () if problem is None else (f"CDI specification of {kind}: {problem}",)

    def _file(self, kind: str) -> CdiFile:
        return CdiFile(seen(self._plugin.host_root, self._settings.directory), kind)


def _problem(
    refusal: str | None,
    lacking: Collection[str],
    left_out: Mapping[str, str],
    *,
    is_there: bool,
) -> str | None:
    """Return a sentence on why containers cannot, or soon cannot, get the devices *lacking*."""
    count = "1 device is" if len(lacking) == 1 else f"{len(lacking)} devices are"
    if refusal is not None:
        outcome = "the one from before stays" if is_there else "there is none"
        if lacking:
            outcome += f", and {count} not handed out"
        return f"CDI specification not written, {outcome}: {refusal}"
    if not lacking:
        return None
    unknown = "the driver's version is unknown"
    reasons = [*dict.fromkeys(left_out.get(uuid, unknown) for uuid in lacking)]
    more = len(reasons) - _MOST_REASONS
    return (
        f"{count} not handed out, being in no CDI specification: "
        + "; ".join(reasons[:_MOST_REASONS])
        + (f"; and {more} more" if more > 0 else "")
        + " — see whether NVML and the host's /dev agree on the devices"
    )


class CdiFile:
    """The specification of one kind, in a directory shared with other programs.

    Its name and the kind inside mark it as ours.
    """

    def __init__(self, directory: Path, kind: str) -> None:
        self._kind = kind
        self._file = HostFile(directory / f"{_PREFIX}{kind.replace('/', '-')}.json")

    @property
    def path(self) -> Path:
        """Where the file is, or would be."""
        return self._file.path

    def devices(self) -> frozenset[str]:
        """Return the names of the devices that the file defines; empty if it is not ours."""
        spec = self._spec()
        devices = [] if spec is None else spec.get("devices")
        if not isinstance(devices, list):
            return frozenset()
        names = (device.get("name") for device in devices if isinstance(device, dict))
        return frozenset(name for name in names if isinstance(name, str))

    def write(self, spec: Spec) -> str | None:
        """Write *spec*; return why that failed, ``None`` after a success."""
        return self._file.write(json.dumps(spec, indent=2) + "\n")

    def remove(self) -> str | None:
        """Delete the file if it exists and is ours; return the reason for a failure or refusal."""
        if self._file.read().text is None:
            return None
        if self._spec() is None:
            return f"{self.path} was left alone: it is no specification of {self._kind}"
        return self._file.remove()

    def _spec(self) -> Spec | None:
        """Return the specification on the host; ``None`` if there is none of our kind."""
        try:
            spec = load_json(self._file.read().text or "")
        except ValueError:
            return None
        return spec if isinstance(spec, dict) and spec.get("kind") == self._kind else None
