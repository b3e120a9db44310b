"""Rules on the Container Device Interface."""

from collections.abc import Iterator

from agent.checks.inputs import Inputs, no_gpus
from agent.checks.kernel_inputs import missing
from agent.checks.rule import Area, Finding, Rule, Severity, Suite
from agent.checks.runtime_inputs import (
    DEVICE_PLUGIN,
    configs,
    goes_without_cdi,
    has_cdi,
    is_legacy,
    missing_cdi,
    missing_specs,
    missing_toolkit,
    of_gpus,
    of_plugins,
    specs,
    toolkit,
    without_toolkit,
)
from agent.model.host import CdiSpec, RuntimeConfig
from agent.model.snapshot import Snapshot

_MODE = "cdi"
_FEW = 4
_TOOLKIT = "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest"


def _without_specs(snapshot: Snapshot) -> str | None:
    known = specs(snapshot)
    if known is not None and not of_gpus(snapshot) and not any(map(_is_broken, known)):
        return "no CDI specification of GPUs"
    if goes_without_cdi(snapshot):
        return "no container here gets devices by CDI"
    return no_gpus(snapshot)


def _is_broken(spec: CdiSpec) -> bool:
    return spec.kind is None


def _missing_driver(snapshot: Snapshot) -> Inputs:
    named = any(spec.driver_version for spec in of_gpus(snapshot))
    absent = ("driver version",) if named and snapshot.driver_version is None else ()
    broken = (spec.path for spec in specs(snapshot) or () if _is_broken(spec))
    unread = (missing(snapshot, None, path, path.lstrip("/")) for path in broken)
    return missing_specs(snapshot) + absent + tuple(name for one in unread for name in one)


def _stale(snapshot: Snapshot) -> tuple[Finding, ...]:
    return tuple(finding for spec in of_gpus(snapshot) for finding in _stale_of(spec, snapshot))


def _stale_of(spec: CdiSpec, snapshot: Snapshot) -> Iterator[Finding]:
    driver = snapshot.driver_version
    if spec.driver_version and driver and spec.driver_version != driver:
        yield Finding(
            subject=spec.path,
            observed=f"mounts the libraries of driver {spec.driver_version}",
            expected=f"those of the loaded driver, {driver}",
        )
    if spec.missing:
        more = f" and {len(spec.missing) - _FEW} more" if len(spec.missing) > _FEW else ""
        yield Finding(
            subject=spec.path,
            observed=f"names {', '.join(spec.missing[:_FEW])}{more}, not there",
            expected="device nodes of this host",
        )


def _without_mode(snapshot: Snapshot) -> str | None:
    settings = toolkit(snapshot)
    if settings is not None and settings.mode != _MODE:
        return f"the toolkit's mode is {settings.mode or 'auto'}"
    return without_toolkit(snapshot)


def _missing_mode(snapshot: Snapshot) -> Inputs:
    return missing_toolkit(snapshot) + missing_specs(snapshot)


def _absent(snapshot: Snapshot) -> tuple[Finding, ...]:
    settings = toolkit(snapshot)
    if settings is None or settings.mode != _MODE or specs(snapshot) is None or of_gpus(snapshot):
        return ()
    return (
        Finding(
            subject=settings.path,
            observed="mode cdi, and neither /etc/cdi nor /var/run/cdi specifies a GPU",
            expected="a specification of nvidia.com/gpu",
        ),
    )


def _without_plugins(snapshot: Snapshot) -> str | None:
    if specs(snapshot) is not None and not of_plugins(snapshot):
        return "no device plugin hands GPUs over by CDI"
    return no_gpus(snapshot)


def _missing_switch(snapshot: Snapshot) -> Inputs:
    untold = tuple(
        f"how the devices of {spec.path} reach containers (device-list-strategy)"
        for config in configs(snapshot) or ()
        if has_cdi(snapshot, config) is False
        for spec in of_plugins(snapshot)
        if _may_be_annotated(snapshot, spec, config)
    )
    return missing_specs(snapshot) + missing_cdi(snapshot) + untold


def _off(snapshot: Snapshot) -> tuple[Finding, ...]:
    return tuple(
        Finding(
            subject=f"enable_cdi in {config.path}",
            observed=f"false, and a device plugin wrote {', '.join(paths[:_FEW])}",
            expected="true",
        )
        for config in configs(snapshot) or ()
        if has_cdi(snapshot, config) is False and (paths := _for_cri(snapshot, config))
    )


def _for_cri(snapshot: Snapshot, config: RuntimeConfig) -> list[str]:
    """Return the specifications that reach containers by the runtime of *config* alone."""
    found = of_plugins(snapshot)
    return [spec.path for spec in found if not _may_be_annotated(snapshot, spec, config)]


def _may_be_annotated(snapshot: Snapshot, spec: CdiSpec, config: RuntimeConfig) -> bool:
    """Return whether NVIDIA's runtime may take the devices of *spec* from a pod's annotations.

    Device plugins hand them over so by device-list-strategy cdi-annotations, which needs no CDI of
    the runtime that calls NVIDIA's; what drivers for DRA hand over goes by the kubelet.
    """
    is_plugins = DEVICE_PLUGIN in (spec.kind or "")
    return is_plugins and bool(config.nvidia_runtimes) and not is_legacy(snapshot)


RULES: tuple[Rule, ...] = (
    Rule(
        code="RUN-003",
        claim="CDI specifications of GPUs fit the driver and the devices",
        why="A specification of an older driver mounts libraries that are gone, or that do not fit "
        "the kernel module: containers do not start, or CUDA fails in them.",
        area=Area.RUNTIME,
        suite=Suite.AUDIT,
        severity=Severity.ERROR,
        needs=_missing_driver,
        check=_stale,
        skips=_without_specs,
        remedy="run `nvidia-ctk cdi generate --output=/var/run/cdi/nvidia.yaml` after each change "
        "of the driver, or let nvidia-cdi-refresh.service do it; restart the device plugin or DRA "
        "driver that wrote a file of its own; remove files that nobody writes",
        reference=f"{_TOOLKIT}/cdi-support.html",
    ),
    Rule(
        code="RUN-004",
        claim="a toolkit in mode cdi finds a specification of the GPUs",
        why="In this mode NVIDIA's runtime takes everything from CDI specifications; without one "
        "no container with GPUs starts.",
        area=Area.RUNTIME,
        suite=Suite.AUDIT,
        severity=Severity.ERROR,
        needs=_missing_mode,
        check=_absent,
        skips=_without_mode,
        remedy="run `nvidia-ctk cdi generate --output=/var/run/cdi/nvidia.yaml`, or set "
        "nvidia-container-runtime.mode to auto",
        reference=f"{_TOOLKIT}/cdi-support.html",
    ),
    Rule(
        code="RUN-005",
        claim="the container runtime takes devices by CDI where a plugin hands them over so",
        why="A runtime with CDI off does not start such containers, or starts them without GPUs.",
        area=Area.RUNTIME,
        suite=Suite.AUDIT,
        severity=Severity.ERROR,
        needs=_missing_switch,
        check=_off,
        skips=_without_plugins,
        remedy="set enable_cdi = true in the section of the CRI plugin and restart containerd",
        reference="https://github.com/containerd/containerd/blob/main/docs/cri/config.md",
    ),
)
