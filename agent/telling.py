"""What the daemon tells of itself when it is asked: metrics, and whether it is ready."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agent.checks.terms import Terms
from agent.config.settings import Settings
from agent.health_watch import HealthWatch
from agent.judging import Judged, judged
from agent.labelling import Labelling
from agent.model.snapshot import Snapshot
from agent.notices import conflicts
from agent.offering import Offering
from agent.publish.event_writer import EventWriter
from agent.publish.events import EventPublisher
from agent.publish.metrics_state import MetricsState
from agent.publish.readiness import not_ready
from agent.reload import Reloader
from agent.scene import Scene
from agent.store import SnapshotStore, Versioned

if TYPE_CHECKING:
    from agent.attending import Attending
    from agent.zoning import Zoning


class _Counted:
    """Verdicts of the health checks, found once for each generation of the snapshot.

    Scrapes and probes ask every few seconds, and a steady node has a steady generation.
    """

    def __init__(self) -> None:
        self._last: tuple[tuple[int, Terms], Judged] | None = None

    def of(self, current: Versioned, terms: Terms) -> Judged:
        last, key = self._last, (current.generation, terms)
        if last is None or last[0] != key:
            last = self._last = key, _judged(current.snapshot, terms)
        return last[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Telling:
    """Reads the daemon's parts, and changes none; any thread may ask it.

    Attributes:
        settings: in force now.
        health: ``None`` where GPUs are not watched.
        labelling, zoning, events: ``None`` where nothing of the kind is published.
        terms: of the checks, as of now.
        attending: what judges the node and follows pods; ``None`` before it does, and where
            nothing is to.
        reloader: ``None`` where settings never change.
    """

    settings: Callable[[], Settings]
    scene: Scene
    store: SnapshotStore
    terms: Callable[[], Terms]
    offering: Offering
    health: HealthWatch | None
    labelling: Labelling | None
    zoning: "Zoning | None"
    attending: Callable[[], "Attending | None"]
    events: EventPublisher | None
    reloader: Reloader | None
    _counted: _Counted = field(default_factory=_Counted, init=False)

    def state(self) -> MetricsState:
        """Return everything, as it is now."""
        current = self.store.current
        snapshot = None if current is None else current.snapshot
        states = self.offering.states
        taken = conflicts(states)
        nvml = self.scene.machine.nvml()
        is_registered = {name: state.is_registered for name, state in states.items()}
        attending = self.attending()
        auditing = None if attending is None else attending.auditing
        measured = None if auditing is None else auditing.found
        reports = dict(self._reports(current))
        rejections = None if attending is None else attending.rejections
        return MetricsState(
            snapshot=snapshot,
            not_ready=not_ready(
                snapshot=self.offering.taken,  # one that is not offered yet makes nobody ready
                nvml=nvml,
                is_registered=is_registered,
                conflicts=taken,
                refusals=[one.reason for one in self.offering.refusals if one.resource],
            ),
            generation=0 if current is None else current.generation,
            registrations={name: state.registrations for name, state in states.items()},
            is_registered=is_registered or {self.settings().resource_name: False},
            conflicts=taken,
            devices=self._devices(),
            allocations={name: state.allocations for name, state in states.items()},
            publish_writes=0 if self.labelling is None else self.labelling.writes,
            publish_errors=0 if self.labelling is None else self.labelling.errors,
            publish_refused=0 if self.labelling is None else self.labelling.refused,
            zone_writes=0 if self.zoning is None else self.zoning.writes,
            zone_errors=0 if self.zoning is None else self.zoning.errors,
            check_counts={report: found.counts for report, found in reports.items()},
            checks_broken={report: found.broken for report, found in reports.items()},
            health={} if self.health is None else self.health.view,
            xid_counts={} if self.health is None else self.health.counts,
            nvml_failures=nvml.failures,
            config=self._config(),
            config_failures=0 if self.reloader is None else self.reloader.failures,
            events_posted=sum(one.posted for one in self._writers()),
            events_dropped=sum(one.dropped for one in self._writers()),
            pods_measured={} if measured is None else measured.verdicts,
            pods_misaligned={} if measured is None else measured.reasons,
            pod_errors=0 if auditing is None else auditing.errors,
            rejections_explained=0 if rejections is None else rejections.explained,
            rejections_given_up=0 if rejections is None else rejections.given_up,
        )

    def _reports(self, current: Versioned | None) -> Iterator[tuple[str, Judged]]:
        """Yield ``health`` and ``audit`` with what they say, as far as there is something yet."""
        if current is not None:
            yield "health", self._counted.of(current, self.terms())
        attending = self.attending()
        audit = None if attending is None or attending.node is None else attending.node.found
        if audit is not None:
            yield "audit", audit

    def _writers(self) -> Iterator[EventWriter]:
        """Yield what writes Events, about the Node and about pods."""
        attending = self.attending()
        of_pods = None if attending is None else attending.events
        yield from (one for one in (self.events, of_pods) if one is not None)

    def _config(self) -> str | None:
        config = None if self.reloader is None else self.reloader.config
        return None if config is None else config.name

    def _devices(self) -> dict[str, dict[str, int]]:
        found = {}
        for one in self.offering.served:
            healthy = sum(device.is_healthy for device in one.resource.devices)
            unhealthy = len(one.resource.devices) - healthy
            found[one.resource.name] = {"healthy": healthy, "unhealthy": unhealthy}
        return found


def _judged(snapshot: Snapshot, terms: Terms) -> Judged:
    # The rules cost 0.4 s of CPU, which a daemon that starts spends on serving GPUs.
    from agent.checks.catalogue import HEALTH  # noqa: PLC0415

    return judged(snapshot, HEALTH, terms)
