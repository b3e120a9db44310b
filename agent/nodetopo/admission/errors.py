"""Outcomes without an admission: the kubelet refuses a pod, or the snapshot lacks an input."""

from typing import Self

UNEXPECTED = "UnexpectedAdmissionError"
"""``status.reason`` of an allocation that fails (1.36 pkg/kubelet/cm/admission/errors.go)."""

SMT_ALIGNMENT_ERROR = "SMTAlignmentError"
"""``status.reason`` where whole cores are required and not available (same, cm/cpumanager)."""

TOPOLOGY_AFFINITY_ERROR = "TopologyAffinityError"
"""``status.reason`` where the merged hint is not admitted (same, cm/topologymanager)."""

MOST_WALKED = 27
"""NUMA nodes whose sets a kubelet can go through one after the other in about an hour: 134 million
sets, each of which takes 3 µs for memory or devices and 30 µs for CPUs (measured, 1.36.3)."""

_STALL = "kubernetes issue 135541"


class Refusal(Exception):  # noqa: N818 - an outcome, caught where the pod is admitted
    """A pod is not admitted."""

    def __init__(self, reason: str, message: str, words: str | None = None) -> None:
        super().__init__(message)
        # reason, message: as the kubelet writes them into the pod's status
        self.reason = reason
        self.message = message
        # `message` for a person; the same unless it counts bytes or millicores
        self.words = words or message

    @classmethod
    def unexpected(cls, problem: str) -> Self:
        """Return the refusal that the kubelet makes of a failed allocation."""
        return cls(UNEXPECTED, f"Allocate failed due to {problem}, which is unexpected")

    @classmethod
    def topology(cls) -> Self:
        message = "Resources cannot be allocated with Topology locality"
        return cls(TOPOLOGY_AFFINITY_ERROR, message)


class Missing(Exception):  # noqa: N818 - an outcome, caught where the pods are admitted
    """An input of the verdict is not known; *args* name what is missing."""


def check_walk(nodes: int, manager: str, remedy: str) -> None:
    """Raise Missing where a manager of the kubelet does not come to an end with its sets."""
    if nodes > MOST_WALKED:
        sets = f"tries all {2**nodes - 1:,} sets of {nodes} NUMA nodes"
        raise Missing(f"an answer from the kubelet: its {manager} {sets} ({_STALL}); {remedy}")
