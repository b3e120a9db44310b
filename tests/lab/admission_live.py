"""A node of the lab that is asked about pods by us and by its whole, real kubelet."""

from collections.abc import Mapping
from random import Random
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from nodetopo.admission.admit import admit
from nodetopo.cli.admit import preference
from nodetopo.cli.live_pods import with_pods
from nodetopo.kernel.settings.declare import Settings
from nodetopo.kubeapi.pods import pod_from_object
from nodetopo.machines.bundled import machine
from nodetopo.model.pod import Pod
from nodetopo.model.snapshot import Snapshot
from nodetopo.probes.kubelet.config import read_kubelet_settings
from nodetopo.probes.kubelet.state import read_kubelet_state
from tests.lab.api import Object
from tests.lab.cluster import Cluster
from tests.lab.machine_node import Node
from tests.lab.pods import GPU, with_containers

_MIB = 1 << 20


class Answer(Struct, frozen=True):
    """What became of a pod.

    Attributes:
        given: of an admitted pod, by container: its CPUs and its GPUs.
    """

    reason: str | None
    message: str | None
    given: Mapping[str, tuple[str, tuple[str, ...]]]


class AskedNode:
    """One node, with our daemon running, and pods that come and go on it."""

    def __init__(self, cluster: Cluster, node: Node, name: str, seed: int) -> None:
        self.node = node
        self._cluster = cluster
        self._machine = machine(name)
        self._random = Random(seed)
        self._here: list[str] = []
        self._number = 0

    def next_pod(self) -> Object:
        """Return a pod that nobody has seen; a few of those before it are gone now."""
        while self._here and self._random.random() < 0.25:
            self._cluster.pods.delete(self._here.pop(self._random.randrange(len(self._here))))
        self._number += 1
        name = f"{self.node.name}-{self._number}"
        apps = [self._resources() for _ in range(self._random.choice((1, 1, 1, 2)))]
        init = [self._resources()] if self._random.random() < 0.1 else []
        if init and int(init[0].get(GPU, 0)) > min(int(app.get(GPU, 0)) for app in apps):
            init[0].pop(GPU)  # which of more GPUs an app container keeps is arbitrary
        pod = with_containers(name, self.node.name, apps, init=init)
        # Not by the scheduler, which would keep back what the node has not in sum.
        spec = {key: value for key, value in pod["spec"].items() if key != "nodeSelector"}
        return {**pod, "spec": {**spec, "nodeName": self.node.name}}

    def _resources(self) -> dict[str, str | int]:
        random, online = self._random, self._machine.cpu
        assert online is not None
        cpus = random.randint(1, max(len(online.online) * random.choice((1, 2, 4)) // 8, 1))
        amounts: dict[str, str | int] = {"memory": f"{random.randint(64, 1024)}Mi"}
        if random.random() < 0.85:
            amounts["cpu"] = cpus + cpus % 2
        elif random.random() < 0.5:
            amounts["cpu"] = f"{cpus * 1000 + 500}m"
        if random.random() < 0.85:
            amounts[GPU] = random.randint(1, len(self._machine.gpus))
        return amounts

    def predict(self, created: Object) -> Answer:
        """Say what is to become of *created*, which the kubelet has not seen."""
        seen = self.snapshot()
        others = tuple(pod for pod in seen.pods or () if pod.name != created["metadata"]["name"])
        seen = replace(seen, pods=others)
        found = admit(seen, [pod_from_object(created)], prefer=preference(seen)).pods[0]
        assert found.admitted is not None, found.missing
        given = {
            one.name: (str(one.cpus), tuple(sorted(one.devices.get(GPU, ()))))
            for one in found.containers
            if found.admitted
        }
        return Answer(found.reason, found.message, given)

    def snapshot(self) -> Snapshot:
        """Return the node as ``nodetopo admit`` reads it, but for the hardware, which is known."""
        host = self.node.host
        settings, problems = read_kubelet_settings(host, host / "proc")
        assert settings is not None, problems
        state, issues = read_kubelet_state(host, None)
        assert not issues, issues
        known = replace(self._machine, node=self.node.name, kubelet=settings, kubelet_state=state)
        return with_pods(
            known,
            Settings(
                node_name=self.node.name,
                host_root=host,
                kubeconfig=self._cluster.kubeconfig,
                pod_resources_socket=self.node.pod_resources_socket,
            ),
        )

    def verdict(self, name: str) -> Answer:
        """Wait for the kubelet's verdict on the pod *name*, and return it."""
        reason = self._cluster.pods.wait_admitted(name)
        status = self._cluster.pods.get(name)["status"]
        if reason is not None:
            message = str(status["message"]).removeprefix("Pod was rejected: ")
            return Answer(reason, message, {})
        self._here.append(name)
        return Answer(None, None, self._given(self._cluster.pods.get(name)))

    def _given(self, pod: Object) -> dict[str, tuple[str, tuple[str, ...]]]:
        """Return what the kubelet wrote down for *pod*."""
        state, _ = read_kubelet_state(self.node.host, None)
        assert state is not None
        assert state.cpu is not None
        assert state.devices is not None
        uid = pod["metadata"]["uid"]
        cpus = (state.cpu.entries or {}).get(uid, {})
        gpus = {
            held.container: tuple(sorted({id_ for ids in held.ids.values() for id_ in ids}))
            for held in state.devices.held
            if held.pod_uid == uid and held.resource == GPU
        }
        return {
            one.name: (str(cpus.get(one.name, "")), gpus.get(one.name, ()))
            for one in _containers(pod)
        }


def _containers(pod: Object) -> tuple[Any, ...]:
    found: Pod = pod_from_object(pod)
    return found.containers
