"""A rule on the NVLink fabric: GPUs behind NVSwitches work together only once it let them in."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from agent.checks.inputs import Inputs, gpu_label, unknown_of
from agent.checks.nvlink_inputs import (
    lost,
    missing_lists,
    no_switch,
    registers,
    silent_members,
    switched,
)
from agent.checks.rule import Area, Finding, Rule, Severity, Suite
from agent.model.gpu import Fabric, FabricState
from agent.model.snapshot import Snapshot

DEGRADED: Mapping[tuple[int, int, int], str] = MappingProxyType(
    {
        (0, 0x3, 1): "bandwidth degraded",
        (2, 0x3, 1): "route recovery under way",
        (4, 0x3, 1): "route unhealthy",
        (6, 0x3, 1): "access timeout recovery under way",
        (8, 0xF, 2): "configuration: wrong system GUID",
        (8, 0xF, 3): "configuration: wrong serial number of the chassis",
        (8, 0xF, 4): "configuration: no partition",
        (8, 0xF, 5): "configuration: too few NVLinks",
        (8, 0xF, 6): "configuration: incompatible GPU firmware",
        (8, 0xF, 7): "configuration: wrong place",
        (8, 0xF, 8): "configuration: invalid state of the GPU",
    },
)
"""Shift, mask and value in the health mask (nvml.h NVML_GPU_FABRIC_HEALTH_MASK_*)."""


def _outside(snapshot: Snapshot) -> tuple[Finding, ...]:
    return tuple(
        Finding(
            subject=gpu_label(gpu),
            observed=trouble,
            expected="registration completed, and sound",
        )
        for gpu in switched(snapshot)
        if gpu.fabric is not None and (trouble := _trouble(gpu.fabric))
    )


def _trouble(fabric: Fabric) -> str:
    if fabric.state is FabricState.NOT_SUPPORTED:
        return ""
    if fabric.state is not FabricState.COMPLETED:
        return f"registration {fabric.state.value}"
    if fabric.status:
        return f"registration failed with nvmlReturn_t {fabric.status}"
    return ", ".join(_ailments(fabric.health_mask or 0))


def _ailments(mask: int) -> Iterator[str]:
    for (shift, width, value), text in DEGRADED.items():
        if mask >> shift & width == value:
            yield text


def _missing(snapshot: Snapshot) -> Inputs:
    names = dict.fromkeys((*silent_members(snapshot), *lost(snapshot)))
    return missing_lists(snapshot) + unknown_of("fabric state", names)


def _skips(snapshot: Snapshot) -> str | None:
    if snapshot.gpus and not any(map(registers, snapshot.gpus)):
        return "these GPUs do not register with a fabric"
    return no_switch(snapshot)


RULE = Rule(
    code="NVL-004",
    claim="every GPU behind NVSwitches has joined the NVLink fabric, and it is sound",
    why="A GPU that the fabric did not let in reaches no other GPU over NVLink, and CUDA may not "
    "start on it at all.",
    area=Area.NVLINK,
    suite=Suite.HEALTH,
    severity=Severity.ERROR,
    needs=_missing,
    check=_outside,
    skips=_skips,
    remedy="check that nv-fabricmanager runs in exactly the driver's version, on NVLink racks on "
    "the NVLink switches, and read its log; then reset the GPUs",
    reference="https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/",
)
