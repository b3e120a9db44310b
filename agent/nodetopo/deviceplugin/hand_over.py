"""The hand-over of devices without a setting: by the node's setup.

Containers get GPUs in two ways, each of which needs a suitable node. By CDI, the kubelet passes
names to the container runtime, which looks them up in specifications: without a specification of
the name, the container does not start; with CDI off, it starts without GPUs. By NVIDIA's container
toolkit, the runtime is NVIDIA's, and reads the GPUs from a variable or from volume mounts, by its
configuration. Whether a container with a name would start is decided by
:class:`~nodetopo.model.cdi.CdiRegistry`, as in the audit. Sources: CDI SPEC.md 1.1.0; containerd
2.1 docs/cri/config.md (enable_cdi); nvidia-container-toolkit v1.17.8 internal/config/config.go.
"""

import os
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from msgspec import Struct

from nodetopo.deviceplugin.cdi import ALL, KIND
from nodetopo.deviceplugin.settings import Strategy
from nodetopo.model.cdi import DIRECTORIES, CdiRegistry, CdiSpec, directory
from nodetopo.model.host import ContainerToolkit, HostSettings, RuntimeConfig
from nodetopo.probes.host import runtimes
from nodetopo.probes.host.cdi import configured_directories, specs_of_programs
from nodetopo.probes.host.paths import HostPaths
from nodetopo.probes.sysfs.files import Files
from nodetopo.probes.sysfs.tree import Tree

_MODE_CDI = "cdi"
"""Of the toolkit: it takes everything from specifications, however a container requests GPUs."""

State = tuple[tuple[str, int, int, int], ...]
"""Name, inode, size and time of change of every file that a choice depends on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSetup:
    """The node's known setup for handing devices to containers."""

    specs: tuple[CdiSpec, ...] | None = None  # None if no CDI directory is visible
    runtimes: tuple[RuntimeConfig, ...] | None = None  # None if no configuration can be read
    toolkit: ContainerToolkit | None = None  # None if its settings cannot be read
    # Of the host, relative to its root: files of the specifications that come and go with the
    # driver.
    folders: tuple[str, ...] = field(default=(), compare=False)

    @classmethod
    def of(cls, host: HostSettings | None) -> "NodeSetup":
        """Return the part of *host* that counts."""
        if host is None:
            return cls()
        return cls(specs=host.cdi_specs, runtimes=host.runtime_configs, toolkit=host.toolkit)

    @property
    def takes_cdi(self) -> bool | None:
        """Whether the container runtime supports CDI; ``None`` if unknown."""
        known = {config.cdi for config in self.runtimes or ()}
        return known.pop() if len(known) == 1 else None

    @property
    def registry(self) -> CdiRegistry:
        """The devices that the container runtime resolves."""
        stated = (config.cdi_dirs for config in self.runtimes or ())
        directories = next(
            (directories for directories in stated if directories is not None), DIRECTORIES
        )
        return CdiRegistry(self.specs or (), directories)

    @property
    def lacks_nvidias_runtime(self) -> bool:
        return self.runtimes is not None and not any(
            runtime.nvidia_runtimes for runtime in self.runtimes
        )


class HandOver(Struct, frozen=True, kw_only=True):
    """A way to hand devices to containers."""

    strategy: Strategy  # for the answer to Allocate
    reason: str  # a clause
    # Why no strategy works on this node, a sentence; None if this one should.
    problem: str | None = None


def read_setup(host_root: Path, procfs: Path = Path("/proc")) -> NodeSetup:
    """Read the setup of the node whose file system is mounted at *host_root*.

    Args:
        procfs: the host's ``/proc``, for the numbers of its drivers.
    """
    files = Files("host", Tree.of(host_root))
    paths = HostPaths(files, Files("host", Tree.of(procfs)))
    configs, toolkit = runtimes.runtime_configs(files, None), runtimes.read_toolkit(files)
    specs = specs_of_programs(files, paths, configs, toolkit)
    return NodeSetup(
        specs=specs, runtimes=configs, toolkit=toolkit, folders=tuple(sorted(paths.folders))
    )


