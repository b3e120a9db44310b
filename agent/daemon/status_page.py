"""What the daemon shows on its status page."""

import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import agent
from agent.checks.engine import Report
from agent.daemon.components import Components
from agent.daemon.status import Status
from agent.deviceplugin.devices import PluginDevice
from agent.deviceplugin.plugin import PluginState
from agent.publish.page.state import PATHS, ListedPods, PageState, ResourceState

if TYPE_CHECKING:  # loaded by the first request
    from agent.publish.page.answer import Answer, StatusPage


class DaemonPage:
    """Answers requests for the page of the daemon that *status* reads; any thread may ask.

    What draws it is loaded by the first request: most daemons are never asked.
    """

    def __init__(self, status: Status) -> None:
        """Load nothing yet."""
        self._status = status
        self._lock = threading.Lock()
        self._page: StatusPage | None = None

    def __call__(self, target: str) -> "Answer | None":
        """Return the answer to a request for *target*; ``None`` where it is no page."""
        if urlsplit(target).path not in PATHS:
            return None
        with self._lock:
            if self._page is None:
                from agent.publish.page.answer import StatusPage  # noqa: PLC0415 - see above

                self._page = StatusPage(lambda: page_state(self._status))
        return self._page.answer(target)


def page_state(status: Status) -> PageState:
    """Return what the page shows now; nothing is opened or asked for."""
    components = status.components
    settings, plugins = components.settings, components.plugins
    current, health = components.store.current, components.health
    metrics = status.state()
    allocations = [one for it in plugins.served for one in it.plugin.recent_allocations]
    allocations += [one for it in plugins.pools for one in it.plugin.recent_allocations]
    labels = components.labels
    reports: dict[str, Report] = {name: found.report for name, found in status.checks().items()}
    listings = _listings(components)
    names = frozenset(
        text
        for listed in listings
        for pod in listed.snapshot.pods or ()
        for text in (pod.name, pod.uid)
        if text
    )
    snapshot = None if current is None else current.snapshot
    return PageState(
        node=settings.node_name,
        version=agent.__version__,
        nvml=components.target.machine.nvml(),
        simulated=None if components.target.is_real else components.target.simulated,
        settings=tuple(_shown_settings(components, metrics.config)),
        snapshot=snapshot,
        generation=0 if current is None else current.generation,
        scanned_at=_utc(None if snapshot is None else snapshot.captured_at),
        not_ready=metrics.not_ready,
        health=None if health is None else health.view,
        xid_counts=metrics.xid_counts,
        resources=_resources(components),
        refusals=tuple(refusal.reason for refusal in plugins.refusals),
        reports=reports,
        allocations=tuple(sorted(allocations, key=lambda one: one.at, reverse=True)),
        pods=max(listings, key=lambda listed: listed.at, default=None),
        pod_names=names,
        shows_pods=settings.status_page_pods,
        labels=None if labels is None else labels.desired,
        label_outputs=settings.label_outputs,
    )


def _resources(components: Components) -> tuple[ResourceState, ...]:
    plugins, found = components.plugins, []
    for served in plugins.served:
        policy, model, _ = served.plan.placement(served.resource)
        said = f"policy {policy}, bandwidth model {model}"
        resource = served.resource
        found.append(_resource(resource.name, resource.devices, served.plugin.state, said))
    for pool in plugins.pools:
        hcas, mode = len(pool.resource.hcas), pool.resource.pool.mode
        said = f"{hcas} HCAs, mode {mode}"
        found.append(_resource(pool.resource.name, pool.resource.devices, pool.plugin.state, said))
    return tuple(found)


def _resource(
    name: str, devices: Sequence[PluginDevice], plugin: PluginState, placement: str
) -> ResourceState:
    healthy = sum(device.is_healthy for device in devices)
    return ResourceState(
        name=name,
        healthy=healthy,
        unhealthy=len(devices) - healthy,
        is_registered=plugin.is_registered,
        registrations=plugin.registrations,
        endpoint=plugin.endpoint,
        problem=plugin.conflict or plugin.last_problem,
        placement=placement,
        allocations=plugin.allocations,
    )


def _shown_settings(components: Components, config: str | None) -> list[tuple[str, str]]:
    settings = components.settings
    shown = [
        ("mig-strategy", settings.mig_strategy),
        ("device-list-strategy", ",".join(components.plugins.strategies)),
        ("registration", settings.registration),
    ]
    return [("config", config), *shown] if config is not None else shown


def _listings(components: Components) -> tuple[ListedPods, ...]:
    """Return the pods as the loops that ask the kubelet saw them last."""
    loops = components.pod_loops
    if loops is None:
        return ()
    found = [loop.listed for loop in (loops.alignment, loops.audit) if loop is not None]
    return tuple(listed for listed in found if listed is not None)


def _utc(at: datetime | None) -> datetime | None:
    return None if at is None else at.astimezone(UTC)
