"""Plays the day of :mod:`tests.lab.placement` on a node, and writes down what happened."""

from collections.abc import Iterable, Mapping

from nodetopo.machines.bundled import machine
from tests.lab.grpc_proxy import Asked, Tap
from tests.lab.machine_node import Node
from tests.lab.placement import DAY, SURPLUS, Gpus, Job, Offer, Turn
from tests.lab.pods import GPU, Pods, with_containers

_PINNED: Mapping[str, str | int] = {"cpu": 1, "memory": "64Mi"}


class Player:
    """Plays on *node*, which is the bundled machine *machine_name*; its agent is tapped."""

    def __init__(self, pods: Pods, node: Node, tap: Tap, machine_name: str) -> None:
        self._pods = pods
        self._node = node
        self._tap = tap
        self._index = {gpu.id: gpu.index for gpu in machine(machine_name).gpus}

    def play(self) -> tuple[Turn, ...]:
        """Return what became of each job of the day, the one with the surplus last."""
        self._node.wait_allocatable(GPU, len(self._index))
        return tuple(map(self._turn, (*DAY, SURPLUS)))

    def _turn(self, job: Job) -> Turn:
        self._pods.delete(*map(self._name, job.leavers))
        before = len(self._tap.asked)
        init, apps = (self._containers(job, sizes) for sizes in (job.init, job.apps))
        self._pods.create(with_containers(self._name(job.name), self._node.name, apps, init=init))
        rejected = self._pods.wait_admitted(self._name(job.name))
        return Turn(
            job=job.name,
            rejected=rejected,
            offers=tuple(map(self._offer, self._tap.asked[before:])),
            given=self._given(self._name(job.name)),
        )

    def _name(self, job: str) -> str:
        """Pods of all nodes are in one namespace."""
        return f"{job}-{self._node.name}"

    def _containers(self, job: Job, sizes: tuple[int, ...]) -> list[dict[str, str | int]]:
        others = _PINNED if job.is_pinned else {}
        return [{**others, GPU: size} for size in sizes]

    def _given(self, pod: str) -> tuple[Gpus, ...]:
        """Return what the kubelet recorded for each app container; none for a rejected pod."""
        return tuple(
            self._indices(name for entry in container.devices or () for name in entry.ids)
            for found in self._node.pod_resources()
            if found.name == pod
            for container in sorted(found.containers, key=lambda container: container.name)
        )

    def _offer(self, asked: Asked) -> Offer:
        return Offer(
            available=self._indices(asked.available),
            required=self._indices(asked.required),
            size=asked.size,
            answer=self._indices(asked.answer),
        )

    def _indices(self, ids: Iterable[str]) -> Gpus:
        return tuple(sorted(self._index[name] for name in ids))
