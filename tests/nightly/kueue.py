"""Kueue v0.19.2 on the lab's cluster; the real kube-scheduler binds what it admits.

Kueue admits a Workload and writes down which nodes its pods go to; its topology ungater then
gives each gated pod the node selector of its place. No web hook is registered: Workload and
pods are created here as a job controller and Kueue's hooks would.
"""

from collections.abc import Sequence
from pathlib import Path

from tests.lab.api import Api, Object
from tests.lab.pods import GPU
from tests.lab.processes import Processes, Program
from tests.lab.schedulers import objects
from tests.lab.waiting import wait_for
from tests.nightly import kueue_manager
from tests.nightly.build import version
from tests.nightly.gang import Gang

_API = "kueue.x-k8s.io/v1beta2"
_GATE = "kueue.x-k8s.io/topology"
_POD_SET = "main"
_PLACED, _PLAIN = "placed", "plain"
"""Queues of the same names: the flavour of one has a topology, that of the other has none."""
_QUOTA = {"cpu": "1000", "memory": "1000Gi", GPU: "1000"}


class Kueue:
    """The controller manager with topology-aware scheduling.

    Attributes:
        title: for a person.
    """

    title = f"Kueue {version('kueue')}"

    def __init__(self, api: Api, exported: Sequence[Object]) -> None:
        self._api = api
        (self._flavor,) = (one for one in exported if one["kind"] == "ResourceFlavor")
        self._program: Program | None = None

    def start(self, kubeconfig: Path, processes: Processes) -> None:
        """Create the queues and start the manager; the exported objects are there already."""
        plain = {**self._flavor, "metadata": {"name": _PLAIN}}
        plain["spec"] = {"nodeLabels": self._flavor["spec"]["nodeLabels"]}
        objects.apply(self._api, plain)
        for queue, flavor in ((_PLACED, self._flavor), (_PLAIN, plain)):
            for one in _queues(queue, flavor["metadata"]["name"]):
                objects.apply(self._api, one)
        self._program = kueue_manager.start(self._api, kubeconfig, processes)

    def check_running(self) -> None:
        """Raise LabFailure if the manager has ended."""
        if self._program is not None:
            self._program.check_running()

    def ask(self, gang: Gang) -> None:
        """Create the Workload; return before it is admitted."""
        objects.apply(self._api, self.group(gang))

    def admit(self, gang: Gang) -> None:
        """Wait until Kueue admits the gang, and create its pods, as a job would start then."""
        wait_for(
            f"Kueue admits gang {gang.name}",
            lambda: self._condition(gang, "Admitted") == "True",
            evidence=lambda: self.verdict(gang) or "no verdict",
        )
        for number in range(gang.size):
            objects.apply(self._api, self._pod(gang, number))

    def group(self, gang: Gang) -> Object:
        """Return the Workload."""
        pods: Object = {"name": _POD_SET, "count": gang.size, "template": {"spec": gang.pod_spec()}}
        if gang.level is not None:
            pods["topologyRequest"] = {"required": gang.level}
        queue = _PLAIN if gang.level is None else _PLACED
        return {
            "apiVersion": _API,
            "kind": "Workload",
            "metadata": {"name": gang.name},
            "spec": {"queueName": queue, "active": True, "podSets": [pods]},
        }

    def verdict(self, gang: Gang) -> str | None:
        """Return why the gang is not admitted; ``None`` if Kueue has not said so."""
        for one in self._conditions(gang):
            if (one["type"], one["status"]) == ("QuotaReserved", "False"):
                return str(one["message"])
        return None

    def _condition(self, gang: Gang, kind: str) -> str | None:
        return next((one["status"] for one in self._conditions(gang) if one["type"] == kind), None)

    def _conditions(self, gang: Gang) -> list[Object]:
        workload = self._api.get(objects.place(self._api, self.group(gang)))
        found: list[Object] = workload.get("status", {}).get("conditions", [])
        return found

    def _pod(self, gang: Gang, number: int) -> Object:
        """Return the pod as Kueue's hooks and its start of a job leave it."""
        metadata: Object = {"labels": {"kueue.x-k8s.io/podset": _POD_SET}}
        spec: Object = {"nodeSelector": self._flavor["spec"]["nodeLabels"]}
        if gang.level is not None:
            metadata["annotations"] = {
                "kueue.x-k8s.io/workload": gang.name,
                "kueue.x-k8s.io/podset-required-topology": gang.level,
            }
            spec["schedulingGates"] = [{"name": _GATE}]
        return gang.pod(number, metadata=metadata, spec=spec)


def _queues(name: str, flavor: str) -> tuple[Object, Object]:
    """Return a ClusterQueue of one *flavor*, with enough of everything, and a LocalQueue to it."""
    quota = [{"name": resource, "nominalQuota": amount} for resource, amount in _QUOTA.items()]
    group = {"coveredResources": list(_QUOTA), "flavors": [{"name": flavor, "resources": quota}]}
    spec = {"namespaceSelector": {}, "resourceGroups": [group]}
    return _named("ClusterQueue", name, spec), _named("LocalQueue", name, {"clusterQueue": name})


def _named(kind: str, name: str, spec: Object) -> Object:
    return {"apiVersion": _API, "kind": kind, "metadata": {"name": name}, "spec": spec}
