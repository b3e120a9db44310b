"""What every scheduler of the nightly proof is asked to place: pods that start together."""

from msgspec import Struct

from tests.lab.api import Api, Object
from tests.lab.pods import GPU
from tests.lab.schedulers import objects

_PODS = "/api/v1/namespaces/default/pods"


class Gang(Struct, frozen=True, kw_only=True):
    """Pods that start together or not at all.

    Attributes:
        gpus: of each pod; as many as a GB200 tray has, so that each takes one.
        level: the label that all their nodes must agree on; ``None`` for a gang that names no
            topology at all, the control.
    """

    name: str
    size: int
    gpus: int = 4
    level: str | None = None

    def pod(self, number: int, *, metadata: Object, spec: Object) -> Object:
        """Return the pod *number*, counted from 0, with what its scheduler wants added."""
        labels = {"gang": self.name, **metadata.get("labels", {})}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {**metadata, "name": f"{self.name}-{number}", "labels": labels},
            "spec": {**self.pod_spec(), **spec},
        }

    def pod_spec(self) -> Object:
        """Return the specification that all its pods share."""
        amounts = {"cpu": "1", "memory": "1Gi", GPU: str(self.gpus)}
        container = {
            "name": "work",
            "image": "registry.invalid/work:1",
            "resources": {"requests": amounts, "limits": amounts},
        }
        return {
            "containers": [container],
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 0,
        }

    def nodes(self, api: Api) -> tuple[str, ...]:
        """Return the node of each pod that is bound to one, sorted."""
        bound = (pod["spec"].get("nodeName") for pod in self.pods(api))
        return tuple(sorted(filter(None, bound)))

    def pods(self, api: Api) -> list[Object]:
        """Return its pods as the API server has them."""
        found: list[Object] = api.get(f"{_PODS}?labelSelector=gang={self.name}")["items"]
        return found

    def remove(self, api: Api, group: Object) -> None:
        """Delete the pods and then *group*, the object that holds them together."""
        for pod in self.pods(api):
            api.delete(f"{_PODS}/{pod['metadata']['name']}")
        api.delete(objects.place(api, group))
