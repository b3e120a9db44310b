"""Checks the node, measures how its pods are aligned, and explains why pods were rejected."""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from nodetopo.components.audit.alignment.loop import AlignmentLoop
from nodetopo.components.audit.check_terms import CheckSummary, OverridesFile
from nodetopo.components.audit.health_loop import HealthLoop
from nodetopo.components.audit.loop import AuditLoop
from nodetopo.components.audit.metrics import AuditReading
from nodetopo.components.audit.terms import follows_pods
from nodetopo.deviceplugin.plugin import Absence
from nodetopo.kernel.component import Component, Kernel
from nodetopo.kernel.events import PodEventPublisher
from nodetopo.kernel.loops import Loop
from nodetopo.kernel.shown import Shown
from nodetopo.model.notice import Notice

if TYPE_CHECKING:  # loads the admission of pods, which no other loop needs
    from nodetopo.components.audit.rejections_loop import RejectionsLoop


class Audit(Component):
    """Runs the enabled loops: health, audit, alignment, rejections.

    Attributes:
        overrides: severities and waivers.
        health: evaluates the health checks; ``None`` if no output shows them.
        audit, alignment, rejections: ``None`` if off.
        events: posts Events on pods; ``None`` if off.
    """

    def __init__(self, kernel: Kernel) -> None:
        """Check nothing yet."""
        super().__init__(kernel)
        settings, store = kernel.settings, kernel.store
        self.overrides = OverridesFile(settings.checks_file)
        self.health = None
        if kernel.metrics_url is not None:
            self.health = HealthLoop(store, self.overrides)
        self.audit: AuditLoop | None = None
        self.alignment: AlignmentLoop | None = None
        self.rejections: RejectionsLoop | None = None
        self.events: PodEventPublisher | None = None
        if not follows_pods(kernel):
            return
        if kernel.target.is_demo:
            self._start_demo()
            return
        if settings.publish_pod_events or settings.explain_rejections:
            self.events = PodEventPublisher(settings.kubeconfig, settings.node_name)
            kernel.writers.append(self.events)
        if settings.audit_node:
            self.audit = AuditLoop(settings, store, self.overrides, published=kernel.published)
        if settings.measure_pods or settings.publish_pod_events:
            is_posted = self.events is not None and settings.publish_pod_events
            self.alignment = AlignmentLoop(
                settings,
                store,
                post=self.events.post if is_posted and self.events is not None else None,
                published=kernel.published,
            )
        if settings.explain_rejections and self.events is not None:
            from nodetopo.components.audit import rejections_loop  # noqa: PLC0415 - see above

            self.rejections = rejections_loop.RejectionsLoop(
                settings, store, post=self.events.post, absences=self._absences
            )

    def _start_demo(self) -> None:
        """Audit and measure with pods that the embedded kubelet runs, and tell nobody."""
        from nodetopo.kernel.simulated_pods import SimulatedPods  # noqa: PLC0415 - demo alone

        settings, store = self.kernel.settings, self.kernel.store
        kubelet = self.kernel.target.fake_kubelet
        assert kubelet is not None
        read = SimulatedPods(kubelet).read
        if settings.audit_node:
            self.audit = AuditLoop(settings, store, self.overrides, read=read)
        if settings.measure_pods:
            self.alignment = AlignmentLoop(settings, store, post=None, read=read)

    def loops(self) -> Iterator[tuple[str, Loop]]:
        """Yield the loops."""
        if self.health is not None:
            yield "health checks", self.health.run
        if self.audit is not None:
            yield "audit", self.audit.run
        if self.alignment is not None:
            yield "pods", self.alignment.run
        if self.rejections is not None:
            yield "rejections", self.rejections.run
            yield "rejected pods", self.rejections.watch.run
        if self.events is not None:
            yield "pod events", self.events.run

    def notices(self) -> Iterable[Notice]:
        """Return the notices about the file of severities and waivers."""
        return self.overrides.notices()

    @property
    def reports(self) -> dict[str, CheckSummary]:
        """The results of the checks that have been made, by report."""
        summaries = {
            "health": None if self.health is None else self.health.found,
            "audit": None if self.audit is None else self.audit.found,
        }
        return {name: summary for name, summary in summaries.items() if summary is not None}

    def observed(self) -> AuditReading:
        """Return the results of the checks, of the measurements, and of the explanations."""
        reports, alignment, rejections = self.reports, self.alignment, self.rejections
        measured = None if alignment is None else alignment.found
        return AuditReading(
            check_counts={name: summary.counts for name, summary in reports.items()},
            checks_broken={name: summary.broken for name, summary in reports.items()},
            pods_measured={} if measured is None else measured.verdicts,
            pods_misaligned={} if measured is None else measured.reasons,
            pod_errors=0 if alignment is None else alignment.errors,
            rejections_explained=0 if rejections is None else rejections.explained,
            rejections_given_up=0 if rejections is None else rejections.given_up,
        )

    def shown(self) -> Shown:
        """Return the reports, and the pods as each loop that lists them saw them last."""
        listings = [loop.listed for loop in (self.alignment, self.audit) if loop is not None]
        measured = None if self.alignment is None else self.alignment.found
        return Shown(
            reports={name: summary.report for name, summary in self.reports.items()},
            pods=tuple(listing for listing in listings if listing is not None),
            pods_measured=None if measured is None else measured.verdicts,
        )

    def wake(self) -> None:
        """Have the loops that wait for news see now that the daemon stops."""
        if self.rejections is not None:
            self.rejections.wake()
        if self.events is not None:
            self.events.wake()

    def _absences(self) -> Mapping[str, tuple[Absence, ...]]:
        """Return when the device plugin of a resource was down."""
        return {} if self.kernel.gpus is None else self.kernel.gpus.absences
