"""The pods of the own node that its kubelet rejected, followed by one watch of failed pods.

A rejected pod is Failed and never runs (kubernetes 1.36 pkg/kubelet/kubelet.go, rejectPod). The
right to ``watch`` pods is needed; RBAC cannot limit it to the pods of one node, but the field
selector does.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from nodetopo.formats.responses import part
from nodetopo.kubeapi.client import Api, Stream
from nodetopo.kubeapi.watch import Watch

PODS = "/api/v1/pods"

REASONS = frozenset({"TopologyAffinityError", "SMTAlignmentError", "UnexpectedAdmissionError"})
"""Reasons with which the device, CPU and memory managers reject a pod (kubernetes 1.36
pkg/kubelet/cm/topologymanager/topology_manager.go, cpumanager/policy_static.go; the last covers all
their other errors, pkg/kubelet/lifecycle/handlers.go).
"""

OnPod = Callable[[Mapping[str, Any]], None]
"""Takes a whole Pod object; must be quick, and can get the same one again."""


class RejectedPods(Watch):
    """Follows the failed pods of one node, and reports the rejected ones.

    At its start it also reports earlier rejected pods that still exist.
    """

    LOST = "rejected pods not watched"
    AGAIN = "rejected pods watched again"

    def __init__(self, kubeconfig: Path | None, node: str, on_pod: OnPod) -> None:
        """Send no request yet."""
        super().__init__(
            kubeconfig,
            what=f"failed pods of {node}",
            node=node,
            selector=f"spec.nodeName={node},status.phase=Failed",
        )
        self._node = node
        self._on_pod = on_pod

    def open(self, api: Api, query: Mapping[str, str], silence_s: float) -> Stream:
        """Open the stream."""
        return api.watch(PODS, query, silence_s)

    def take(self, kind: str, pod: Mapping[str, Any]) -> None:
        """Report a rejected pod, even if a proxy ignores the selector."""
        status, spec = part(pod, "status"), part(pod, "spec")
        is_here = spec.get("nodeName") == self._node and status.get("phase") == "Failed"
        if kind != "DELETED" and is_here and status.get("reason") in REASONS:
            self._on_pod(pod)
