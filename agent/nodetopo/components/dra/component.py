"""Follows the node's ResourceSlices, and publishes GPUs as devices of our DRA driver."""

import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from nodetopo.components.dra.metrics import DraReading
from nodetopo.components.dra.neighbours import DraNeighbours, claims_of
from nodetopo.components.dra.terms import claims_file, needs_driver
from nodetopo.kernel.component import Component, Kernel
from nodetopo.kernel.loops import Loop
from nodetopo.kubeapi.apply import connection
from nodetopo.kubeapi.slices import SliceWatch
from nodetopo.topology.published import published_gpus

if TYPE_CHECKING:  # loaded where our driver is or was on
    from nodetopo.components.dra.loop import DraLoop


class Dra(Component):
    """Runs the watch of the slices, and our driver if it is on or has left claims."""

    def __init__(self, kernel: Kernel) -> None:
        super().__init__(kernel)
        settings = kernel.settings
        self.driver: DraLoop | None = None  # None while it does not run
        self.slices = SliceWatch(settings.kubeconfig, settings.node_name)
        self.slices.subscribe(kernel.wake.set)
        self.neighbours = DraNeighbours(
            self.slices,
            connection(settings.kubeconfig),
            settings.plugins_registry_dir,
            claims_of(settings.pod_resources_socket),
        )
        kernel.claims = self.neighbours
        self._has_driver = needs_driver(kernel)
        if kernel.gpus is not None:
            kernel.gpus.has_claims = self._has_driver and not settings.dra

    def loops(self) -> Iterator[tuple[str, Loop]]:
        yield "slices", self.slices.run
        if self._has_driver:
            yield "dra", self._run_driver

    def not_ready(self) -> Iterable[str]:
        """Yield why claims of GPUs do not reach our driver."""
        gpus, problem = self.kernel.gpus, None if self.driver is None else self.driver.not_served
        if problem is not None and gpus is not None and gpus.taken is not None:
            yield f"DraNotServed: {problem}"

    def observed(self) -> DraReading:
        """Return the GPUs that each driver publishes, and the counters of our driver."""
        taken = None if self.kernel.gpus is None else self.kernel.gpus.taken
        by_driver: Counter[str] = Counter()
        if taken is not None:
            for devices in published_gpus(self.neighbours.devices or (), taken).values():
                by_driver.update({device.driver for device in devices})
        driver = self.driver
        if driver is None:
            return DraReading(dra_gpus=by_driver)
        return DraReading(
            dra_gpus=by_driver,
            dra_registered=driver.is_registered,
            dra_claims_prepared=len(driver.prepared.claims),
            dra_gpus_claimed=len(driver.prepared.used),
            dra_slice_writes=driver.writes,
            dra_slice_errors=driver.errors,
            dra_gpus_published_twice=driver.foreign_gpus,
            dra_fields_dropped=driver.dropped,
        )

    def _run_driver(self, stopping: threading.Event) -> None:
        """Publish GPUs as devices of our driver, or release the claims that it left."""
        from nodetopo.components.dra.loop import DraLoop  # noqa: PLC0415 - where DRA is or was on

        kernel = self.kernel
        assert kernel.gpus is not None
        self.driver = DraLoop(
            kernel.settings,
            kernel.gpus,
            kernel.health,
            self.slices,
            state_file=claims_file(kernel.settings),
            evicts=lambda: kernel.settings.dra_unhealthy == "evict",
            report=kernel.report,
            is_off=not kernel.settings.dra,
        )
        self.driver.run(stopping)
        if not stopping.is_set():  # the last claim is given up
            self.driver = None
            stopping.wait()
