"""Rules on NVIDIA's container toolkit, and on which runtime pods get."""

import re

from agent.checks.gpu_pods import pod_name
from agent.checks.inputs import Inputs
from agent.checks.pods.inputs import missing_specs as missing_pods
from agent.checks.pods.inputs import with_gpus
from agent.checks.rule import Area, Finding, Rule, Severity, Suite
from agent.checks.runtime_inputs import (
    configs,
    has_cdi,
    is_legacy,
    missing_cdi,
    missing_configs,
    missing_specs,
    missing_toolkit,
    of_plugins,
    specs,
    toolkit,
    without_toolkit,
)
from agent.model.host import RuntimeConfig
from agent.model.snapshot import Snapshot

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
