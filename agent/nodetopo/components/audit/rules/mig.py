"""Rules on MIG: how the GPUs are divided, and which devices pods request."""

from collections import Counter
from collections.abc import Mapping

from nodetopo.checks.inputs import gpu_label, missing_gpus, missing_of_gpus
from nodetopo.checks.rule import Finding, Judgement, Missing, Severity, Skip, rule
from nodetopo.components.audit.rules.each import gpu_rule, known
from nodetopo.components.audit.rules.gpu_pods import GPU, MIG, container_name, pod_name
from nodetopo.components.audit.rules.mig_packing import geometry, impossible, is_capable, is_name
from nodetopo.components.audit.rules.pods.inputs import (
    effective,
    listed,
    missing_offer,
    missing_specs,
    offered,
    waiting,
    whole_gpus,
    with_gpus,
)
from nodetopo.model.gpu import Gpu
from nodetopo.model.pod import Pod
from nodetopo.model.snapshot import Snapshot


@rule("MIG-001", Severity.WARNING)
def unused_devices(snapshot: Snapshot) -> Judgement:
    """Find GPUs without a MIG device, and layouts that only the strategy ``mixed`` can offer."""
    divided = [gpu for gpu in snapshot.gpus if gpu.is_divided]
    for gpu in divided:
        if gpu.mig is not None and not gpu.mig.instances:
            yield Finding(
                subject=gpu_label(gpu),
                observed="MIG mode without a MIG device",
                expected="MIG devices, or MIG mode off",
            )
    counts, whole = _existing(snapshot), len(snapshot.gpus) - len(divided)
    is_mixed = bool(divided) and (whole > 0 or len(counts) > 1)
    offer = offered(snapshot)
    if is_mixed and offer is not None and not any(name.startswith(MIG) for name in offer):
        profiles = [f"{count} of {name}" for name, count in sorted(counts.items())]
        yield Finding(
            subject="the node's GPUs",
            observed=f"{listed([*profiles, f'{whole} whole GPUs'])}; "
            f"offered: {listed(sorted(offer)) or 'nothing'}",
            expected="one profile on all GPUs for the strategy single, or the strategy mixed",
        )
    yield from _missing_layout(snapshot)
    if is_mixed:
        yield from missing_offer(snapshot)


@gpu_rule(
    "MIG-002", Severity.WARNING, "pending MIG mode", expected="the mode that is set", unless=()
)
def pending_modes(gpu: Gpu) -> str | None:
    """Return how the MIG mode of *gpu* changes at the next reset."""
    is_pending = None if gpu.mig is None else gpu.mig.is_pending
    if is_pending is None and is_capable(gpu) is False:
        return None
    if not known(is_pending) or gpu.mig is None:
        return None
    change = "goes off" if gpu.mig.is_enabled else "comes on"
    return f"MIG mode {change} at the next reset"


@rule("MIG-003", Severity.WARNING)
def several_gpus(snapshot: Snapshot) -> Judgement:
    """Find containers that ask for more whole GPUs than are not in MIG mode."""
    if all(is_capable(gpu) is False for gpu in snapshot.gpus) and not missing_gpus(snapshot):
        yield Skip("no GPU that can be divided")
        return
    divided = sum(gpu.is_divided for gpu in snapshot.gpus)
    whole = len(snapshot.gpus) - divided
    for pod, container in with_gpus(snapshot) if divided else ():
        if (count := whole_gpus(container)) > max(whole, 1):
            yield Finding(
                subject=container_name(pod, container),
                observed=f"{count} of {GPU}; {divided} of the node's "
                f"{len(snapshot.gpus)} GPUs are in MIG mode",
                expected=f"at most {max(whole, 1)}" if whole else "one MIG device",
            )
    yield from missing_specs(snapshot)
    yield from _missing_modes(snapshot)


@rule("MIG-004", Severity.WARNING)
def absent_devices(snapshot: Snapshot) -> Judgement:
    """Find pods that wait for MIG devices which another layout of the GPUs would have."""
    absent, existing = _missing_layout(snapshot), _existing(snapshot)
    for pod in waiting(snapshot) if not absent else ():
        asked = _asked(pod)
        if asked and _obstacle(snapshot, asked) is None:
            for name, count in asked.items():
                if count > existing[name]:
                    yield Finding(
                        subject=pod_name(pod),
                        observed=f"{count} of {name}; the node has {existing[name]}",
                        expected=f"a layout with {count} of {name}",
                    )
    yield from missing_specs(snapshot)
    yield from absent


@rule("MIG-005", Severity.ERROR)
def impossible_devices(snapshot: Snapshot) -> Judgement:
    """Find pods that wait for MIG devices which no layout of the GPUs has."""
    asks_for_any = False
    for pod in waiting(snapshot):
        if asked := _asked(pod):
            asks_for_any = True
            if obstacle := _obstacle(snapshot, asked):
                yield Finding(
                    subject=pod_name(pod),
                    observed=listed(f"{count} of {name}" for name, count in asked.items()),
                    expected=obstacle,
                )
    yield from missing_specs(snapshot)
    yield from _missing_layout(snapshot)
    if asks_for_any and (unsure := _without_geometry(snapshot)):
        yield Missing(f"MIG profiles of {listed(unsure)}")


def _missing_modes(snapshot: Snapshot) -> tuple[Missing, ...]:
    """Need the MIG mode of every GPU that can have one."""
    silent = [gpu.name for gpu in snapshot.gpus if not gpu.mig and is_capable(gpu) is not False]
    return missing_of_gpus(snapshot, "MIG mode", silent)


def _missing_layout(snapshot: Snapshot) -> tuple[Missing, ...]:
    """Need the same, and the profile of every MIG device."""
    silent = [
        gpu.name
        for gpu in snapshot.gpus
        if gpu.mig and any(instance.profile is None for instance in gpu.mig.instances)
    ]
    return _missing_modes(snapshot) + missing_of_gpus(snapshot, "MIG devices", silent)


def _existing(snapshot: Snapshot) -> Counter[str]:
    """Return profile → MIG devices of the node, spelled as resources are, ``1g.10gb.me``."""
    return Counter(
        instance.profile.replace("+", ".")
        for gpu in snapshot.gpus
        for instance in (gpu.mig.instances if gpu.mig is not None else ())
        if instance.profile is not None
    )


def _asked(pod: Pod) -> Mapping[str, int]:
    """Return profile → number of MIG devices that *pod* needs at a time.

    A resource of time-sliced devices, ``….shared``, does not reveal their number
    (NVIDIA/k8s-device-plugin v0.19.0), and is left out like every other name.
    """
    amounts = {
        resource.removeprefix(MIG): amount
        for resource, amount in effective(pod).items()
        if resource.startswith(MIG) and amount > 0
    }
    return {name: amounts[name] for name in sorted(amounts) if is_name(name)}


def _obstacle(snapshot: Snapshot, asked: Mapping[str, int]) -> str | None:
    """Return why no layout of the node's GPUs has *asked*; ``None`` if one may."""
    existing = _existing(snapshot)
    is_there = all(count <= existing[name] for name, count in asked.items())
    if is_there or _without_geometry(snapshot):
        return None
    rooms = (geometry(gpu) for gpu in snapshot.gpus if is_capable(gpu))
    return impossible([room for room in rooms if room is not None], asked)


def _without_geometry(snapshot: Snapshot) -> list[str]:
    """Return the GPUs whose possible MIG devices are unknown."""
    return [
        gpu.name for gpu in snapshot.gpus if is_capable(gpu) is not False and geometry(gpu) is None
    ]
