"""An agent whose clock a test turns: what it publishes in hours, without waiting."""

from collections.abc import Mapping
from datetime import UTC, datetime

from msgspec.structs import replace

from nodetopo.components.labels.catalogue import labels
from nodetopo.components.labels.loop import DesiredLabelsSource, LabelsLoop
from nodetopo.components.labels.outputs.node import NodeLabelPublisher
from nodetopo.components.labels.outputs.output import DesiredLabels, LabelOutput
from nodetopo.kernel.pacing import Spread
from nodetopo.kernel.settings.declare import Settings
from nodetopo.kernel.store import SnapshotStore
from nodetopo.machines.bundled import machine
from nodetopo.model.snapshot import Snapshot
from tests.kubeapi.fake_api_server import DirectApi, FakeApi

COUNT = "nvidia.com/gpu.count"
DGX = machine("dgx-h100")
LABELS = labels(DGX)
WHEN = datetime(2026, 1, 1, tzinfo=UTC)


def least(low: float, _high: float) -> float:
    """Spread nothing."""
    return low


def most(_low: float, high: float) -> float:
    """Have chance be at its worst."""
    return high


class SimulatedAgent:
    """An agent, its clock, and the node that it scans."""

    def __init__(
        self,
        *outputs: LabelOutput,
        spread: Spread = least,
        once: bool = False,
        wishes: DesiredLabelsSource | None = None,
    ) -> None:
        self.now = 0.0
        self.store = SnapshotStore()
        self.extra: dict[str, str] = {"a.io/extra": "x"}
        self.unread: set[str] = set()
        self._asked: Snapshot | None = None
        self.labelling = LabelsLoop(
            Settings(node_name="gpu-1", once=once),
            self.store,
            outputs=outputs,
            desired=wishes or self,
            clock=lambda: self.now,
            spread=spread,
        )

    needs_node = False

    def note(self, node_labels: Mapping[str, str]) -> None:
        """Make nothing of where the node stands."""

    def is_news(self, snapshot: Snapshot) -> bool:
        """Tell whether *snapshot* is another one than before."""
        return snapshot is not self._asked

    def of(self, snapshot: Snapshot) -> DesiredLabels:
        """Return what is to be published of *snapshot*."""
        self._asked = snapshot
        return DesiredLabels(
            labels=(LABELS if snapshot.gpus else {}) | self.extra, unread=frozenset(self.unread)
        )

    def scan(self, snapshot: Snapshot = DGX) -> None:
        """Have a scan find *snapshot*."""
        self.store.publish(replace(snapshot, captured_at=WHEN))

    def run(self, seconds: float) -> None:
        """Let time pass, at the pace that the agent asks for, and look at what others did."""
        end = self.now + seconds
        while self.now < end:
            wait_s = self.labelling.step()
            self.now = min(end, self.now + max(wait_s, 0.001))
        self.labelling.step()

    def see(self, api: FakeApi) -> None:
        """Have the watch tell of the Node as it is."""
        self.labelling.watch.take("MODIFIED", {"metadata": api.read()["metadata"]})


def node(api: FakeApi) -> NodeLabelPublisher:
    """Return the output that is the Node of *api*."""
    connect = DirectApi(api)
    return NodeLabelPublisher(None, "gpu-1", connect=lambda: connect)
