"""Why the agent is not ready: what keeps the node's GPUs from pods, in lines for a person.

Ready is not alive: nobody restarts an agent for a line here, and the kubelet goes on using what it
has. The Kubernetes probe asks several times before it believes a no, which lets pass what passes by
itself, such as a restart of the kubelet.
"""

from collections.abc import Mapping, Sequence

from agent.model.nvml_event import NvmlStatus, NvmlTrouble
from agent.model.snapshot import Snapshot

PATIENCE = 3
"""Readings in a row that NVML may owe while devices are offered."""

_VERSION_MISMATCH = 18  # NVML_ERROR_LIB_RM_VERSION_MISMATCH (nvml.h)

_REASONS = {
    NvmlTrouble.NO_ANSWER: "NvmlUnresponsive",
    NvmlTrouble.REFUSED: "NvmlRefuses",
    NvmlTrouble.DIED: "NvmlDied",
    NvmlTrouble.NO_LIBRARY: "NvmlLibraryGone",
}
"""The words of the Events that tell the same."""


def not_ready(
    *,
    snapshot: Snapshot | None,
    nvml: NvmlStatus,
    is_registered: Mapping[str, bool],
    conflicts: Mapping[str, str],
    refusals: Sequence[str] = (),
) -> str | None:
    """Return the reasons, a line ``Reason: sentence`` for each; ``None`` for ready.

    A node without GPUs is ready: there is nothing to offer.

    Args:
        snapshot: the latest; ``None`` before the first scan has ended.
        nvml: how the last attempt to read NVML ended.
        is_registered: resource → whether the kubelet has it; empty while nothing is offered.
        conflicts: resource → what is known of the other plugin that took it, a sentence.
        refusals: why a resource that settings ask for is not offered, a sentence each.
    """
    if snapshot is None:
        return "NotScanned: the node has not been read yet"
    lines = [f"ResourceConflict: {said}" for _, said in sorted(conflicts.items())]
    lines += [
        f"NotRegistered: the kubelet does not have {resource}"
        for resource, is_there in sorted(is_registered.items())
        if not is_there and resource not in conflicts
    ]
    lines += [f"NotOffered: {said}" for said in refusals]
    is_missed = nvml.failures >= PATIENCE or not is_registered
    if is_missed and nvml.trouble is not None and (snapshot.gpus or snapshot.pci_gpus):
        is_mismatch = nvml.code == _VERSION_MISMATCH
        reason = "NvmlVersionMismatch" if is_mismatch else _REASONS[nvml.trouble]
        lines.append(f"{reason}: {nvml.cause or 'it gave no reading'}")
    return "\n".join(lines) or None
