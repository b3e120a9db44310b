"""The rule on who keeps the NVIDIA driver from being unloaded."""

from nodetopo.checks.inputs import because
from nodetopo.checks.rule import Finding, Judgement, Missing, Severity, Skip, rule
from nodetopo.components.audit.rules.kernel_inputs import host_of
from nodetopo.model.operator_labels import driver_claim
from nodetopo.model.snapshot import Snapshot


@rule(
    "RUN-012",
    Severity.WARNING,
    claim="no process has the NVIDIA driver open while a label of the Node asks for it",
    why="The driver cannot be unloaded, nor a GPU's MIG mode be changed, while a process has it "
    "open: the GPU Operator's upgrade, or the MIG manager's change, waits or fails.",
    remedy="end the named processes, such as a monitoring agent or a host service; let DaemonSets "
    "that use GPUs avoid nodes by the label nvidia.com/gpu.deploy.device-plugin, as ours does",
    reference="https://docs.nvidia.com/datacenter/cloud-native/gpu-operator/latest/"
    "gpu-driver-upgrades.html",
)
def driver_in_use(snapshot: Snapshot) -> Judgement:
    """Find processes that hold device nodes of the driver while it has to be free."""
    node = snapshot.node_status
    if node is None or node.labels is None:
        yield Missing("labels of the Node", because(snapshot, "node"))
        return
    claim = driver_claim(node.labels)
    if claim is None:
        yield Skip("no label asks for a free driver")
        return
    holders = host_of(snapshot).driver_holders
    if holders is None:
        yield Missing("processes of the host")
        return
    for holder in holders.processes:
        where = "" if holder.container is None else f", container {holder.container}"
        yield Finding(
            subject=f"{holder.name} (process {holder.pid}{where})",
            observed="has device nodes of the driver open",
            expected=f"closed while {claim}",
        )
    if holders.unread:
        yield Missing(f"open files of {holders.unread} processes")
