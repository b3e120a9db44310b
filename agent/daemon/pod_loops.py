"""The loops beside what serves GPUs: they audit the node and follow its pods."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.allocation.remainder import Ends
from agent.config.settings import Settings
from agent.daemon.alignment_loop import AlignmentLoop
from agent.daemon.audit_loop import AuditLoop
from agent.daemon.check_terms import OverridesFile
from agent.daemon.loops import Loop
from agent.daemon.rejections_loop import Absences, RejectionsLoop, no_absences
from agent.daemon.running_pods import Published
from agent.publish.events import PodEventPublisher
from agent.store import SnapshotStore

if TYPE_CHECKING:  # loaded only where it is used
    from agent.daemon.run_times import RunTimesLoop


@dataclass(frozen=True, slots=True, kw_only=True)
class PodLoops:
    """The loops; each is ``None`` where the settings do not ask for it."""

    audit: AuditLoop | None
    alignment: AlignmentLoop | None
    rejections: RejectionsLoop | None
    events: PodEventPublisher | None
    run_times: "RunTimesLoop | None"

    def wake(self) -> None:
        """Have the loops that wait for news see now that the daemon stops."""
        if self.rejections is not None:
            self.rejections.wake()
        if self.events is not None:
            self.events.wake()

    def loops(self) -> Iterator[tuple[str, Loop]]:
        """Yield each loop with its name; each takes a thread."""
        if self.audit is not None:
            yield "audit", self.audit.run
        if self.alignment is not None:
            yield "pods", self.alignment.run
        if self.rejections is not None:
            yield "rejections", self.rejections.run
            yield "rejected pods", self.rejections.watch.run
        if self.events is not None:
            yield "pod events", self.events.run
        if self.run_times is not None:
            yield "run times", self.run_times.run
            yield "run times of pods", self.run_times.watch.run


def pod_loops(
    settings: Settings,
    store: SnapshotStore,
    overrides: OverridesFile,
    absences: Absences = no_absences,
    *,
    expect: Callable[[Ends], None],
    published: Callable[[], Published] = lambda: None,
) -> PodLoops:
    """Return the loops that *settings* ask for; the machine comes from *store*.

    *absences* says when the device plugin of a resource was down; *expect* takes when the devices
    in use are expected to be free; *published* returns what DRA drivers publish for the node.
    """
    writes = settings.publish_pod_events or settings.explain_rejections
    events = PodEventPublisher(settings.kubeconfig, settings.node_name) if writes else None
    measures = settings.measure_pods or settings.publish_pod_events
    post = events.post if events is not None and settings.publish_pod_events else None
    run_times = None
    if settings.expect_run_times:
        from agent.daemon.run_times import RunTimesLoop  # noqa: PLC0415 - memory that few nodes need

        run_times = RunTimesLoop(settings, expect)
    return PodLoops(
        audit=AuditLoop(settings, store, overrides, published=published)
        if settings.audit_node
        else None,
        alignment=AlignmentLoop(settings, store, post=post, published=published)
        if measures
        else None,
        rejections=(
            RejectionsLoop(settings, store, post=events.post, absences=absences)
            if events is not None and settings.explain_rejections
            else None
        ),
        events=events,
        run_times=run_times,
    )
