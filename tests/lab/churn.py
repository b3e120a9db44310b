"""Restarts in random order under pod churn, and what must be true after each of them.

``tests/lab/test_churn.py`` runs a small dose. The full one takes about half an hour::

    python -m tests.lab.churn --kubelet 200 --agent 200 --seed 1
"""

import argparse
import dataclasses
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum

from tests.lab.api import Object
from tests.lab.cluster import Cluster
from tests.lab.kubelet import Policies
from tests.lab.machine_node import Node
from tests.lab.pods import GPU, guaranteed
from tests.lab.waiting import wait_for

SHAPE = "v100x8-cubemesh-2numa-4cx4"
POLICIES = Policies(topology="none")
_SIZES = (1, 1, 2, 4)
"""GPUs of a pod; six of them may want more than the node has, so that some have to wait."""
_MOST_PODS = 6
_JUDGED_S = 60.0
"""A kubelet on two idle cores has a pod running, or says on it why not, in half a second."""
_UNSCHEDULED = "FailedScheduling"
"""The scheduler's word, of a pod that may run later."""


class Blow(StrEnum):
    """What ends, and at once comes back."""

    KUBELET_KILL = "kubelet SIGKILL"
    AGENT_KILL = "daemon SIGKILL"
    AGENT_TERM = "daemon SIGTERM"


def plan(kubelet: int, agent: int, seed: int) -> tuple[Blow, ...]:
    """Return as many restarts of each in an order that *seed* decides."""
    choices = random.Random(seed)
    ways = [choices.choice((Blow.AGENT_KILL, Blow.AGENT_TERM)) for _ in range(agent)]
    blows = [*[Blow.KUBELET_KILL] * kubelet, *ways]
    choices.shuffle(blows)
    return tuple(blows)


@dataclasses.dataclass
class Churn:
    """Pods that come and go on *node*, which must have no others, while parts of it crash.

    Attributes:
        admitted: how many pods ran.
        rejected: reasons of pods that the kubelet refused, with how often: those that it met
            before the plugin had registered, or before it knew which pods were gone. No plugin
            can help that.
    """

    cluster: Cluster
    node: Node
    choices: random.Random
    admitted: int = 0
    rejected: Counter[str] = dataclasses.field(default_factory=Counter)
    _made: int = 0
    _gpus: frozenset[str] = frozenset()
    _held: dict[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)

    def start(self) -> None:
        """Wait for the daemon on the idle node, and remember which GPUs there are."""
        self.node.wait_allocatable(GPU, 8)
        self._gpus = self._known()
        assert len(self._gpus) == 8, f"the kubelet knows of {sorted(self._gpus)}"

    def strike(self, blow: Blow) -> None:
        """Let pods come and go before, during and after *blow*; then check everything."""
        self._stir(most_new=1)
        registrations = self.node.agent.registrations()
        if blow is Blow.KUBELET_KILL:
            self.node.kill_kubelet()
            self._stir(most_new=1)
            self.node.start_kubelet()
        else:
            end = self.node.agent.kill if blow is Blow.AGENT_KILL else self.node.agent.stop
            end()
            self._stir(most_new=1)
            self.node.agent.start()
            registrations = 0
        self._wait("the daemon is registered", lambda: self._is_registered(registrations))
        self._wait("all GPUs are allocatable", self._has_all)
        self._wait(
            "the kubelet lists every pod", lambda: self._running().keys() <= self._listed().keys()
        )
        self._stir(most_new=3)
        self._take_stock()
        self.check()

    def check(self) -> None:
        """Hold the kubelet's records against each other and against what was before."""
        assert self._known() == self._gpus, "the kubelet lost a GPU"
        running = self._running()
        lost = self._held.keys() - running.keys()
        assert not lost, f"these ran and do no more: {sorted(lost)}"
        listed, written = self._listed(), self._written()
        check_unshared(listed, "the kubelet lists")
        check_unshared(written, "the checkpoint holds")
        for name, held in self._held.items():
            kept = (listed.get(name), written.get(running[name]["metadata"]["uid"]))
            assert kept == (held, held), f"{name} had {held}; listed and checkpointed: {kept}"

    def _stir(self, *, most_new: int) -> None:
        """Delete up to two pods and create up to *most_new*, without waiting for the new ones."""
        names = sorted(pod["metadata"]["name"] for pod in self._pods())
        for name in self.choices.sample(names, min(len(names), self.choices.randint(0, 2))):
            self._delete(name)
            names.remove(name)
        for _ in range(min(self.choices.randint(0, most_new), _MOST_PODS - len(names))):
            self._made += 1
            resources = {GPU: self.choices.choice(_SIZES)}
            self.cluster.pods.create(guaranteed(f"churn-{self._made}", self.node.name, resources))

    def _take_stock(self) -> None:
        """Note what the pods that newly run hold, and drop those that the kubelet refused.

        What a kubelet that just started refuses, it reports with its next round of statuses,
        10 s later (1.36 pkg/kubelet/status); an Event on the pod says so at once.
        """
        deadline = time.monotonic() + _JUDGED_S
        while not self._is_judged() and time.monotonic() < deadline:
            time.sleep(0.1)
        pods, listed = self._pods(), self._listed()
        for pod in pods:
            name, status = pod["metadata"]["name"], pod["status"]
            if name in self._held or not _is_bound(pod):
                continue
            if status["phase"] == "Running":
                self.admitted += 1
                self._held[name] = listed[name]
                assert len(listed[name]) == _size(pod), f"{name} got {listed[name]}"
            else:
                self.rejected[status.get("reason") or self._refusal(name) or "not said"] += 1
                self._delete(name)

    def _is_judged(self) -> bool:
        return not any(
            pod["status"]["phase"] == "Pending"
            and _is_bound(pod)
            and not self._refusal(pod["metadata"]["name"])
            for pod in self._pods()
        )

    def _refusal(self, name: str) -> str | None:
        """Return why the kubelet says that it refused the pod."""
        events = (one for one in self.cluster.pods.events(name) if one["type"] == "Warning")
        return next((one["reason"] for one in events if one["reason"] != _UNSCHEDULED), None)

    def _delete(self, name: str) -> None:
        self._held.pop(name, None)
        self.cluster.pods.delete(name)

    def _pods(self) -> list[Object]:
        return self.cluster.pods.all()

    def _running(self) -> Mapping[str, Object]:
        return {
            pod["metadata"]["name"]: pod
            for pod in self._pods()
            if pod["status"]["phase"] == "Running"
        }

    def _is_registered(self, before: int) -> bool:
        self.node.agent.check_running()
        return self.node.agent.registrations() > before

    def _has_all(self) -> bool:
        status = self.node.object()["status"]
        amounts = (status["capacity"].get(GPU), status["allocatable"].get(GPU))
        return amounts == ("8", "8") and self._known() == self._gpus

    def _known(self) -> frozenset[str]:
        return self.node.healthy(GPU)

    def _listed(self) -> dict[str, tuple[str, ...]]:
        """Return the GPUs of each pod that the kubelet lists, by the pod's name."""
        names = {pod.name for pod in self.node.pod_resources()}
        return {name: ids for name in names for ids in self.node.given(name).values()}

    def _written(self) -> dict[str, tuple[str, ...]]:
        """Return the GPUs of each pod in the checkpoint, by the pod's UID."""
        held = self.node.checkpoint().held
        return {entry.pod: entry.ids for entry in held if entry.resource == GPU}

    def _wait(self, what: str, look: Callable[[], bool]) -> None:
        wait_for(what, look, evidence=self.node.logs)


