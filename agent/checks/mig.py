"""Rules on MIG: how the GPUs are partitioned, and what pods ask for."""

from collections.abc import Iterator

from agent.checks import mig_requests
from agent.checks.gpu_pods import MIG
from agent.checks.inputs import Inputs, gpu_label, missing_of_gpus
from agent.checks.mig_geometry import is_capable
from agent.checks.mig_parts import divided, existing, missing_modes, missing_profiles
from agent.checks.pods.inputs import listed, missing_offer, offered
from agent.checks.rule import Area, Finding, Rule, Severity, Suite
from agent.model.snapshot import Snapshot

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
    *mig_requests.RULES,
)
