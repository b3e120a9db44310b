"""Rules on NVIDIA's container toolkit, and on which runtime pods get."""

import re
from collections.abc import Iterator

from agent.checks.gpu_pods import pod_name
from agent.checks.inputs import Inputs, no_gpus
from agent.checks.kernel_inputs import missing
from agent.checks.pods.inputs import missing_specs as missing_pods
from agent.checks.pods.inputs import with_gpus
from agent.checks.rule import Area, Finding, Rule, Severity, Suite
from agent.checks.runtime_inputs import (
    DEVICE_PLUGIN,
    configs,
    goes_without_cdi,
    has_cdi,
    is_legacy,
    missing_cdi,
    missing_configs,
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

# Rules on the Container Device Interface.

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


CDI_RULES: tuple[Rule, ...] = (
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


_ENVIRONMENT = "accept-nvidia-visible-devices-envvar-when-unprivileged"


_VOLUMES = "accept-nvidia-visible-devices-as-volume-mounts"


_FIXES: tuple[tuple[tuple[int, int, int], str], ...] = (
    ((1, 16, 2), "CVE-2024-0132 (escape to the host's file system)"),
    ((1, 17, 0), "CVE-2024-0134 (files made on the host)"),
    ((1, 17, 3), "CVE-2024-0135, CVE-2024-0136 and CVE-2024-0137 (crafted images reach the host)"),
    ((1, 17, 4), "CVE-2025-23359 (the same by another way)"),
    ((1, 17, 8), "CVE-2025-23266 and CVE-2025-23267 (code of an image run by hooks as root)"),
    ((1, 19, 1), "CVE-2026-24260 (race between check and use)"),
)
"""First version of the toolkit without each, ascending (NVIDIA's security bulletins
https://nvidia.custhelp.com/app/answers/detail/a_id/ 5582, 5585, 5599, 5616, 5659 and 5850)."""


_VERSION = re.compile(r"([0-9]{1,4})\.([0-9]{1,4})\.([0-9]{1,4})")


_DOCS = "https://docs.nvidia.com/datacenter/cloud-native"


def _needs_toolkit(snapshot: Snapshot) -> Inputs:
    return missing_toolkit(snapshot) + missing_configs(snapshot)


def _open_to_all(snapshot: Snapshot) -> tuple[Finding, ...]:
    settings = toolkit(snapshot)
    if settings is None or settings.env_when_unprivileged is False:
        return ()
    stated = "true" if settings.env_when_unprivileged else "not stated, which is true"
    return tuple(
        Finding(
            subject=f"{_ENVIRONMENT} in {settings.path}",
            observed=f"{stated}; {_reach(config)}",
            expected="false",
        )
        for config in configs(snapshot) or ()
        if config.nvidia_runtimes
    )


def _reach(config: RuntimeConfig) -> str:
    """Tell who may use it: the default runtime is every pod's."""
    if config.default_runtime in config.nvidia_runtimes:
        return (
            f"the default runtime of {config.path} is NVIDIA's, so that any image with "
            "NVIDIA_VISIBLE_DEVICES=all has all GPUs"
        )
    names = ", ".join(config.nvidia_runtimes)
    return f"any pod may name a RuntimeClass of {names} and take all GPUs"


def _missing_ways(snapshot: Snapshot) -> Inputs:
    absent = missing_toolkit(snapshot)
    if not absent and not _is_shut(snapshot):
        return ()
    ways = () if absent or _has_cdi(snapshot) or is_legacy(snapshot) else missing_specs(snapshot)
    return absent + missing_cdi(snapshot) + ways


def _is_shut(snapshot: Snapshot) -> bool:
    """Return whether the toolkit takes neither variables nor mounts of unprivileged pods."""
    settings = toolkit(snapshot)
    is_known = settings is not None and settings.env_when_unprivileged is False
    return is_known and not (settings and settings.volume_mounts)


def _has_cdi(snapshot: Snapshot) -> bool:
    """Return whether a container runtime takes devices by CDI, or may."""
    return any(has_cdi(snapshot, config) is not False for config in configs(snapshot) or ())


def _may_be_named(snapshot: Snapshot) -> bool:
    """Return whether a device plugin may name GPUs to NVIDIA's runtime in annotations, as CDI does.

    It then writes specifications of its own (device-list-strategy cdi-annotations).
    """
    is_possible = specs(snapshot) is None or bool(of_plugins(snapshot))
    return is_possible and not is_legacy(snapshot)


def _no_way(snapshot: Snapshot) -> tuple[Finding, ...]:
    settings, known = toolkit(snapshot), configs(snapshot)
    if settings is None or not known or not _is_shut(snapshot):
        return ()
    if _has_cdi(snapshot) or _may_be_named(snapshot):
        return ()
    observed = f"{_ENVIRONMENT} and {_VOLUMES} are both off, and so is CDI in {known[0].path}"
    return (Finding(subject=settings.path, observed=observed, expected="one of the three on"),)


def _without_version(snapshot: Snapshot) -> tuple[str, ...]:
    settings = toolkit(snapshot)
    absent = missing_toolkit(snapshot)
    if absent or (settings is not None and _VERSION.fullmatch(settings.version or "")):
        return absent
    return ("version of NVIDIA's container toolkit",)


def _known_holes(snapshot: Snapshot) -> tuple[Finding, ...]:
    settings = toolkit(snapshot)
    match = _VERSION.fullmatch((settings.version if settings else None) or "")
    if match is None:
        return ()
    version = (int(match[1]), int(match[2]), int(match[3]))
    open_holes = [hole for fixed, hole in _FIXES if version < fixed]
    if not open_holes:
        return ()
    safe = ".".join(map(str, _FIXES[-1][0]))
    return (
        Finding(
            subject=f"NVIDIA Container Toolkit {match[0]}",
            observed=", ".join(open_holes),
            expected=f"{safe} or newer",
        ),
    )


def _missing_runtime(snapshot: Snapshot) -> Inputs:
    return missing_cdi(snapshot) + missing_pods(snapshot)


def _plain_runtime(snapshot: Snapshot) -> tuple[Finding, ...]:
    """Find pods whose runtime adds no GPU; a RuntimeClass that a pod names is taken as right."""
    known = [config for config in configs(snapshot) or () if config.nvidia_runtimes]
    plain = [one for one in known if one.default_runtime not in one.nvidia_runtimes]
    if not known or len(plain) < len(known) or any(_may_have_cdi(snapshot, one) for one in plain):
        return ()
    pods = {pod_name(pod): pod for pod, _ in with_gpus(snapshot)}
    names = " | ".join(dict.fromkeys(name for one in plain for name in one.nvidia_runtimes))
    return tuple(
        Finding(
            subject=f"pod {name}",
            observed=f"no runtimeClassName, and the default runtime of {plain[0].path} is "
            f"{plain[0].default_runtime}",
            expected=f"a RuntimeClass of {names}",
        )
        for name, pod in pods.items()
        if pod.runtime_class is None
    )


def _may_have_cdi(snapshot: Snapshot, config: RuntimeConfig) -> bool:
    return has_cdi(snapshot, config) is not False


RULES: tuple[Rule, ...] = (
    Rule(
        code="RUN-008",
        claim="no unprivileged container takes GPUs by an environment variable",
        why="The toolkit's default lets any pod set NVIDIA_VISIBLE_DEVICES=all and use GPUs that "
        "the kubelet gave to others.",
        area=Area.RUNTIME,
        suite=Suite.AUDIT,
        severity=Severity.WARNING,
        needs=_needs_toolkit,
        check=_open_to_all,
        skips=without_toolkit,
        remedy=f"set {_ENVIRONMENT} = false (with the GPU operator, toolkit.env "
        "ACCEPT_NVIDIA_VISIBLE_DEVICES_ENVVAR_WHEN_UNPRIVILEGED), and hand GPUs over by CDI or by "
        "volume mounts: device-list-strategy cdi-cri or volume-mounts",
        reference=f"{_DOCS}/container-toolkit/latest/docker-specialized.html",
    ),
    Rule(
        code="RUN-009",
        claim="GPUs can reach unprivileged containers",
        why="With environment variables, volume mounts and CDI all off, a pod gets its GPUs from "
        "the kubelet on paper only.",
        area=Area.RUNTIME,
        suite=Suite.AUDIT,
        severity=Severity.ERROR,
        needs=_missing_ways,
        check=_no_way,
        skips=without_toolkit,
        remedy=f"set enable_cdi = true in the container runtime, or {_VOLUMES} = true in the "
        "toolkit's config.toml, and let the device plugin use the same way",
        reference=f"{_DOCS}/container-toolkit/latest/cdi-support.html",
    ),
    # A warning, since the version is that of the library beside the toolkit's programs.
    Rule(
        code="RUN-010",
        claim="NVIDIA's container toolkit has no published hole",
        why="Its hooks run as root while a container of anyone starts; by each of these holes an "
        "image could take over the host.",
        area=Area.RUNTIME,
        suite=Suite.AUDIT,
        severity=Severity.WARNING,
        needs=_without_version,
        check=_known_holes,
        skips=without_toolkit,
        remedy="upgrade nvidia-container-toolkit and libnvidia-container, or the GPU operator that "
        "installs them",
        reference="https://nvidia.custhelp.com/app/answers/detail/a_id/5850",
    ),
    Rule(
        code="RUN-011",
        claim="pods with GPUs run under a runtime that adds them",
        why="Without CDI only NVIDIA's runtime puts devices and libraries into a container; any "
        "other starts the pod without a GPU.",
        area=Area.RUNTIME,
        suite=Suite.AUDIT,
        severity=Severity.WARNING,
        needs=_missing_runtime,
        check=_plain_runtime,
        skips=without_toolkit,
        remedy="name runtimeClassName: nvidia in the pod, or make nvidia the default runtime, or "
        "hand GPUs over by CDI",
        reference=f"{_DOCS}/container-toolkit/latest/install-guide.html",
    ),
)
