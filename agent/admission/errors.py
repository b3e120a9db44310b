"""That there is no verdict."""

from typing import Self

# Why the kubelet does not admit a pod, in its own words.

UNEXPECTED = "UnexpectedAdmissionError"
"""``status.reason`` of an allocation that fails (1.36 pkg/kubelet/cm/admission/errors.go)."""


SMT_ALIGNMENT_ERROR = "SMTAlignmentError"
"""``status.reason`` where whole cores were wanted and cannot be had (same, cm/cpumanager)."""


TOPOLOGY_AFFINITY_ERROR = "TopologyAffinityError"
"""``status.reason`` of hints that do not agree (same, cm/topologymanager)."""


class Refusal(Exception):  # noqa: N818 - an outcome, caught where the pod is admitted
    """A pod is not admitted.

    Attributes:
        reason, message: as the kubelet writes them into the pod's status.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message

    @classmethod
    def unexpected(cls, problem: str) -> Self:
        """Return the refusal that the kubelet makes of an error of an allocation."""
        return cls(UNEXPECTED, f"Allocate failed due to {problem}, which is unexpected")

    @classmethod
    def topology(cls) -> Self:
        """Return the Topology Manager's."""
        words = "Resources cannot be allocated with Topology locality"
        return cls(TOPOLOGY_AFFINITY_ERROR, words)


MOST_NODES = 10
"""NUMA nodes that are worked out: combinations double with each. The kubelet's own limit is 8."""


class Missing(Exception):  # noqa: N818 - an outcome, caught where the pods are admitted
    """Something is not known that the verdict depends on; carries what, in *args*."""


def check_nodes(count: int) -> None:
    """Raise Missing where something has more NUMA nodes than are worked out."""
    if count > MOST_NODES:
        raise Missing(f"an answer for more than {MOST_NODES} NUMA nodes, which is not worked out")
