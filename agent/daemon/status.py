"""Daemon status for metrics and readiness."""

from collections import Counter
from dataclasses import asdict, replace

import structlog

from agent.checks.waivers import Overrides
from agent.daemon import logs
from agent.daemon.check_terms import CheckSummary, OverridesFile, summarize
from agent.daemon.components import Components
from agent.daemon.logs import LastProblem
from agent.daemon.loops import PeriodicLoop
from agent.daemon.reconcile_loop import conflicts
from agent.publish.metrics.process import read_process
from agent.publish.metrics.server import not_ready
from agent.publish.metrics.state import DraState, MetricsState
from agent.store import SnapshotStore
from agent.topology.published import published_gpus

READ_S = 5.0
"""How often :class:`StatusLoop` looks: 0.2 ms of CPU each time nothing has changed."""


class StatusLoop(PeriodicLoop):
    """Does for the status what takes files or time, so that whoever asks for it waits for neither.

    One thread runs it, any may read the results.

    Attributes:
        health: the results of the health checks; ``None`` before the first.
        process: what the process used at the last step.
    """

    def __init__(self, store: SnapshotStore, overrides: OverridesFile) -> None:
        """Evaluate nothing yet."""
        self._store = store
        self._overrides = overrides
        self._evaluated: tuple[int, Overrides] | None = None
        self._problem = LastProblem()
        self.health: CheckSummary | None = None
        self.process = read_process()

    def step(self) -> float:
        """Look at the process, and evaluate the health checks where that gives another result."""
        self.process = read_process()
        try:
            self._evaluate()
        except Exception as error:  # noqa: BLE001 - a fault in a rule must not end the daemon
            self.health = None
            if self._problem.is_new(repr(error)):
                structlog.get_logger().exception(
                    "health not checked: a bug of ours", problem=repr(error), exc_info=error
                )
        else:
            self._problem.is_new(None)
        return READ_S

    def _evaluate(self) -> None:
        current, overrides = self._store.current, self._overrides.current()
        if current is not None and self._evaluated != (current.generation, overrides):
            # The rules cost 0.4 s of CPU, which a daemon that starts spends on serving GPUs.
            from agent.checks.catalogue import HEALTH  # noqa: PLC0415

            self.health = summarize(current.snapshot, HEALTH, overrides)
            self._evaluated = current.generation, overrides