def file_state(host_root: Path, setup: NodeSetup) -> State:
    """Return the state of the files that decide *setup*, which are a few."""
    root = f"{host_root}/"
    paths = [root + path for path in (*runtimes.CONFIGS, *runtimes.PATHS, runtimes.FILE)]
    paths += [root + path for path in setup.folders]
    stated = configured_directories(setup.runtimes, setup.toolkit)
    directories = {path.lstrip("/") for path in (*stated, *map(directory, stated))}
    for place in (*sorted(directories), runtimes.DROP_INS):
        with suppress(OSError):  # missing or not visible
            paths += [entry.path for entry in os.scandir(root + place)]
    folders = []
    for path in paths:
        with suppress(OSError):
            status = os.stat(path)  # noqa: PTH116 - each second, and a Path costs five times it
            folders.append((path, status.st_ino, status.st_size, status.st_mtime_ns))
    return tuple(sorted(folders))


def choose(
    setup: NodeSetup,
    *,
    kind: str,
    devices: Collection[str],
    driver: str | None = None,
    writes_spec: bool = False,
) -> HandOver:
    """Return the hand-over of *devices* to containers on a node with *setup*.

    CDI comes first, because device nodes injected by it survive ``systemctl daemon-reload``
    (nvidia-container-toolkit issue 48); but only if specifications have all names and the runtime
    honours them. Otherwise the toolkit is used. If neither is known, CDI is used, the only way that
    a pod cannot request by itself.

    Args:
        kind: vendor and class of the specification's devices.
        devices: UUIDs that a container can get.
        driver: version of the loaded driver, if known.
        writes_spec: whether this daemon writes the specification itself.
    """
    absence = None if writes_spec else _absence(setup, kind, devices, driver)
    if absence is None and setup.takes_cdi:
        return HandOver(
            strategy=Strategy.CDI_CRI,
            reason="a CDI specification has all devices, and the container runtime takes CDI",
        )
    toolkit = _by_toolkit(setup, devices, driver)
    if absence is not None:
        cause = absence
        if setup.specs is None and setup.toolkit is None:
            return HandOver(
                strategy=Strategy.CDI_CRI,
                reason="nothing is known of CDI specifications and of NVIDIA's container toolkit",
            )
    elif setup.takes_cdi is None:
        cause = "it is not known whether the container runtime takes CDI"
        if setup.toolkit is None or isinstance(toolkit, str):
            return HandOver(
                strategy=Strategy.CDI_CRI,
                reason="a CDI specification has all devices, and nothing says that the container "
                "runtime does not take CDI",
            )
    else:
        cause = "the container runtime does not take CDI"
    if isinstance(toolkit, str):
        problem = f"no way hands GPUs to containers: {cause}, and {toolkit}"
        return HandOver(strategy=Strategy.CDI_CRI, reason="no way works", problem=problem)
    return HandOver(strategy=toolkit.strategy, reason=f"{cause}; {toolkit.reason}")


def _absence(
    setup: NodeSetup, kind: str, devices: Collection[str], driver: str | None
) -> str | None:
    """Return why containers would not get all of *devices* by name, a clause; ``None`` if so."""
    if setup.specs is None:
        return "no directory of CDI specifications can be seen"
    return _fault(setup.registry, kind, devices, driver)


def _fault(
    registry: CdiRegistry, kind: str, devices: Collection[str], driver: str | None
) -> str | None:
    """Return the first fault of *devices*; of none, whether *kind* is specified at all."""
    if not devices and not registry.names(kind):
        return registry.fault(kind, ALL, driver)
    faults = (registry.fault(kind, device, driver) for device in sorted(devices))
    return next(filter(None, faults), None)


def _by_toolkit(setup: NodeSetup, devices: Collection[str], driver: str | None) -> HandOver | str:
    """Return the way of NVIDIA's toolkit, or why it has none, a clause."""
    toolkit = setup.toolkit
    if setup.lacks_nvidias_runtime:
        return "no container runtime is NVIDIA's"
    if toolkit is None:
        return HandOver(
            strategy=Strategy.ENVVAR,
            reason="NVIDIA's container toolkit takes a variable unless it is told otherwise",
        )
    if toolkit.mode == _MODE_CDI:
        registry = CdiRegistry(setup.specs or (), toolkit.cdi_dirs or DIRECTORIES)
        if fault := _fault(registry, toolkit.cdi_kind or KIND, devices, driver):
            return f"{toolkit.path} has mode cdi, which needs a specification too: {fault}"
    if toolkit.volume_mounts:
        return HandOver(
            strategy=Strategy.VOLUME_MOUNTS, reason=f"{toolkit.path} accepts volume mounts"
        )
    if toolkit.env_when_unprivileged is not False:
        return HandOver(strategy=Strategy.ENVVAR, reason=f"{toolkit.path} accepts a variable")
    return f"{toolkit.path} accepts neither a variable nor volume mounts"
