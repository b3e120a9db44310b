"""Gangs of Kubernetes' own scheduler: a PodGroup (v1alpha2, Kubernetes 1.36) and its pods."""

from collections.abc import Mapping

from msgspec import Struct, field

from tests.lab.api import Api, Object
from tests.lab.control_plane import Alpha
from tests.lab.pods import GPU
from tests.lab.schedulers import objects
from tests.lab.waiting import wait_for

ALPHA = Alpha(
    gates=("GenericWorkload", "GangScheduling", "TopologyAwareWorkloadScheduling"),
    apis=("scheduling.k8s.io/v1alpha2",),
)
"""What gangs take in 1.36.3 (pkg/features/kube_features.go: all three alpha, off)."""

_PODS = "/api/v1/namespaces/default/pods"
_TRAY_GPUS = 4


class Gang(Struct, frozen=True, kw_only=True):
    """Pods that start together or not at all, each with all GPUs of a tray.

    Attributes:
        key: the label that all their nodes must agree on; ``None`` for no such demand.
        on: a node selector of every pod.
    """

    name: str
    size: int
    key: str | None = None
    on: Mapping[str, str] = field(default_factory=dict)

    def create(self, api: Api) -> None:
        """Create the group and then its pods; return before they are placed."""
        objects.apply(api, self.group())
        self.join(api)

    def join(self, api: Api) -> None:
        """Create the pods of a group that there is already."""
        for number in range(self.size):
            api.create(_PODS, self.pod(number))

    def group(self) -> Object:
        """Return the PodGroup."""
        spec: Object = {"schedulingPolicy": {"gang": {"minCount": self.size}}}
        if self.key is not None:
            spec["schedulingConstraints"] = {"topology": [{"key": self.key}]}
        return {
            "apiVersion": "scheduling.k8s.io/v1alpha2",
            "kind": "PodGroup",
            "metadata": {"name": self.name},
            "spec": spec,
        }

    def pod(self, number: int) -> Object:
        """Return the pod *number*, counted from 0."""
        amounts = {"cpu": "1", "memory": "1Gi", GPU: str(_TRAY_GPUS)}
        container = {
            "name": "work",
            "image": "registry.invalid/work:1",
            "resources": {"requests": amounts, "limits": amounts},
        }
        spec = {
            "schedulingGroup": {"podGroupName": self.name},
            "nodeSelector": dict(self.on),
            "containers": [container],
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 0,
        }
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"{self.name}-{number}", "labels": {"gang": self.name}},
            "spec": spec,
        }

    def place(self, api: Api) -> list[str]:
        """Create it, wait until each pod has a node, and return those nodes, sorted."""
        self.create(api)
        return self.wait_placed(api)

    def wait_placed(self, api: Api) -> list[str]:
        """Wait until each pod has a node, and return those nodes, sorted."""
        return wait_for(
            f"all {self.size} pods of gang {self.name} have nodes",
            lambda: nodes if len(nodes := self.nodes(api)) == self.size else None,
            evidence=lambda: self.verdict(api) or "no verdict",
        )

    def refusal(self, api: Api) -> str:
        """Create it, and return why the scheduler does not place it; no pod may have a node."""
        self.create(api)
        why = wait_for(f"gang {self.name} is refused", lambda: self.verdict(api))
        assert self.nodes(api) == []
        return why

    def nodes(self, api: Api) -> list[str]:
        """Return the node of each pod that has one, sorted."""
        found = api.get(f"{_PODS}?labelSelector=gang={self.name}")["items"]
        return sorted(pod["spec"]["nodeName"] for pod in found if "nodeName" in pod["spec"])

    def verdict(self, api: Api) -> str | None:
        """Return why the scheduler last did not place it; ``None`` if it has not said so."""
        status = api.get(objects.place(api, self.group())).get("status", {})
        return next(
            (
                str(one["message"])
                for one in status.get("conditions", ())
                if (one["type"], one["status"]) == ("PodGroupScheduled", "False")
            ),
            None,
        )
