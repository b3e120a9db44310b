"""A rule on the NVLink fabric: GPUs behind NVSwitches work together only once it let them in."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from agent.checks.inputs import (
    Inputs,
    because,
    gpu_label,
    has_no_gpus,
    is_virtual_machine,
    unknown_of,
)
from agent.checks.nvlink_inputs import (
    lost,
    missing_lists,
    no_switch,
    registers,
    silent_members,
    switched,
)
from agent.checks.rule import Area, Finding, Rule, Severity, Suite
from agent.model.gpu import Fabric, FabricState, Gpu
from agent.model.snapshot import Snapshot

# A rule on IMEX channels, by which processes share GPU memory across nodes over NVLink.

CHANNELS = "/dev/nvidia-caps-imex-channels"


def _without_channels(snapshot: Snapshot) -> tuple[Finding, ...]:
    if snapshot.nvidia is None or snapshot.nvidia.imex_channels != ():
        return ()
    return (Finding(subject=CHANNELS, observed="no channel", expected="channel0"),)


def _imex_missing(snapshot: Snapshot) -> Inputs:
    is_known = snapshot.nvidia is not None and snapshot.nvidia.imex_channels is not None
    channels = () if is_known else (f"IMEX channels{because(snapshot, 'nvidia-driver')}",)
    return (*missing_lists(snapshot), *unknown_of("fabric state", _silent(snapshot)), *channels)


def _silent(snapshot: Snapshot) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*silent_members(snapshot), *lost(snapshot))))


def _imex_skips(snapshot: Snapshot) -> str | None:
    if has_no_gpus(snapshot):
        return "no GPU"
    is_member = any(gpu.fabric and gpu.fabric.cluster_uuid for gpu in snapshot.gpus)
    is_known = not missing_lists(snapshot) and not _silent(snapshot)
    return "no multi-node NVLink" if is_known and not is_member else None


IMEX_RULE = Rule(
    code="NVL-007",
    claim="there is an IMEX channel where NVLink joins nodes",
    why="Processes on different nodes share GPU memory over NVLink only through a channel. That of "
    "NVIDIA's DRA driver comes with a job, so that none before the first job is no fault.",
    area=Area.NVLINK,
    suite=Suite.AUDIT,
    severity=Severity.INFO,
    needs=_imex_missing,
    check=_without_channels,
    skips=_imex_skips,
    remedy="use ComputeDomains of NVIDIA's DRA driver, or load the driver with "
    "NVreg_CreateImexChannel0=1 and run the service nvidia-imex on all nodes",
    reference="https://docs.nvidia.com/multi-node-nvlink-systems/imex-guide/imexchannels.html",
)


# A rule on the fabric manager, the program that sets up the routes of NVSwitches.


def _not_running(snapshot: Snapshot) -> tuple[Finding, ...]:
    if snapshot.host is None or snapshot.host.fabric_manager is not False:
        return ()
    return (Finding(subject="nv-fabricmanager", observed="does not run", expected="runs"),)


def _manager_missing(snapshot: Snapshot) -> Inputs:
    is_known = snapshot.host is not None and snapshot.host.fabric_manager is not None
    absent = () if is_known else (f"whether nv-fabricmanager runs{because(snapshot, 'host')}",)
    return missing_lists(snapshot) + absent


def _manager_skips(snapshot: Snapshot) -> str | None:
    if (reason := no_switch(snapshot)) is not None:
        return reason
    if any(map(_is_of_a_rack, snapshot.gpus)):
        return "the NVSwitches of this fabric are not in the node"
    is_guest = is_virtual_machine(snapshot) and snapshot.nvswitches == ()
    return "a virtual machine, whose host runs the fabric" if is_guest else None


def _is_of_a_rack(gpu: Gpu) -> bool:
    """Return whether the switches of *gpu* are elsewhere, as those of all Graces are."""
    return bool(gpu.fabric and gpu.fabric.cluster_uuid) or bool(gpu.c2c and gpu.c2c.is_enabled)


MANAGER_RULE = Rule(
    code="NVL-006",
    claim="the fabric manager runs where NVSwitches are in the node",
    why="Without it the switches have no routes: CUDA fails with `system not yet initialized`, and "
    "faults of links are not dealt with.",
    area=Area.NVLINK,
    suite=Suite.AUDIT,
    severity=Severity.ERROR,
    needs=_manager_missing,
    check=_not_running,
    skips=_manager_skips,
    remedy="install nvidia-fabricmanager in exactly the driver's version, then `systemctl enable "
    "--now nvidia-fabricmanager`",
    reference="https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/",
)


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
