"""Rules on the NVLink fabric: NVSwitches, and NVLink that joins nodes."""

from collections.abc import Mapping
from types import MappingProxyType

from nodetopo.checks.inputs import because, gpu_label, is_virtual_machine, no_gpus, unknown_of
from nodetopo.checks.rule import Finding, Judgement, Missing, Severity, Skip, rule
from nodetopo.components.audit.rules.nvlink_inputs import (
    may_register,
    missing_lists,
    no_switch,
    switched,
    without_fabric_state,
)
from nodetopo.model.gpu import Fabric, FabricState
from nodetopo.model.snapshot import Snapshot
from nodetopo.topology.domains import cluster_uuid

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

CHANNELS = "/dev/nvidia-caps-imex-channels"


@rule("NVL-004", Severity.ERROR)
def fabric_registration(snapshot: Snapshot) -> Judgement:
    """Find GPUs whose registration failed or goes on, and those with a degraded fabric."""
    reason = no_switch(snapshot)
    if snapshot.gpus and not any(map(may_register, snapshot.gpus)):
        reason = "these GPUs do not register with a fabric"
    if reason:
        yield Skip(reason)
        return
    for gpu in switched(snapshot):
        if gpu.fabric is not None and (trouble := _trouble(gpu.fabric)):
            yield Finding(
                subject=gpu_label(gpu),
                observed=trouble,
                expected="registration completed, and sound",
            )
    yield from missing_lists(snapshot)
    yield from unknown_of("fabric state", without_fabric_state(snapshot))


@rule("NVL-006", Severity.ERROR)
def fabric_manager(snapshot: Snapshot) -> Judgement:
    """Find that the program that sets up the routes of NVSwitches does not run."""
    reason = no_switch(snapshot)
    # The switches of a rack, which all Graces have, run their own fabric manager.
    if reason is None and any(
        cluster_uuid(gpu) or (gpu.c2c and gpu.c2c.is_enabled) for gpu in snapshot.gpus
    ):
        reason = "the NVSwitches of this fabric are not in the node"
    if reason is None and is_virtual_machine(snapshot) and snapshot.nvswitches == ():
        reason = "a virtual machine, whose host runs the fabric"
    if reason:
        yield Skip(reason)
        return
    runs = None if snapshot.host is None else snapshot.host.fabric_manager
    if runs is False:
        yield Finding(subject="nv-fabricmanager", observed="does not run", expected="runs")
    yield from missing_lists(snapshot)
    if runs is None:
        yield Missing("whether nv-fabricmanager runs", because(snapshot, "host"))


@rule("NVL-007", Severity.INFO)
def imex_channels(snapshot: Snapshot) -> Judgement:
    """Find missing IMEX channels, which processes need to share GPU memory across nodes."""
    lists, silent = missing_lists(snapshot), without_fabric_state(snapshot)
    is_member = any(map(cluster_uuid, snapshot.gpus))
    reason = no_gpus(snapshot)
    if reason is None and not (is_member or lists or silent):
        reason = "no multi-node NVLink"
    if reason:
        yield Skip(reason)
        return
    channels = None if snapshot.nvidia is None else snapshot.nvidia.imex_channels
    if channels == ():
        yield Finding(subject=CHANNELS, observed="no channel", expected="channel0")
    yield from lists
    yield from unknown_of("fabric state", silent)
    if channels is None:
        yield Missing("IMEX channels", because(snapshot, "nvidia-driver"))


def _trouble(fabric: Fabric) -> str:
    """Return the reason that keeps a GPU out of its fabric or degrades it; empty without one."""
    if fabric.state is FabricState.NOT_SUPPORTED:
        return ""
    if fabric.state is not FabricState.COMPLETED:
        return f"registration {fabric.state.value}"
    if fabric.status:
        return f"registration failed with nvmlReturn_t {fabric.status}"
    mask = fabric.health_mask or 0
    return ", ".join(
        text for (shift, width, value), text in DEGRADED.items() if mask >> shift & width == value
    )