def check_unshared(held: Mapping[str, tuple[str, ...]], who: str) -> None:
    """Fail if two of those in *held* have the same GPU."""
    owners = Counter(gpu for gpus in held.values() for gpu in gpus)
    shared = sorted(gpu for gpu, count in owners.items() if count > 1)
    assert not shared, f"{who} {shared} more than once: {held}"


def _is_bound(pod: Object) -> bool:
    return "nodeName" in pod["spec"]


def _size(pod: Object) -> int:
    (container,) = pod["spec"]["containers"]
    return int(container["resources"]["limits"][GPU])


def run(churn: Churn, blows: tuple[Blow, ...]) -> Iterator[tuple[Blow, float]]:
    """Strike each of *blows*; yield it with the seconds until all was well and checked."""
    churn.start()
    for blow in blows:
        started = time.monotonic()
        churn.strike(blow)
        yield blow, time.monotonic() - started


def main() -> int:
    """Run the dose that the command line asks for; 1 means that something did not hold."""
    parser = argparse.ArgumentParser(prog="python -m tests.lab.churn")
    parser.add_argument("--kubelet", type=int, default=200, help="restarts of the kubelet")
    parser.add_argument("--agent", type=int, default=200, help="restarts of the daemon")
    parser.add_argument("--seed", type=int, default=1, help="decides the order and the pods")
    asked = parser.parse_args()
    cluster = Cluster()
    try:
        cluster.start()
        node = cluster.add_node("churn", SHAPE, policies=POLICIES)
        node.agent.start()
        _report(Churn(cluster, node, random.Random(asked.seed)), asked)
    except AssertionError as error:
        print(f"FAILED: {error}", flush=True)
        return 1
    finally:
        cluster.stop()
    return 0


def _report(churn: Churn, asked: argparse.Namespace) -> None:
    took: list[float] = []
    blows = plan(asked.kubelet, asked.agent, asked.seed)
    for blow, seconds in run(churn, blows):
        took.append(seconds)
        print(f"{len(took)}/{len(blows)} {blow}: {seconds:.1f} s", file=sys.stderr, flush=True)
    counts = ", ".join(f"{count} of {blow}" for blow, count in Counter(blows).items())
    print(f"held through {counts}; seed {asked.seed}")
    print(f"pods that ran: {churn.admitted}; rejected: {dict(churn.rejected) or 'none'}")
    print(f"seconds per restart: median {sorted(took)[len(took) // 2]:.1f}, most {max(took):.1f}")


if __name__ == "__main__":
    raise SystemExit(main())
