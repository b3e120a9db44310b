"""Serves the status page with the rows of all components."""

import threading
from datetime import UTC
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import nodetopo
from nodetopo.components.page.state import PATHS, PageState
from nodetopo.kernel.component import Component, Kernel
from nodetopo.kernel.shown import merged

if TYPE_CHECKING:  # loaded by the first request
    from nodetopo.components.page.answer import Answer, StatusPage


class Page(Component):
    """Answers requests for the page; any thread can ask.

    The drawing modules are loaded at the first request: most daemons never get one.
    """

    def __init__(self, kernel: Kernel) -> None:
        super().__init__(kernel)
        self._lock = threading.Lock()
        self._page: StatusPage | None = None
        kernel.page = self.answer
        kernel.page_everywhere = kernel.settings.status_page_everywhere

    def answer(self, target: str) -> "Answer | None":
        """Return the answer to a request for *target*; ``None`` where it is no page."""
        if urlsplit(target).path not in PATHS:
            return None
        with self._lock:
            if self._page is None:
                from nodetopo.components.page.answer import StatusPage  # noqa: PLC0415 - see above

                self._page = StatusPage(lambda: page_state(self.kernel))
        return self._page.answer(target)


def page_state(kernel: Kernel) -> PageState:
    """Return the current content of the page, without opening or asking anything."""
    settings, current, target = kernel.settings, kernel.store.current, kernel.target
    shown = merged(component.shown() for component in kernel.running)
    names = frozenset(
        text
        for listed in shown.pods
        for pod in listed.snapshot.pods or ()
        for text in (pod.name, pod.uid)
        if text
    )
    config = kernel.config
    snapshot = None if current is None else current.snapshot
    scanned_at = None if snapshot is None else snapshot.captured_at
    return PageState(
        node=settings.node_name,
        version=nodetopo.__version__,
        nvml=target.machine.nvml(),
        simulated=target.simulated,
        settings=(*(() if config is None else (("config", config),)), *shown.settings),
        snapshot=snapshot,
        generation=0 if current is None else current.generation,
        scanned_at=None if scanned_at is None else scanned_at.astimezone(UTC),
        not_ready=kernel.not_ready(),
        health=shown.health,
        xid_counts=shown.xid_counts,
        resources=shown.resources,
        refusals=shown.refusals,
        reports=shown.reports,
        allocations=tuple(sorted(shown.allocations, key=lambda one: one.at, reverse=True)),
        pods=max(shown.pods, key=lambda listed: listed.at, default=None),
        pods_measured=shown.pods_measured,
        pod_names=names,
        shows_pods=settings.status_page_pods or target.is_demo,
        labels=shown.labels,
        label_outputs=settings.label_outputs if settings.publish_labels else (),
    )