class Status:
    """Reads the daemon's components, and changes none; any thread may ask it.

    It opens nothing: what it returns is in memory.

    Attributes:
        loop: to be run by a thread of its own.
    """

    def __init__(self, components: Components) -> None:
        """Read *components*."""
        self.components = components
        self.loop = StatusLoop(components.store, components.overrides)

    def state(self) -> MetricsState:
        """Return everything, as it is now."""
        current = self.components.store.current
        checks = self.checks()
        state = MetricsState(
            snapshot=None if current is None else current.snapshot,
            generation=0 if current is None else current.generation,
            check_counts={report: summary.counts for report, summary in checks.items()},
            checks_broken={report: summary.broken for report, summary in checks.items()},
            process=self.loop.process,
            log_lines_dropped=logs.dropped(),
        )
        return self._with_pods(self._with_published(self._with_devices(state)))

    def checks(self) -> dict[str, CheckSummary]:
        """Return the results of the checks that have been made, by report."""
        pod_loops = self.components.pod_loops
        checks: dict[str, CheckSummary] = {}
        if self.loop.health is not None:
            checks["health"] = self.loop.health
        audit = None if pod_loops is None else pod_loops.audit
        if audit is not None and (found := audit.found) is not None:
            checks["audit"] = found
        return checks

    def _with_devices(self, state: MetricsState) -> MetricsState:
        """Add what is offered, whether it reaches pods, and the health of GPUs and HCAs."""
        plugins, nvml = self.components.plugins, self.components.target.machine.nvml()
        hand_over = plugins.hand_over
        states = plugins.states
        taken = conflicts(states)
        is_registered = {name: plugin.is_registered for name, plugin in states.items()}
        devices = {}
        offered = [(it.resource.name, it.resource.devices) for it in plugins.served]
        offered += [(it.resource.name, it.resource.devices) for it in plugins.pools]
        for name, listed in offered:
            healthy = sum(device.is_healthy for device in listed)
            devices[name] = {"healthy": healthy, "unhealthy": len(listed) - healthy}
        dra, pause = self.components.dra, self.components.pause
        joint = {} if not plugins.pools else asdict(plugins.joint.tally)
        state = replace(
            state,
            not_ready=not_ready(
                snapshot=plugins.taken,  # a snapshot that is not offered yet makes nobody ready
                nvml=nvml,
                is_registered=is_registered,
                conflicts=taken,
                refusals=[refusal.reason for refusal in plugins.refusals if refusal.resource],
                cdi_problem=plugins.cdi_problem,
                hand_over_problem=None if hand_over is None else hand_over.problem,
                dra_problem=None if dra is None else dra.not_served,
                pause=None if pause is None else pause.text,
            ),
            registrations={name: plugin.registrations for name, plugin in states.items()},
            is_registered=is_registered or self._unoffered(),
            strategies=tuple(map(str, plugins.strategies)) if is_registered else (),
            conflicts=taken,
            devices=devices,
            allocations={name: plugin.allocations for name, plugin in states.items()},
            joint=joint,
            unchosen={name: plugin.unchosen for name, plugin in states.items()},
            nvml_failures=nvml.failures,
            is_driver_paused=pause is not None and pause.claim is not None,
        )
        health = self.components.health
        if health is not None:
            state = replace(state, health=health.view, xid_counts=health.counts)
        if (neighbours := self.components.neighbours) is not None and plugins.taken is not None:
            published = published_gpus(neighbours.devices or (), plugins.taken)
            drivers = ({device.driver for device in devices} for devices in published.values())
            state = replace(state, dra_gpus=Counter(it for found in drivers for it in found))
        if dra is not None:
            claimed = dra.prepared.used
            state = replace(
                state,
                dra=DraState(
                    is_registered=dra.is_registered,
                    claims=len(dra.prepared.claims),
                    claimed_gpus=len(claimed),
                    writes=dra.writes,
                    errors=dra.errors,
                    shared_gpus=dra.foreign_gpus,
                    dropped=dra.dropped,
                ),
            )
        hcas = self.components.hcas
        if hcas is not None:
            state = replace(state, hca_health=hcas.view, hca_counters=hcas.counters)
        return state

    def _unoffered(self) -> dict[str, bool]:
        """Return what the kubelet lacks while nothing is offered that ought to be."""
        settings = self.components.settings
        is_dras = settings.dra or bool(self.components.plugins.served_by_dra)
        is_none = settings.offer_gpus == "never" or is_dras
        return {} if is_none else {settings.resource_name: False}

    def _with_published(self, state: MetricsState) -> MetricsState:
        """Add what was published, and the configuration in force."""
        components = self.components
        if (labels := components.labels) is not None:
            state = replace(
                state,
                publish_writes=labels.writes,
                publish_errors=labels.errors,
                publish_refused=labels.refused,
            )
        if (zones := components.zones) is not None:
            state = replace(state, zone_writes=zones.writes, zone_errors=zones.errors)
        if (reloader := components.reloader) is not None:
            config = None if reloader.config is None else reloader.config.name
            state = replace(state, config=config, config_failures=reloader.failures)
        pod_events = None if components.pod_loops is None else components.pod_loops.events
        writers = [events for events in (components.events, pod_events) if events is not None]
        return replace(
            state,
            events_posted=sum(writer.posted for writer in writers),
            events_dropped=sum(writer.dropped for writer in writers),
        )

    def _with_pods(self, state: MetricsState) -> MetricsState:
        """Add how pods are aligned, and which rejections were explained."""
        pod_loops = self.components.pod_loops
        if pod_loops is None:
            return state
        if (alignment := pod_loops.alignment) is not None:
            measured = alignment.found
            state = replace(
                state,
                pods_measured={} if measured is None else measured.verdicts,
                pods_misaligned={} if measured is None else measured.reasons,
                pod_errors=alignment.errors,
            )
        if (rejections := pod_loops.rejections) is not None:
            state = replace(
                state,
                rejections_explained=rejections.explained,
                rejections_given_up=rejections.given_up,
            )
        return state
