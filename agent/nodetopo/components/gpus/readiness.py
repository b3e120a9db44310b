"""The reasons that keep the node's GPUs from pods, for /readyz."""

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
    """Yield the reasons that keep the node's GPUs from pods, each ``Reason: sentence``.

    No reason means ready; a node without GPUs is ready too. An agent that is not ready is alive: it
    is not restarted, and the kubelet keeps using its devices. The Kubernetes probe needs several
    failures in a row, which tolerates short conditions such as a restart of the kubelet.

    Args:
        snapshot: the latest; ``None`` before the first scan has ended.
        nvml: the result of the last attempt to read NVML.
        is_registered: resource → whether it is registered; empty while nothing is offered.
        conflicts: resource → the competing plugin that serves it, a sentence.
        refusals: why a configured resource is not offered, a sentence each.
        cdi_problem: why our CDI specification is wrong or missing, a sentence.
        hand_over_problem: why containers cannot get GPUs by any strategy, a sentence.
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
