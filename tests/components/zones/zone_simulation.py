"""An agent whose clock a test turns, and whose kubelet is a fake: hours of zones."""

import dataclasses

from nodetopo.components.zones.loop import ZonesLoop
from nodetopo.components.zones.publish import NodeZonesPublisher, ObservedPlacementPublisher
from nodetopo.errors import UnreadableError
from nodetopo.kernel.pacing import Spread
from nodetopo.kernel.running_pods import Published
from nodetopo.kernel.settings.declare import Settings
from nodetopo.kernel.store import SnapshotStore
from nodetopo.model.kubelet import KubeletSettings
from nodetopo.model.node import NodeOffer, PodHolding
from nodetopo.model.snapshot import Snapshot
from tests.components.labels.label_simulation import least
from tests.components.zones.machines import GPU, NODES, OFFER
from tests.kubeapi.fake_objects import FakeObjects

POLICIES = KubeletSettings(source="configz", topology_manager_policy="single-numa-node")
MACHINE = Snapshot(node="gpu-1", numa_nodes=NODES, kubelet=POLICIES)


@dataclasses.dataclass
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
