"""A rule on the fabric manager, the program that sets up the routes of NVSwitches."""

from agent.checks.inputs import Inputs, because, is_virtual_machine
from agent.checks.nvlink_inputs import missing_lists, no_switch
from agent.checks.rule import Area, Finding, Rule, Severity, Suite
from agent.model.gpu import Gpu
from agent.model.snapshot import Snapshot


def _not_running(snapshot: Snapshot) -> tuple[Finding, ...]:
    if snapshot.host is None or snapshot.host.fabric_manager is not False:
        return ()
    return (Finding(subject="nv-fabricmanager", observed="does not run", expected="runs"),)


def _missing(snapshot: Snapshot) -> Inputs:
    is_known = snapshot.host is not None and snapshot.host.fabric_manager is not None
    absent = () if is_known else (f"whether nv-fabricmanager runs{because(snapshot, 'host')}",)
    return missing_lists(snapshot) + absent


def _skips(snapshot: Snapshot) -> str | None:
    if (reason := no_switch(snapshot)) is not None:
        return reason
    if any(map(_is_of_a_rack, snapshot.gpus)):
        return "the NVSwitches of this fabric are not in the node"
    is_guest = is_virtual_machine(snapshot) and snapshot.nvswitches == ()
    return "a virtual machine, whose host runs the fabric" if is_guest else None


def _is_of_a_rack(gpu: Gpu) -> bool:
    """Return whether the switches of *gpu* are elsewhere, as those of all Graces are."""
    return bool(gpu.fabric and gpu.fabric.cluster_uuid) or bool(gpu.c2c and gpu.c2c.is_enabled)


RULE = Rule(
    code="NVL-006",
    claim="the fabric manager runs where NVSwitches are in the node",
    why="Without it the switches have no routes: CUDA fails with `system not yet initialized`, and "
    "faults of links are not dealt with.",
    area=Area.NVLINK,
    suite=Suite.AUDIT,
    severity=Severity.ERROR,
    needs=_missing,
    check=_not_running,
    skips=_skips,
    remedy="install nvidia-fabricmanager in exactly the driver's version, then `systemctl enable "
    "--now nvidia-fabricmanager`",
    reference="https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/",
)
