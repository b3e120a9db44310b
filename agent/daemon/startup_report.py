"""What there is to show of the daemon once the kubelet has the devices."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass

from agent.allocation.allocator import Allocation
from agent.config.label_rules import label_rules
from agent.config.settings import Settings
from agent.daemon.plugins import Offering, Served
from agent.daemon.target import Scene
from agent.deviceplugin.plugin import PluginState
from agent.deviceplugin.resources import Refusal, Resource
from agent.errors import UnreadableError
from agent.labels.catalogue import labels
from agent.model.snapshot import Snapshot
from agent.store import SnapshotStore

TIMEOUT_S = 30.0
"""How long `--once` waits until the kubelet has the devices; a running one takes under 1 s."""

STEP_S = 0.05

SHOWN_SIZE = 4
"""Devices of the requests that the page shows: half a usual machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyResource:
    """A resource that the kubelet has.

    Attributes:
        placement: our answer to a request for four devices (all, where there are fewer; one,
            where no more may be asked for), with its reasons; ``None`` where none is usable.
        preferred: the stand-in kubelet's answer to the same; ``None`` with a real one, which
            asks when a pod comes.
    """

    resource: Resource
    plugin: PluginState
    placement: Allocation | None
    preferred: tuple[str, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """What there is to show once the kubelet has the devices.

    Attributes:
        resources: one at least.
        labels: what the node gets, but for its place in the cluster.
        refusals: what is not offered.
        metrics_url: ``None`` where metrics are off or the address was taken.
    """

    scene: Scene
    snapshot: Snapshot
    labels: Mapping[str, str]
    resources: tuple[ReadyResource, ...]
    refusals: tuple[Refusal, ...]
    metrics_url: str | None


def ready(
    settings: Settings,
    scene: Scene,
    offering: Offering,
    snapshot: Snapshot,
    metrics_url: str | None,
) -> Ready:
    """Return what to show of *offering*, which has offered *snapshot* to the kubelet."""
    slicing = settings.time_slicing
    is_one_each = slicing is not None and slicing.fails_requests_greater_than_one

    def shown(served: Served) -> ReadyResource:
        size = 1 if is_one_each and served.resource.is_shared else SHOWN_SIZE
        usable = sum(device.is_healthy for device in served.resource.devices)
        return ReadyResource(
            resource=served.resource,
            plugin=served.plugin.state,
            placement=served.placement.example(size),
            preferred=scene.preferred(min(size, usable), served.resource.name),
        )

    return Ready(
        scene=scene,
        snapshot=snapshot,
        labels=labels(snapshot, label_rules(settings)),
        resources=tuple(map(shown, offering.served)),
        refusals=offering.refusals,
        metrics_url=metrics_url,
    )


@dataclass(frozen=True, slots=True)
class Waiting:
    """Waits until the kubelet has what is offered; with ``once`` not for ever."""

    settings: Settings
    scene: Scene
    store: SnapshotStore
    offering: Offering

    def ready(self, stopping: threading.Event, metrics_url: str | None) -> Ready | None:
        """Return what there is to show; ``None`` where *stopping* was set before.

        Raises:
            UnreadableError: with ``once``, there is nothing to offer, or no kubelet took it.
        """
        rounds = round(TIMEOUT_S / STEP_S)
        while rounds and not self._is_ready() and not stopping.wait(STEP_S):
            if self.settings.once:  # without it, wait as long as it takes
                self._check_for_gpus()
                rounds -= 1
        current = self.store.current
        if stopping.is_set() or current is None:
            return None
        if not self._is_ready():
            raise UnreadableError(
                f"no kubelet took the GPUs within {TIMEOUT_S:.0f} s",
                f"is one running, and does it listen in {self.scene.socket_dir}?",
            )
        return ready(self.settings, self.scene, self.offering, current.snapshot, metrics_url)

    def _check_for_gpus(self) -> None:
        snapshot = self.offering.taken
        if snapshot is None or self.offering.served:
            return
        if refused := [refusal.reason for refusal in self.offering.refusals]:
            raise UnreadableError(
                f"nothing is offered: {'; '.join(refused)}",
                "correct that, or what asks for it",
            )
        reasons = [i.reason for i in snapshot.issues if i.probe == "nvml"]
        raise UnreadableError(
            f"no GPU was found: {'; '.join(reasons) or 'NVML lists none'}",
            "install or repair the NVIDIA driver, or try `nodetopo run --once --or-simulate`",
        )

    def _is_ready(self) -> bool:
        states = self.offering.states
        return bool(states) and all(
            state.is_registered and self.scene.kubelet_has(name) for name, state in states.items()
        )
