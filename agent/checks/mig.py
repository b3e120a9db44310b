"""Rules on MIG: how the GPUs are partitioned, and what pods ask for."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from agent.checks.gpu_pods import GPU, MIG, container_name, pod_name
from agent.checks.inputs import Inputs, gpu_label, missing_gpus, missing_of_gpus
from agent.checks.mig_packing import (
    Geometry,
    Profile,
    fullest,
    geometry,
    is_capable,
    is_name,
    profile,
    together,
)
from agent.checks.pods.inputs import (
    effective,
    listed,
    missing_offer,
    missing_specs,
    offered,
    waiting,
    whole_gpus,
    with_gpus,
)
from agent.checks.rule import Area, Finding, Rule, Severity, Suite
from agent.model.gpu import Gpu
from agent.model.pod import Pod
from agent.model.snapshot import Snapshot

# What the rules on MIG share: which GPUs are divided, and into what.

missing_modes = missing_of_gpus(
    "MIG mode",
    lambda gpu: gpu.mig is not None or is_capable(gpu) is False,
)
"""Need the MIG mode of every GPU that can have one."""


missing_profiles = missing_of_gpus(
    "MIG devices",
    lambda gpu: gpu.mig is None or all(one.profile is not None for one in gpu.mig.instances),
)
"""Need the profile of every MIG device."""


def divided(snapshot: Snapshot) -> tuple[Gpu, ...]:
    """Return the GPUs that are in MIG mode now, by index."""
    return tuple(gpu for gpu in snapshot.gpus if gpu.is_divided)


def existing(snapshot: Snapshot) -> Counter[str]:
    """Return profile → MIG devices of the node, spelled as resources are, ``1g.10gb.me``."""
    return Counter(
        one.profile.replace("+", ".")
        for gpu in snapshot.gpus
        for one in (gpu.mig.instances if gpu.mig is not None else ())
        if one.profile is not None
    )


# Why GPUs can never hold certain MIG devices, with the sums that show it.


def impossible(rooms: Sequence[Geometry], wanted: Mapping[str, int]) -> str | None:
    """Say what GPUs with *rooms* can hold instead of *wanted* (profile → count, some).

    ``None`` when they can hold it, and when that would take too long to tell.
    """
    if not rooms:
        return "GPUs that can be divided"
    products = listed(sorted({room.product for room in rooms}))
    strange = [name for name in wanted if all(profile(name, room) is None for room in rooms)]
    if strange:
        return f"profiles of {products}, of which {listed(strange)} is none"
    if together(rooms, wanted) is not False:
        return None
    if len(wanted) == 1:
        return _of_one(rooms, *wanted)
    return _of_several(rooms, wanted)


def _of_one(rooms: Sequence[Geometry], name: str) -> str:
    total = sum(_most(room, name) for room in rooms)
    each, room = next((found, room) for room in rooms if (found := profile(name, room)))
    return (
        f"at most {total} of {name} on {_gpus(len(rooms))}: "
        f"{_most(room, name)} on each, as one takes {_part(each, room)}"
    )


def _most(room: Geometry, name: str) -> int:
    return max(counts[0] for counts in fullest([profile(name, room)], room))


def _part(one: Profile, room: Geometry) -> str:
    starts = ", ".join(map(str, one.shape.starts))
    slices = f"{one.shape.slices} of {room.slices} memory slices, from {starts} on"
    return slices if one.most is None else f"{slices}, and the GPU's only media engines"


def _of_several(rooms: Sequence[Geometry], wanted: Mapping[str, int]) -> str:
    found = {name: _anywhere(rooms, name) for name in wanted}
    terms = [f"{count} * {found[name].shape.slices}" for name, count in wanted.items()]
    need = sum(count * found[name].shape.slices for name, count in wanted.items())
    have = sum(room.slices for room in rooms)
    where = f"what {_gpus(len(rooms))} can hold together"
    if need > have:
        return f"{where}: this is {' + '.join(terms)} = {need} of {have} memory slices"
    starts = "; ".join(
        f"{name} begins at slice {', '.join(map(str, one.shape.starts))}"
        for name, one in found.items()
    )
    return f"{where}: this is {need} of {have} memory slices, but {starts}"


def _anywhere(rooms: Sequence[Geometry], name: str) -> Profile:
    return next(found for room in rooms if (found := profile(name, room)) is not None)


def _gpus(count: int) -> str:
    return "1 GPU" if count == 1 else f"{count} GPUs"


# Rules on what pods ask of GPUs that are in MIG mode.

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


def _requests_missing_layout(snapshot: Snapshot) -> Inputs:
    return (*_missing_several(snapshot), *missing_profiles(snapshot))


def _missing_geometry(snapshot: Snapshot) -> Inputs:
    unsure = _unsure(snapshot) if any(map(wanted, waiting(snapshot))) else []
    profiles = (f"MIG profiles of {listed(unsure)}",) if unsure else ()
    return (*_requests_missing_layout(snapshot), *profiles)


def _has_no_mig(snapshot: Snapshot) -> str | None:
    is_whole = all(is_capable(gpu) is False for gpu in snapshot.gpus)
    return "no GPU that can be divided" if is_whole and not missing_gpus(snapshot) else None


REQUESTS_RULES: tuple[Rule, ...] = (
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
        needs=_requests_missing_layout,
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


GUIDE = "https://docs.nvidia.com/datacenter/tesla/mig-user-guide/"
"""NVIDIA's guide to MIG."""


