"""The KAI scheduler and its binder, v0.12.0, on the lab's cluster.

They need no operator, no web hook and no pod grouper: queues and PodGroups are created here.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.lab.api import Api, Object
from tests.lab.control_plane import free_port
from tests.lab.processes import Processes, Program
from tests.lab.schedulers import objects
from tests.nightly.build import KAI_BINDER, KAI_SCHEDULER, programs, version
from tests.nightly.gang import Gang

_QUEUE, _PARENT = "gangs", "everything"
"""A queue always has a parent in KAI (docs/queues)."""


class Kai:
    """The scheduler, which decides, and the binder, which carries it out.

    Attributes:
        title: for a person.
    """

    title = f"KAI {version('kai')}"

    def __init__(self, api: Api, exported: Sequence[Object]) -> None:
        self._api = api
        (topology,) = (one for one in exported if one["kind"] == "Topology")
        self._topology: str = topology["metadata"]["name"]
        self._running: tuple[Program, ...] = ()

    def start(self, kubeconfig: Path, processes: Processes) -> None:
        """Create the queues and start both programs; the exported objects are there already."""
        for queue in (_queue(_PARENT), _queue(_QUEUE, parentQueue=_PARENT)):
            objects.apply(self._api, queue)
        folder, environment = programs("kai"), {"KUBECONFIG": str(kubeconfig)}
        self._running = tuple(
            processes.start(name, [folder / name, *flags], environment=environment)
            for name, flags in _flags().items()
        )

    def check_running(self) -> None:
        """Raise LabFailure if one of them has ended."""
        for program in self._running:
            program.check_running()

    def ask(self, gang: Gang) -> None:
        """Create the group and its pods; return before they are placed."""
        objects.apply(self._api, self.group(gang))
        for number in range(gang.size):
            objects.apply(self._api, _pod(gang, number))

    def admit(self, gang: Gang) -> None:
        """Do nothing more: KAI binds the pods that it chose nodes for."""

    def group(self, gang: Gang) -> Object:
        """Return the PodGroup."""
        spec: Object = {"queue": _QUEUE, "minMember": gang.size, "markUnschedulable": True}
        if gang.level is not None:
            level = {"topology": self._topology, "requiredTopologyLevel": gang.level}
            spec["topologyConstraint"] = level
        return {
            "apiVersion": "scheduling.run.ai/v2alpha2",
            "kind": "PodGroup",
            "metadata": {"name": gang.name},
            "spec": spec,
        }

    def verdict(self, gang: Gang) -> str | None:
        """Return why the gang is not placed; ``None`` if KAI has not said so."""
        status = self._api.get(objects.place(self._api, self.group(gang))).get("status", {})
        told = [one["message"] for one in status.get("schedulingConditions", ())]
        return "\n".join(told) or None


def _flags() -> Mapping[str, tuple[str, ...]]:
    address, health, metrics = (f"127.0.0.1:{free_port()}" for _ in range(3))
    return {
        # The server of its plug-ins would listen on every address of the machine (v0.12.0,
        # cmd/scheduler/app/server.go). Without a port that exists there is none; nothing asks it.
        KAI_SCHEDULER: (f"--listen-address={address}", "--plugin-server-port=-1"),
        KAI_BINDER: (f"--health-probe-bind-address={health}", f"--metrics-bind-address={metrics}"),
    }


def _queue(name: str, **more: str) -> Object:
    unlimited = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
    resources = {"gpu": unlimited, "cpu": unlimited, "memory": unlimited}
    return {
        "apiVersion": "scheduling.run.ai/v2",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": {"resources": resources, **more},
    }


def _pod(gang: Gang, number: int) -> Object:
    metadata = {"annotations": {"pod-group-name": gang.name}}
    return gang.pod(number, metadata=metadata, spec={"schedulerName": "kai-scheduler"})
