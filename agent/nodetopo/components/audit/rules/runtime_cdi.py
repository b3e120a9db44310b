"""Rules on CDI specifications: containers with GPUs must start and be able to use them."""

from collections.abc import Collection, Iterator, Sequence

from nodetopo.checks.inputs import missing_gpus, no_gpus
from nodetopo.checks.rule import Finding, Judgement, Missing, Severity, Skip, rule
from nodetopo.components.audit.rules.kernel_inputs import host_of, unread
from nodetopo.components.audit.rules.runtime_inputs import (
    configs,
    has_cdi,
    is_legacy,
    missing_specs,
    missing_toolkit,
    of_gpus,
    registry,
    without_toolkit,
)
from nodetopo.model.cdi import DIRECTORIES, CdiRegistry, CdiSpec
from nodetopo.model.gpu import Gpu
from nodetopo.model.snapshot import Snapshot

_KIND = "nvidia.com/gpu"
"""The kind of NVIDIA's toolkit for all devices of a node, and the default ``default-kind``."""

_MODE = "cdi"
_UUIDS = ("GPU-", "MIG-")
_FEW = 4


@rule("RUN-003", Severity.ERROR)
def stale_specifications(snapshot: Snapshot) -> Judgement:
    """Find devices that CDI does not resolve, and edits that the runtime cannot apply."""
    known, found = host_of(snapshot).cdi_specs, registry(snapshot)
    specs = [spec for spec in of_gpus(snapshot) if not _is_replaced(spec, found)]
    specs = specs or [spec for spec in known or () if _is_garbled(spec)]
    unknown = [spec.path for spec in known or () if spec.kind is None and spec.error is None]
    reason = no_gpus(snapshot)
    if known is not None and not specs and not unknown:
        reason = "no CDI specification of GPUs"
    elif _goes_without_cdi(snapshot):
        reason = "no container here gets devices by CDI"
    if reason:
        yield Skip(reason)
        return
    driver = snapshot.driver_version
    for spec in specs:
        yield from _faults(spec, found, driver)
    yield from _conflicts(specs, found)
    yield from _unnamed(snapshot, found)
    yield from missing_specs(snapshot)
    yield from missing_gpus(snapshot)
    if driver is None and any(spec.driver_version for spec in specs):
        yield Missing("driver version")
    for spec in specs:
        if spec.unseen:
            yield Missing(f"whether {_list(spec.unseen)} of {spec.path} exist")
    for path in unknown:
        yield unread(snapshot, path, path.lstrip("/"))


@rule("RUN-004", Severity.ERROR)
def absent_specifications(snapshot: Snapshot) -> Judgement:
    """Find the mode ``cdi`` without a specification that names the GPUs."""
    settings, specs = host_of(snapshot).toolkit, host_of(snapshot).cdi_specs
    reason = without_toolkit(snapshot)
    if settings is not None and settings.mode != _MODE:
        reason = f"the toolkit's mode is {settings.mode or 'auto'}"
    if reason:
        yield Skip(reason)
        return
    if settings is not None and specs is not None:
        kind = settings.cdi_kind or _KIND
        directories = settings.cdi_dirs or DIRECTORIES
        names = CdiRegistry(specs, directories).names(kind)
        unnamed = [gpu.name for gpu in snapshot.gpus if not _is_named(gpu, names)]
        observed = f"mode cdi, and {_list(unnamed)} not named by a specification of {kind}"
        if not names:
            observed = f"mode cdi, and no device of {kind} in {' or '.join(directories)}"
        if unnamed or not names:
            yield Finding(
                subject=settings.path,
                observed=observed,
                expected=f"a specification of {kind} with all GPUs",
            )
    yield from missing_toolkit(snapshot)
    yield from missing_specs(snapshot)
    yield from missing_gpus(snapshot)


def _is_replaced(spec: CdiSpec, found: CdiRegistry) -> bool:
    """Return whether no device comes from *spec*, and none is missing because of it."""
    if found.devices(spec):
        return False
    kind = spec.kind or ""
    names = found.names(kind)
    return bool(names) and all(
        name in names for name in spec.devices if found.conflict(kind, name) is None
    )


