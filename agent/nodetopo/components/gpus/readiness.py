"""What keeps the node's GPUs from pods, as /readyz says it."""

from collections.abc import Iterator, Mapping, Sequence

from nodetopo.model.nvml_event import NvmlStatus, NvmlTrouble
from nodetopo.model.snapshot import Snapshot
from nodetopo.topology.presence import dead_gpus

PATIENCE = 3
"""Consecutive failures to read NVML that are tolerated while devices are offered."""

_VERSION_MISMATCH = 18  # NVML_ERROR_LIB_RM_VERSION_MISMATCH (nvml.h)

_REASONS = {
    NvmlTrouble.NO_ANSWER: "NvmlUnresponsive",
    NvmlTrouble.REFUSED: "NvmlRefuses",
    NvmlTrouble.DIED: "NvmlDied",
    NvmlTrouble.NO_LIBRARY: "NvmlLibraryGone",
}
"""The reasons of the Events that report the same."""


def not_ready(
    *,
    snapshot: Snapshot | None,
    nvml: NvmlStatus,
    is_registered: Mapping[str, bool],
    conflicts: Mapping[str, str],
    refusals: Sequence[str] = (),
    cdi_problem: str | None = None,
    hand_over_problem: str | None = None,
    pause: str | None = None,
) -> Iterator[str]:
    """Yield what keeps the node's GPUs from pods, each ``Reason: sentence``.

    Nothing means ready; so is a node without GPUs, which has nothing to offer. An agent that is
    not ready is alive: it is not restarted, and the kubelet goes on using its devices. The
    Kubernetes probe asks several times before it believes a no, which tolerates what passes by
    itself, such as a restart of the kubelet.

    Args:
        snapshot: the latest; ``None`` before the first scan has ended.
        nvml: how the last attempt to read NVML ended.
        is_registered: resource → whether the kubelet has it; empty while nothing is offered.
        conflicts: resource → which competing plugin serves it, a sentence.
        refusals: why a configured resource is not offered, a sentence each.
        cdi_problem: why our CDI specification is not what it should be, a sentence.
        hand_over_problem: why no way hands GPUs to containers, a sentence.
        pause: why NVML is closed on request, a sentence.
    """
    if snapshot is None and pause is None:
        yield "NotScanned: the node has not been read yet"
        return
    if pause is not None:
        yield f"DriverPaused: {pause}"
    for _, text in sorted(conflicts.items()):
        yield f"ResourceConflict: {text}"
    for resource, is_there in sorted(is_registered.items()):
        if not is_there and resource not in conflicts:
            yield f"NotRegistered: the kubelet does not have {resource}"
    for text in refusals:
        yield f"NotOffered: {text}"
    if hand_over_problem is not None and is_registered:
        yield f"NoHandOver: {hand_over_problem}"
    if cdi_problem is not None:
        yield f"CdiNotWritten: {cdi_problem}"
    if snapshot is None:
        return
    if not snapshot.gpus and nvml.trouble is None and (dead := dead_gpus(snapshot)):
        yield f"GpusMissing: NVML lists none of the {len(dead)} GPUs on the PCI bus"
    is_nvml_missed = nvml.failures >= PATIENCE or not is_registered
    if is_nvml_missed and nvml.trouble is not None and (snapshot.gpus or snapshot.pci_gpus):
        is_mismatch = nvml.code == _VERSION_MISMATCH
        reason = "NvmlVersionMismatch" if is_mismatch else _REASONS[nvml.trouble]
        yield f"{reason}: {nvml.cause or 'it gave no reading'}"
