"""Pods of a kubelet without a cluster, and our plugins of GPUs and HCAs in this process.

``python -m tests.lab.static_pods`` prints how long the kubelet's list takes inside a call.
"""

import argparse
import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from nodetopo.errors import UnreadableError
from nodetopo.kernel.requester import Requester, Requesters
from nodetopo.model.pod import Pod
from nodetopo.probes.kubelet.podresources import PodResources
from tests.lab.joint_pairs import GPU, HCA, machine, serving
from tests.lab.lone_kubelet import LoneKubelet
from tests.lab.waiting import wait_for

CONFIG = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "kind": "KubeletConfiguration",
    "staticPodPath": "/var/lib/kubelet/manifests",
    "fileCheckFrequency": "1s",
    "failSwapOn": False,
    "enforceNodeAllocatable": [],
}

LIST_S = 30.0
"""Longest wait for a list in a test, which must not depend on how busy the machine is."""


@dataclasses.dataclass
class Call:
    """One GetPreferredAllocation: whose it was found to be, and in how many seconds."""

    resource: str
    requester: Requester | None
    took_s: float


@dataclasses.dataclass
class StaticPods:
    """A kubelet with our plugins, and the pods that its directory of manifests names."""

    kubelet: LoneKubelet
    requesters: Requesters
    calls: list[Call] = dataclasses.field(default_factory=list)

    @property
    def socket(self) -> Path:
        """The PodResources API."""
        return self.kubelet.directory / "pod-resources" / "kubelet.sock"

    def start(self) -> None:
        """Start the kubelet."""
        files = {"config.yaml": json.dumps(CONFIG), "manifests/.keep": ""}
        assert self.kubelet.start(files, ["--config=/var/lib/kubelet/config.yaml", "--v=2"])

    def start_again(self) -> None:
        """Start the kubelet again on what it left; return once it has our devices again."""
        assert self.kubelet.start_again()
        wait_for("the kubelet has our devices again", self._has_devices)

    def add(
        self,
        name: str,
        containers: Mapping[str, Mapping[str, int]],
        *,
        lifecycle: Mapping[str, Any] | None = None,
        **spec: Any,
    ) -> None:
        """Have the kubelet run a pod; *containers* have their limits by resource.

        *lifecycle* is of each container, and *spec* more of the pod's.
        """
        own = [container(*named, lifecycle=lifecycle) for named in containers.items()]
        (self.kubelet.directory / "manifests" / f"{name}.json").write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "metadata": {"name": name, "namespace": "default"},
                    "spec": {**spec, "containers": own},
                }
            ),
            "utf-8",
        )

    def run(self, name: str, containers: Mapping[str, Mapping[str, int]], **spec: Any) -> Pod:
        """Run a pod; return it once its last container has everything."""
        self.add(name, containers, **spec)
        return self.wait(name, {each: limits for each, limits in containers.items() if limits})

    def remove(self, name: str) -> None:
        """End a pod, and return once the kubelet lists no pod."""
        (self.kubelet.directory / "manifests" / f"{name}.json").unlink()
        wait_for("the pod has ended", lambda: not self.pods(), evidence=self.kubelet.log)

    def run_beside(self, name: str, containers: Mapping[str, Mapping[str, int]]) -> Pod:
        """Run a pod while other readers use up the socket's rate: until Allocate was answered."""
        before = len(self.calls)
        self.add(name, containers)
        kinds = sum(len(limits) for limits in containers.values())
        wait_for("the kubelet has asked", lambda: len(self.calls) >= before + kinds)
        return self.wait(name, containers)

    def wait(self, name: str, containers: Mapping[str, Mapping[str, int]]) -> Pod:
        """Return a pod once its *containers* have all devices of their limits."""

        def has_all() -> Pod | None:
            pod = next((pod for pod in self.pods() if pod.name == f"{name}-lone"), None)
            held = {} if pod is None else {each.name: each.devices or () for each in pod.containers}
            is_there = all(
                {given.resource: len(given.ids) for given in held.get(each, ())} == dict(limits)
                for each, limits in containers.items()
            )
            return pod if is_there else None

        return wait_for(f"pod {name} has its devices", has_all, evidence=self.kubelet.log)

    def _has_devices(self) -> bool:
        kubelet = PodResources(self.socket, timeout_s=LIST_S)
        try:
            resources = {device.resource for device in kubelet.offer().devices}
        except UnreadableError:
            return False
        finally:
            kubelet.close()
        return {GPU, HCA} <= resources

    def pods(self) -> Sequence[Pod]:
        """Return what the kubelet lists, when nothing is being allocated."""
        kubelet = PodResources(self.socket, timeout_s=LIST_S)
        try:
            return kubelet.assigned()
        except UnreadableError:
            return ()
        finally:
            kubelet.close()


@contextmanager
def static_pods() -> Iterator[StaticPods]:
    """Run a kubelet of a DGX H100 with our plugins."""
    lone = LoneKubelet()
    try:
        sockets = lone.directory / "device-plugins"
        found = StaticPods(lone, Requesters(lambda: ()))
        found.start()
        with serving(lone.home, sockets, is_joint=True, is_listed=True) as ((plugins, joint),):
            requesters = joint._requesters
            assert requesters is not None
            kubelet = PodResources(found.socket, gate=None)
            requesters._pods = kubelet.assigned
            found.requesters = requesters
            _record(found)
            plugins.take(machine())
            wait_for("our plugins are registered", lambda: plugins.is_registered)
            requesters.prime(kubelet.assigned)
            yield found
            kubelet.close()
    finally:
        lone.close()


def _record(found: StaticPods) -> None:
    look = found.requesters.look

    def recorded(
        resource: str, required: Sequence[str], size: int, available: Sequence[str] = ()
    ) -> Requester | None:
        requester = look(resource, required, size, available)
        found.calls.append(Call(resource, requester, found.requesters.last_s or 0.0))
        return requester

    found.requesters.look = recorded  # type: ignore[method-assign]


def container(name: str, limits: Mapping[str, int], **more: Any) -> dict[str, Any]:
    """Return a container of a spec, with *more* of its fields."""
    amounts = {resource: str(number) for resource, number in limits.items()}
    return {
        "name": name,
        "image": "registry.invalid/work:1",
        "resources": {"limits": amounts, "requests": amounts},
        **more,
    }


def main() -> None:
    """Print the times of lookups on a real kubelet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pods", type=int, default=30)
    args = parser.parse_args()
    with static_pods() as node:
        for number in range(args.pods):
            node.run(f"pod-{number}", {"work": {GPU: 1, HCA: 1}})
            node.remove(f"pod-{number}")
        times = [call.took_s * 1000 for call in node.calls if call.requester is not None]
        p99 = quantiles(times, n=100)[98]
        print(f"{len(times)} of {len(node.calls)} calls, lookups {node.requesters.lookups}")
        print(f"ms: median {median(times):.1f}, p99 {p99:.1f}, longest {max(times):.1f}")


if __name__ == "__main__":
    main()
