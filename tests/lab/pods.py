"""Pods for the tests: made, awaited and deleted through the API server."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from tests.lab.api import Api, Object
from tests.lab.waiting import wait_for

_COLLECTION = "/api/v1/namespaces/default/pods"

GPU = "nvidia.com/gpu"


def guaranteed(name: str, node: str, resources: Mapping[str, str | int]) -> Object:
    """Return a pod whose one container has *resources* as requests and as limits.

    The scheduler places it; the node selector leaves it one choice. The image is never
    pulled, and the container never has a process: the runtime is simulated.
    """
    return with_containers(name, node, [resources])


def with_containers(
    name: str,
    node: str,
    apps: Sequence[Mapping[str, str | int]],
    *,
    init: Sequence[Mapping[str, str | int]] = (),
) -> Object:
    """Return a pod with one container for each entry, resources as in :func:`guaranteed`.

    Its containers are named ``work``, ``work-1`` and so on. An init container never ends
    here, so that the pod stays Pending; it is admitted with all of its devices all the same.
    """
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "nodeSelector": {"kubernetes.io/hostname": node},
            "restartPolicy": "Never",
            "dnsPolicy": "Default",
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
            "initContainers": _containers("init", init),
            "containers": _containers("work", apps),
        },
    }


def restarting(pod: Object) -> Object:
    """Return *pod* with containers that are started again whenever they end."""
    return {**pod, "spec": {**pod["spec"], "restartPolicy": "Always"}}


def _containers(stem: str, wanted: Sequence[Mapping[str, str | int]]) -> list[Object]:
    containers = []
    for number, resources in enumerate(wanted):
        amounts = {key: str(value) for key, value in resources.items()}
        containers.append(
            {
                "name": f"{stem}-{number}" if number else stem,
                "image": "registry.invalid/work:1",
                "resources": {"requests": amounts, "limits": amounts},
            }
        )
    return containers


class Pods:
    """The pods of namespace ``default``."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def create(self, pod: Object) -> None:
        """Create *pod*; return before it is scheduled."""
        self._api.create(_COLLECTION, pod)

    def get(self, name: str) -> Object:
        """Return the pod."""
        return self._api.get(f"{_COLLECTION}/{name}")

    def phase(self, name: str) -> str:
        """Return the pod's phase as the API server has it."""
        phase: str = self.get(name)["status"]["phase"]
        return phase

    def run(self, pod: Object) -> Object:
        """Create *pod* and wait until it runs."""
        self.create(pod)
        return self.wait_phase(pod["metadata"]["name"], "Running")

    def wait_phase(self, name: str, phase: str) -> Object:
        """Wait until the pod is in *phase*; a pod that Failed instead fails at once."""

        def reached() -> Object | None:
            pod = self.get(name)
            found = pod["status"].get("phase")
            assert found in (phase, "Pending", "Running"), f"{name}: {_told(pod['status'])}"
            return pod if found == phase else None

        return wait_for(
            f"pod {name} is {phase}",
            reached,
            evidence=lambda: _told(self.get(name)["status"]) + self._events(name),
        )

    def wait_admitted(self, name: str) -> str | None:
        """Wait for the kubelet's verdict; return the reason of a rejection, else ``None``.

        It admits a pod, devices and all, before it writes the pod's start time.
        """

        def judged() -> Object | None:
            status: Object = self.get(name)["status"]
            return status if status["phase"] == "Failed" or "startTime" in status else None

        status = wait_for(
            f"the kubelet admits or rejects pod {name}",
            judged,
            evidence=lambda: _told(self.get(name)["status"]) + self._events(name),
        )
        return str(status["reason"]) if status["phase"] == "Failed" else None

    def wait_restarted(self, name: str, times: int) -> Object:
        """Wait until the first container of pod *name* runs for the *times*-th time anew."""

        def reached() -> Object | None:
            pod = self.get(name)
            (first, *_) = pod["status"].get("containerStatuses") or [{}]
            is_up = first.get("restartCount", 0) >= times and "running" in first.get("state", {})
            return pod if is_up else None

        return wait_for(
            f"the container of pod {name} restarts, {times} in all",
            reached,
            evidence=lambda: _told(self.get(name)["status"]) + self._events(name),
        )

    def delete(self, *names: str) -> None:
        """Delete the pods and wait until they are gone; their devices are free then."""
        for name in names:
            self._api.delete(f"{_COLLECTION}/{name}")
        for name in names:
            wait_for(
                f"pod {name} is gone",
                partial(self._is_gone, name),
            )

    def delete_all(self) -> None:
        """Delete every pod and wait until all are gone."""
        self.delete(*(pod["metadata"]["name"] for pod in self.all()))

    def all(self) -> list[Object]:
        """Return every pod, on whichever node."""
        pods: list[Object] = self._api.get(_COLLECTION)["items"]
        return pods

    def events(self, name: str) -> list[Object]:
        """Return the events about the pod."""
        query = f"fieldSelector=involvedObject.name={name}"
        events: list[Object] = self._api.get(f"/api/v1/namespaces/default/events?{query}")["items"]
        return events

    def _is_gone(self, name: str) -> bool:
        return self._api.find(f"{_COLLECTION}/{name}") is None

    def _events(self, name: str) -> str:
        return "".join(
            f"\n{event['reason']}: {event.get('message')}" for event in self.events(name)
        )


def _told(status: Mapping[str, Any]) -> str:
    keys = ("phase", "reason", "message", "conditions")
    return "; ".join(f"{key}: {status[key]}" for key in keys if key in status)
