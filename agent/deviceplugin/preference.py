"""The last word on a preferred allocation: whatever was chosen, the answer is valid."""

from collections.abc import Collection, Sequence


def complete(
    chosen: Sequence[str], *, available: Sequence[str], required: Sequence[str], size: int
) -> tuple[str, ...]:
    """Return exactly *size* distinct ids out of *available*, or all where there are fewer.

    *required* is kept first, then *chosen*, then the rest in the order offered. The kubelet
    takes an arbitrary part of an answer that is too long, and fills one that is too short
    with arbitrary devices (kubelet 1.36 pkg/kubelet/cm/devicemanager, devicesToAllocate).
    """
    offered: Collection[str] = dict.fromkeys(available)
    wanted = dict.fromkeys((*required, *chosen, *available))
    return tuple(device for device in wanted if device in offered)[: max(size, 0)]
