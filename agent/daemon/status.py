"""What the daemon tells of itself when it is asked: metrics, and whether it is ready."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from agent.checks.waivers import Terms
from agent.daemon.check_terms import Judged, judged
from agent.daemon.components import Parts
from agent.daemon.reconcile_loop import conflicts
from agent.deviceplugin.resources import Resource
from agent.model.snapshot import Snapshot
from agent.publish.events import EventWriter
from agent.publish.metrics.server import not_ready
from agent.publish.metrics.state import MetricsState
from agent.store import Versioned


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


@dataclass(frozen=True, slots=True)
class Telling:
    """Reads the daemon's parts, and changes none; any thread may ask it."""

    parts: Parts
    _counted: _Counted = field(default_factory=_Counted, init=False)

    def state(self) -> MetricsState:
        """Return everything, as it is now."""
        current = self.parts.store.current
        reports = dict(self._reports(current))
        found = MetricsState(
            snapshot=None if current is None else current.snapshot,
            generation=0 if current is None else current.generation,
            check_counts={report: one.counts for report, one in reports.items()},
            checks_broken={report: one.broken for report, one in reports.items()},
        )
        for add in (self._with_devices, self._with_health, self._with_written, self._with_pods):
            found = add(found)
        return found

    def _reports(self, current: Versioned | None) -> Iterator[tuple[str, Judged]]:
        """Yield ``health`` and ``audit`` with what they say, as far as there is something yet."""
        if current is not None:
            yield "health", self._counted.of(current, self.parts.terms.terms())
        attending = self.parts.attending
        audit = None if attending is None or attending.node is None else attending.node.found
        if audit is not None:
            yield "audit", audit

    def _with_devices(self, found: MetricsState) -> MetricsState:
        """Add what is offered, and whether it reaches pods."""
        offering, nvml = self.parts.offering, self.parts.scene.machine.nvml()
        states = offering.states
        taken = conflicts(states)
        is_registered = {name: state.is_registered for name, state in states.items()}
        return replace(
            found,
            not_ready=not_ready(
                snapshot=offering.taken,  # one that is not offered yet makes nobody ready
                nvml=nvml,
                is_registered=is_registered,
                conflicts=taken,
                refusals=[one.reason for one in offering.refusals if one.resource],
            ),
            registrations={name: state.registrations for name, state in states.items()},
            is_registered=is_registered or {self.parts.settings.resource_name: False},
            conflicts=taken,
            devices={one.resource.name: _counts(one.resource) for one in offering.served},
            allocations={name: state.allocations for name, state in states.items()},
            nvml_failures=nvml.failures,
        )

    def _with_health(self, found: MetricsState) -> MetricsState:
        health = self.parts.health
        if health is None:
            return found
        return replace(found, health=health.view, xid_counts=health.counts)

    def _with_written(self, found: MetricsState) -> MetricsState:
        """Add what was published, and on whose word."""
        labelling, zoning, reloader = self.parts.labelling, self.parts.zoning, self.parts.reloader
        if labelling is not None:
            found = replace(
                found,
                publish_writes=labelling.writes,
                publish_errors=labelling.errors,
                publish_refused=labelling.refused,
            )
        if zoning is not None:
            found = replace(found, zone_writes=zoning.writes, zone_errors=zoning.errors)
        if reloader is not None:
            config = None if reloader.config is None else reloader.config.name
            found = replace(found, config=config, config_failures=reloader.failures)
        writers = tuple(self._writers())
        return replace(
            found,
            events_posted=sum(one.posted for one in writers),
            events_dropped=sum(one.dropped for one in writers),
        )

    def _writers(self) -> Iterator[EventWriter]:
        """Yield what writes Events, about the Node and about pods."""
        attending = self.parts.attending
        of_pods = None if attending is None else attending.events
        yield from (one for one in (self.parts.events, of_pods) if one is not None)

    def _with_pods(self, found: MetricsState) -> MetricsState:
        """Add how pods are aligned, and which rejections were explained."""
        attending = self.parts.attending
        if attending is None:
            return found
        if attending.auditing is not None:
            measured = attending.auditing.found
            found = replace(
                found,
                pods_measured={} if measured is None else measured.verdicts,
                pods_misaligned={} if measured is None else measured.reasons,
                pod_errors=attending.auditing.errors,
            )
        if attending.rejections is not None:
            found = replace(
                found,
                rejections_explained=attending.rejections.explained,
                rejections_given_up=attending.rejections.given_up,
            )
        return found


def _counts(resource: Resource) -> dict[str, int]:
    healthy = sum(device.is_healthy for device in resource.devices)
    return {"healthy": healthy, "unhealthy": len(resource.devices) - healthy}


def _judged(snapshot: Snapshot, terms: Terms) -> Judged:
    # The rules cost 0.4 s of CPU, which a daemon that starts spends on serving GPUs.
    from agent.checks.catalogue import HEALTH  # noqa: PLC0415

    return judged(snapshot, HEALTH, terms)
