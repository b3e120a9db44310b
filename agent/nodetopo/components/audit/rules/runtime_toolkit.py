"""Rules on NVIDIA's container toolkit, and on which runtime pods get."""

import re

from nodetopo.checks.inputs import no_gpus
from nodetopo.checks.rule import Finding, Judgement, Missing, Severity, Skip, rule
from nodetopo.components.audit.rules.gpu_pods import pod_name
from nodetopo.components.audit.rules.kernel_inputs import host_of
from nodetopo.components.audit.rules.pods.inputs import missing_specs as missing_pods
from nodetopo.components.audit.rules.pods.inputs import with_gpus
from nodetopo.components.audit.rules.runtime_inputs import (
    DEVICE_PLUGIN,
    configs,
    has_cdi,
    is_legacy,
    missing_cdi,
    missing_configs,
    missing_specs,
    missing_toolkit,
    of_plugins,
    without_toolkit,
)
from nodetopo.model.cdi import CdiSpec
from nodetopo.model.host import RuntimeConfig
from nodetopo.model.snapshot import Snapshot

_FEW = 4
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


@rule("RUN-005", Severity.ERROR)
def disabled_cdi(snapshot: Snapshot) -> Judgement:
    """Find runtimes with CDI off that alone would bring a plugin's devices to containers."""
    specs = of_plugins(snapshot)
    reason = no_gpus(snapshot)
    if host_of(snapshot).cdi_specs is not None and not specs:
        reason = "no device plugin hands GPUs over by CDI"
    if reason:
        yield Skip(reason)
        return
    unclear = []
    for config in configs(snapshot):
        if has_cdi(snapshot, config) is not False:
            continue
        annotated = [spec.path for spec in specs if _may_be_annotated(snapshot, spec, config)]
        unclear += annotated
        if paths := [spec.path for spec in specs if spec.path not in annotated]:
            yield Finding(
                subject=f"enable_cdi in {config.path}",
                observed=f"false, and a device plugin wrote {', '.join(paths[:_FEW])}",
                expected="true",
            )
    yield from missing_specs(snapshot)
    yield from missing_cdi(snapshot)
    for path in unclear:
        yield Missing(f"how the devices of {path} reach containers (device-list-strategy)")


@rule("RUN-008", Severity.WARNING, unless=without_toolkit)
def environment_variables(snapshot: Snapshot) -> Judgement:
    """Find runtimes through which any pod can take all GPUs; the default runtime is every pod's."""
    settings = host_of(snapshot).toolkit
    for config in configs(snapshot):
        names = config.nvidia_runtimes
        if settings is None or settings.env_when_unprivileged is False or not names:
            continue
        stated = "true" if settings.env_when_unprivileged else "not stated, which is true"
        reach = f"any pod may name a RuntimeClass of {', '.join(names)} and take all GPUs"
        if config.default_runtime in names:
            reach = (
                f"the default runtime of {config.path} is NVIDIA's, so that any image with "
                "NVIDIA_VISIBLE_DEVICES=all has all GPUs"
            )
        yield Finding(
            subject=f"{_ENVIRONMENT} in {settings.path}",
            observed=f"{stated}; {reach}",
            expected="false",
        )
    yield from missing_toolkit(snapshot)
    yield from missing_configs(snapshot)


@rule("RUN-009", Severity.ERROR, unless=without_toolkit)
def no_way_for_gpus(snapshot: Snapshot) -> Judgement:
    """Find nodes where environment variables, volume mounts and CDI are all off.

    A device plugin with its own specifications can name GPUs to NVIDIA's runtime in annotations, as
    CDI does (device-list-strategy cdi-annotations).
    """
    host, known = host_of(snapshot), configs(snapshot)
    settings = host.toolkit
    if settings is not None and (settings.env_when_unprivileged is not False):
        return
    if settings is not None and settings.volume_mounts:
        return
    may_have_cdi = any(has_cdi(snapshot, config) is not False for config in known)
    may_annotate = host.cdi_specs is None or bool(of_plugins(snapshot))
    may_annotate = may_annotate and not is_legacy(snapshot)
    if settings is not None and known and not may_have_cdi and not may_annotate:
        off = f"{_ENVIRONMENT} and {_VOLUMES} are both off, and so is CDI in {known[0].path}"
        yield Finding(subject=settings.path, observed=off, expected="one of the three on")
    yield from missing_toolkit(snapshot)
    yield from missing_cdi(snapshot)
    if settings is not None and not may_have_cdi and not is_legacy(snapshot):
        yield from missing_specs(snapshot)


# A warning, since the version is the library's next to the toolkit's programs.
@rule("RUN-010", Severity.WARNING, unless=without_toolkit)
def known_holes(snapshot: Snapshot) -> Judgement:
    """Find the published holes of the toolkit's version."""
    settings = host_of(snapshot).toolkit
    if settings is None:
        yield from missing_toolkit(snapshot)
        return
    match = _VERSION.fullmatch(settings.version or "")
    if match is None:
        yield Missing("version of NVIDIA's container toolkit")
        return
    version = (int(match[1]), int(match[2]), int(match[3]))
    if holes := [hole for fixed, hole in _FIXES if version < fixed]:
        yield Finding(
            subject=f"NVIDIA Container Toolkit {match[0]}",
            observed=", ".join(holes),
            expected=f"{'.'.join(map(str, _FIXES[-1][0]))} or newer",
        )


@rule("RUN-011", Severity.WARNING, unless=without_toolkit)
def plain_runtimes(snapshot: Snapshot) -> Judgement:
    """Find pods whose runtime adds no GPU; a RuntimeClass that a pod names is taken as right."""
    with_nvidia = [config for config in configs(snapshot) if config.nvidia_runtimes]
    plain = [
        config for config in with_nvidia if config.default_runtime not in config.nvidia_runtimes
    ]
    without_cdi = all(has_cdi(snapshot, config) is False for config in plain)
    if plain and len(plain) == len(with_nvidia) and without_cdi:
        classes = " | ".join(
            dict.fromkeys(name for config in plain for name in config.nvidia_runtimes)
        )
        for name, pod in {pod_name(pod): pod for pod, _ in with_gpus(snapshot)}.items():
            if pod.runtime_class is None:
                yield Finding(
                    subject=f"pod {name}",
                    observed=f"no runtimeClassName, and the default runtime of {plain[0].path} is "
                    f"{plain[0].default_runtime}",
                    expected=f"a RuntimeClass of {classes}",
                )
    yield from missing_cdi(snapshot)
    yield from missing_pods(snapshot)


def _may_be_annotated(snapshot: Snapshot, spec: CdiSpec, config: RuntimeConfig) -> bool:
    """Return whether NVIDIA's runtime can take the devices of *spec* from pod annotations.

    Device plugins use device-list-strategy cdi-annotations, which needs no CDI support in the
    runtime that calls NVIDIA's; DRA drivers hand over through the kubelet.
    """
    is_plugins = DEVICE_PLUGIN in (spec.kind or "")
    return is_plugins and bool(config.nvidia_runtimes) and not is_legacy(snapshot)