def _unused(snapshot: Snapshot) -> tuple[Finding, ...]:
    return (*_empty(snapshot), *_unoffered(snapshot))


def _empty(snapshot: Snapshot) -> Iterator[Finding]:
    for gpu in divided(snapshot):
        if gpu.mig is not None and not gpu.mig.instances:
            yield Finding(
                subject=gpu_label(gpu),
                observed="MIG mode without a MIG device",
                expected="MIG devices, or MIG mode off",
            )


def _unoffered(snapshot: Snapshot) -> Iterator[Finding]:
    here = offered(snapshot)
    if here is None or not _is_mixed(snapshot) or any(name.startswith(MIG) for name in here):
        return
    yield Finding(
        subject="the node's GPUs",
        observed=f"{_layout(snapshot)}; offered: {listed(sorted(here)) or 'nothing'}",
        expected="one profile on all GPUs for the strategy single, or the strategy mixed",
    )


def _is_mixed(snapshot: Snapshot) -> bool:
    """Return whether pods can be given all there is by the strategy ``mixed`` only."""
    found = divided(snapshot)
    return bool(found) and (len(found) < len(snapshot.gpus) or len(existing(snapshot)) > 1)


def _layout(snapshot: Snapshot) -> str:
    counts = sorted(existing(snapshot).items())
    whole = len(snapshot.gpus) - len(divided(snapshot))
    return listed([*(f"{count} of {name}" for name, count in counts), f"{whole} whole GPUs"])


def _missing_layout(snapshot: Snapshot) -> Inputs:
    offer = missing_offer(snapshot) if _is_mixed(snapshot) else ()
    return (*missing_modes(snapshot), *missing_profiles(snapshot), *offer)


def _pending(snapshot: Snapshot) -> tuple[Finding, ...]:
    return tuple(
        Finding(
            subject=gpu_label(gpu),
            observed="MIG mode goes off at the next reset"
            if gpu.mig.is_enabled
            else "MIG mode comes on at the next reset",
            expected="the mode that is set",
        )
        for gpu in snapshot.gpus
        if gpu.mig is not None and gpu.mig.is_pending
    )


_missing_pending = missing_of_gpus(
    "pending MIG mode",
    lambda gpu: (
        is_capable(gpu) is False or (gpu.mig is not None and gpu.mig.is_pending is not None)
    ),
)


RULES: tuple[Rule, ...] = (
    Rule(
        code="MIG-001",
        claim="pods can be given every MIG device",
        why="A GPU in MIG mode is nothing to jobs but its MIG devices. With none it lies idle; and "
        "by the strategy single one GPU of another profile, or whole, takes all out of offer.",
        area=Area.MIG,
        suite=Suite.AUDIT,
        severity=Severity.WARNING,
        needs=_missing_layout,
        check=_unused,
        remedy="divide all GPUs alike, by `nvidia-mig-parted apply` or `nvidia-smi mig -cgi … -C`, "
        "or set the device plugin's migStrategy to mixed and ask for nvidia.com/mig-PROFILE",
        reference="https://github.com/NVIDIA/k8s-device-plugin#configuration-option-details",
    ),
    Rule(
        code="MIG-002",
        claim="no GPU waits for a reset to change its MIG mode",
        why="Until then it has the old mode, and a reboot or reset at any time changes what the "
        "node offers.",
        area=Area.MIG,
        suite=Suite.AUDIT,
        severity=Severity.WARNING,
        needs=_missing_pending,
        check=_pending,
        remedy="drain the node and reset the GPU with `nvidia-smi --gpu-reset -i N`, or set the "
        "mode back with `nvidia-smi -i N -mig 0` or `1`",
        reference=GUIDE,
    ),
    *REQUESTS_RULES,
)
