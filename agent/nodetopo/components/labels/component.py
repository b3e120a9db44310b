"""Publishes the labels of the node."""

from collections.abc import Iterable

import structlog

from nodetopo.components.labels.loop import (
    DesiredLabelsBuilder,
    LabelsLoop,
    NodeTiers,
    configured_outputs,
)
from nodetopo.components.labels.metrics import LabelsReading
from nodetopo.kernel.component import Component, Kernel
from nodetopo.kernel.loops import Loop
from nodetopo.kernel.shown import Shown


class Labels(Component):
    """Runs the label loop, which also runs the Node watch if no other component does."""

    def __init__(self, kernel: Kernel) -> None:
        """Publish nothing yet.

        Raises:
            InputError: the file of the topology levels cannot be used.
        """
        super().__init__(kernel)
        log = structlog.get_logger()
        settings = kernel.settings
        desired = DesiredLabelsBuilder(
            lambda: kernel.settings,
            NodeTiers(settings),
            lambda text: log.warning("labels", about=text),
        )
        self.loop = LabelsLoop(
            settings,
            kernel.store,
            outputs=configured_outputs(settings) if settings.publish_labels else (),
            desired=desired,
            watch=kernel.watch,
            is_watch_wanted=kernel.wants_watch,
        )
        kernel.use_watch(self.loop.watch)

    def loops(self) -> Iterable[tuple[str, Loop]]:
        """Return the loop of the labels."""
        return (("labels", self.loop.run),)

    def observed(self) -> LabelsReading:
        """Return the counters of all outputs."""
        loop = self.loop
        return LabelsReading(
            publish_writes=loop.writes, publish_errors=loop.errors, publish_refused=loop.refused
        )

    def shown(self) -> Shown:
        """Return the labels that are to be published."""
        return Shown(labels=self.loop.desired)
