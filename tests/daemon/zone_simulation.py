"""An agent whose clock a test turns, and whose kubelet is a fake: hours of zones."""

from dataclasses import dataclass

from agent.config.settings import Settings
from agent.daemon.running_pods import Published
from agent.daemon.zones_loop import ZonesLoop
from agent.errors import UnreadableError
from agent.model.kubelet import KubeletSettings
from agent.model.node import NodeOffer, PodHolding
from agent.model.snapshot import Snapshot
from agent.publish.labels.pacing import Spread
from agent.publish.zones import NodeZonesPublisher, ObservedPlacementPublisher
from agent.store import SnapshotStore
from tests.daemon.label_simulation import least
from tests.kubeapi.fake_objects import FakeObjects
from tests.zones.machines import GPU, NODES, OFFER

POLICIES = KubeletSettings(source="configz", topology_manager_policy="single-numa-node")
MACHINE = Snapshot(node="gpu-1", numa_nodes=NODES, kubelet=POLICIES)


@dataclass
class FakeKubelet:
    """Answers what a test says, or not at all."""

    offered: NodeOffer = OFFER
    pods: tuple[PodHolding, ...] = ()
    is_silent: bool = False
    questions: int = 0
    is_closed: bool = False
    start: int = 0

    def offer(self) -> NodeOffer:
        """Answer, or raise."""
        self.questions += 1
        if self.is_silent:
            raise UnreadableError("no answer")
        return self.offered

    def held(self) -> tuple[PodHolding, ...]:
        """Answer."""
        return self.pods

    def close(self) -> None:
        """Remember it."""
        self.is_closed = True


ZONES = "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies/gpu-1"
NODE = "/api/v1/nodes/gpu-1"
POD = "/api/v1/namespaces/ml/pods/a"
POD_A = {"metadata": {"namespace": "ml", "name": "a"}, "spec": {"nodeName": "gpu-1"}}
KEY = "kai.scheduler/numa-placement-observed"


def free_gpus(api: FakeObjects) -> list[int | None]:
    """Return how many GPUs are available, by zone; ``None`` where the zone lists none."""
    found = []
    for zone in api.objects[ZONES]["zones"]:
        amounts = {one["name"]: int(one["available"]) for one in zone["resources"]}
        found.append(amounts.get(GPU))
    return found


class SimulatedAgent:
    """An agent with a clock that a test turns."""

    def __init__(
        self,
        api: FakeObjects,
        kubelet: FakeKubelet,
        *,
        spread: Spread = least,
        once: bool = False,
        has_zones: bool = True,
    ) -> None:
        self.now = 0.0
        self.published: Published = None
        self.settings = Settings(node_name="gpu-1", once=once)
        self.store = SnapshotStore()
        self.store.publish(MACHINE)
        self.zones = ZonesLoop(
            self.settings,
            self.store,
            zones=NodeZonesPublisher(lambda: api, "gpu-1") if has_zones else None,
            placements=ObservedPlacementPublisher(lambda: api, "gpu-1"),
            published=lambda: self.published,
            kubelet=kubelet,
            clock=lambda: self.now,
            spread=spread,
        )

    def run(self, seconds: float) -> None:
        """Let time pass at the pace that the agent asks for."""
        end = self.now + seconds
        while self.now < end:
            self.now = min(end, self.now + self.zones.step())
        self.zones.step()
