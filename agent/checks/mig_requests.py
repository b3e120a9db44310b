"""Rules on what pods ask of GPUs that are in MIG mode."""

from collections.abc import Mapping

from agent.checks.gpu_pods import GPU, MIG, container_name, pod_name
from agent.checks.inputs import Inputs, missing_gpus
from agent.checks.mig_explain import impossible
from agent.checks.mig_geometry import geometry, is_capable, is_name
from agent.checks.mig_parts import divided, existing, missing_modes, missing_profiles
from agent.checks.pods.inputs import (
    effective,
    listed,
    missing_specs,
    waiting,
    whole_gpus,
    with_gpus,
)
from agent.checks.rule import Area, Finding, Rule, Severity, Suite
from agent.model.gpu import Gpu
from agent.model.pod import Pod
from agent.model.snapshot import Snapshot

_GUIDE = "https://docs.nvidia.com/datacenter/tesla/mig-user-guide/supported-mig-profiles.html"


def wanted(pod: Pod) -> Mapping[str, int]:
    """Return profile → how many MIG devices of it *pod* must have at a time.

    A resource of devices that pods share in turns, ``….shared``, says nothing of how many there
    are (NVIDIA/k8s-device-plugin v0.19.0), and is left out as every name that is no profile's.
    """
    found = {
        resource.removeprefix(MIG): amount
        for resource, amount in effective(pod).items()
        if resource.startswith(MIG) and amount > 0
    }
    return {name: found[name] for name in sorted(found) if is_name(name)}


def _several(snapshot: Snapshot) -> tuple[Finding, ...]:
    parted = len(divided(snapshot))
    whole = len(snapshot.gpus) - parted
    if not parted:
        return ()
    return tuple(
        Finding(
            subject=container_name(pod, container),
            observed=f"{whole_gpus(container)} of {GPU}; {parted} of the node's "
            f"{len(snapshot.gpus)} GPUs are in MIG mode",
            expected=f"at most {max(whole, 1)}" if whole else "one MIG device",
        )
        for pod, container in with_gpus(snapshot)
        if whole_gpus(container) > max(whole, 1)
    )


def _absent(snapshot: Snapshot) -> tuple[Finding, ...]:
    if missing_modes(snapshot) or missing_profiles(snapshot):
        return ()
    here = existing(snapshot)
    return tuple(
        Finding(
            subject=pod_name(pod),
            observed=f"{count} of {name}; the node has {here[name]}",
            expected=f"a layout with {count} of {name}",
        )
        for pod in waiting(snapshot)
        if (asks := wanted(pod)) and _reason(snapshot, asks) is None
        for name, count in asks.items()
        if count > here[name]
    )


def _never(snapshot: Snapshot) -> tuple[Finding, ...]:
    return tuple(
        Finding(
            subject=pod_name(pod),
            observed=listed(f"{count} of {name}" for name, count in asks.items()),
            expected=reason,
        )
        for pod in waiting(snapshot)
        if (asks := wanted(pod)) and (reason := _reason(snapshot, asks)) is not None
    )


def _reason(snapshot: Snapshot, asks: Mapping[str, int]) -> str | None:
    """Say why no layout of the node's GPUs has *asks*; ``None`` where one may."""
    here = existing(snapshot)
    if all(count <= here[name] for name, count in asks.items()) or _unsure(snapshot):
        return None
    rooms = (geometry(gpu) for gpu in snapshot.gpus if is_capable(gpu))
    return impossible([room for room in rooms if room is not None], asks)


def _unsure(snapshot: Snapshot) -> list[str]:
    """Return the GPUs of which it is not known what MIG devices they can hold."""
    return [gpu.name for gpu in snapshot.gpus if not _is_known(gpu)]


def _is_known(gpu: Gpu) -> bool:
    return is_capable(gpu) is False or geometry(gpu) is not None


def _missing_several(snapshot: Snapshot) -> Inputs:
    return (*missing_specs(snapshot), *missing_modes(snapshot))


def _missing_layout(snapshot: Snapshot) -> Inputs:
    return (*_missing_several(snapshot), *missing_profiles(snapshot))


def _missing_geometry(snapshot: Snapshot) -> Inputs:
    unsure = _unsure(snapshot) if any(map(wanted, waiting(snapshot))) else []
    profiles = (f"MIG profiles of {listed(unsure)}",) if unsure else ()
    return (*_missing_layout(snapshot), *profiles)


def _has_no_mig(snapshot: Snapshot) -> str | None:
    is_whole = all(is_capable(gpu) is False for gpu in snapshot.gpus)
    return "no GPU that can be divided" if is_whole and not missing_gpus(snapshot) else None


RULES: tuple[Rule, ...] = (
    Rule(
        code="MIG-003",
        claim="no job of several GPUs meets MIG",
        why="MIG devices have no NVLink and no peer access, and a CUDA process sees one of them "
        "only: a job of several GPUs runs on one part of one GPU, or not at all.",
        area=Area.MIG,
        suite=Suite.AUDIT,
        severity=Severity.WARNING,
        needs=_missing_several,
        check=_several,
        skips=_has_no_mig,
        remedy="turn MIG off on the GPUs of such jobs, or keep the jobs away by node label and "
        "selector",
        reference="https://docs.nvidia.com/datacenter/tesla/mig-user-guide/"
        "deployment-considerations.html",
    ),
    Rule(
        code="MIG-004",
        claim="the node has every MIG device that pods ask for",
        why="A pod whose profile the node has too few of stays Pending until someone divides the "
        "GPUs anew.",
        area=Area.MIG,
        suite=Suite.AUDIT,
        severity=Severity.WARNING,
        needs=_missing_layout,
        check=_absent,
        remedy="choose a layout with these profiles, by the label nvidia.com/mig.config for the "
        "GPU operator's MIG manager or by `nvidia-mig-parted apply`, or ask for a profile that is "
        "there",
        reference=_GUIDE,
    ),
    Rule(
        code="MIG-005",
        claim="GPUs like these can be divided into all that a pod asks for",
        why="MIG devices of one pod must be on one node. A profile that the GPUs do not have, or "
        "more of it than fit on them, keeps the pod Pending for ever, however they are divided.",
        area=Area.MIG,
        suite=Suite.AUDIT,
        severity=Severity.ERROR,
        needs=_missing_geometry,
        check=_never,
        remedy="ask for fewer or smaller MIG devices, and divide the job into more pods",
        reference=_GUIDE,
    ),
)