def _is_garbled(spec: CdiSpec) -> bool:
    """Return whether *spec* has the name of NVIDIA's file without its content."""
    is_nvidias = "nvidia" in spec.path.rpartition("/")[2]
    return is_nvidias and spec.kind is None and spec.error is not None


def _faults(spec: CdiSpec, found: CdiRegistry, driver: str | None) -> Iterator[Finding]:
    """Yield the faults that keep containers from the devices of *spec*."""
    if spec.error is not None:
        yield Finding(
            subject=spec.path,
            observed=f"invalid, and so ignored: {spec.error}",
            expected="a specification that CDI reads",
        )
        return
    devices = found.devices(spec)
    if not devices:
        return
    if spec.driver_version and driver and spec.driver_version != driver:
        yield Finding(
            subject=spec.path,
            observed=f"mounts the libraries of driver {spec.driver_version}",
            expected=f"those of the loaded driver, {driver}",
        )
    reasons = [fault.reason for fault in spec.faults if any(map(fault.concerns, devices))]
    if reasons:
        yield Finding(
            subject=spec.path,
            observed=_list(reasons, "; "),
            expected="device nodes, mounts and hooks of this host",
        )


def _conflicts(specs: Sequence[CdiSpec], found: CdiRegistry) -> Iterator[Finding]:
    """Yield the devices that two files of one directory define."""
    names: dict[tuple[str, str], dict[str, None]] = {}
    for spec in specs:
        for device in spec.devices:
            if both := found.conflict(spec.kind or "", device):
                names.setdefault(both, {})[device] = None
    for both, devices in names.items():
        yield Finding(
            subject=" and ".join(both),
            observed=f"both define {_list(list(devices))}, which CDI then drops",
            expected="one file for each device of a directory",
        )


def _unnamed(snapshot: Snapshot, found: CdiRegistry) -> Iterator[Finding]:
    """Yield the GPUs and MIG devices that the toolkit's specification by UUID lacks."""
    settings = host_of(snapshot).toolkit
    for kind in dict.fromkeys((_KIND, (settings.cdi_kind if settings else None) or _KIND)):
        names = [name for name in found.names(kind) if name.startswith(_UUIDS)]
        here = [uuid for gpu in snapshot.gpus if not gpu.is_lost for uuid in _uuids(gpu)]
        lacking = [
            uuid for uuid in here if uuid not in names and found.conflict(kind, uuid) is None
        ]
        if not names or not lacking:
            continue
        others = len(set(names) - {uuid for gpu in snapshot.gpus for uuid in _all_uuids(gpu)})
        stale = f", but {others} that this node does not have" if others else ""
        yield Finding(
            subject=found.specs(kind)[-1].path,
            observed=f"does not name {_list(lacking)}{stale}",
            expected="every GPU and MIG device of this node",
        )


def _uuids(gpu: Gpu) -> Iterator[str]:
    """Yield the devices of *gpu* that a container can have: its MIG devices in its place."""
    if gpu.mig is not None and gpu.mig.is_enabled:
        yield from (instance.uuid for instance in gpu.mig.instances)
    elif gpu.uuid is not None:
        yield gpu.uuid


def _all_uuids(gpu: Gpu) -> Iterator[str]:
    yield from (instance.uuid for instance in (gpu.mig.instances if gpu.mig else ()))
    if gpu.uuid is not None:
        yield gpu.uuid


def _is_named(gpu: Gpu, names: Collection[str]) -> bool:
    """Return whether *names* have the devices of *gpu*, by UUID or by index."""
    if gpu.is_lost or all(uuid in names for uuid in _uuids(gpu)):
        return True
    return any(name.partition(":")[0] == str(gpu.index) for name in names)


def _list(texts: Sequence[str], separator: str = ", ") -> str:
    more = len(texts) - _FEW
    return separator.join(texts[:_FEW]) + (f" and {more} more" if more > 0 else "")


def _goes_without_cdi(snapshot: Snapshot) -> bool:
    """Return whether containers on this node are known to get no devices by CDI.

    NVIDIA's runtime honours specifications in every mode except ``legacy``, for pods that name a
    CDI device.
    """
    known = configs(snapshot)
    if not known or any(has_cdi(snapshot, config) is not False for config in known):
        return False
    return is_legacy(snapshot) or not any(config.nvidia_runtimes for config in known)
