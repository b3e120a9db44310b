"""Offers HCAs alongside GPUs, and watches them."""

from collections.abc import Callable, Iterable, Iterator

from nodetopo.components.rdma.companion import HcaCompanion
from nodetopo.components.rdma.composite import PAIRS_FILE, pairs_file
from nodetopo.components.rdma.health.monitor import HcaLoop, configured_hca_health
from nodetopo.components.rdma.metrics import HcaReading
from nodetopo.components.rdma.plan import RdmaPlan
from nodetopo.components.rdma.settings import HcaSettings
from nodetopo.kernel.component import Component, Kernel
from nodetopo.kernel.loops import Loop
from nodetopo.kernel.places import Places
from nodetopo.kernel.settings.kept import boot_state
from nodetopo.kernel.shown import ResourceState, Shown
from nodetopo.model.notice import Notice


class Hcas(Component):
    """Runs the loop that watches ports."""

    def __init__(self, kernel: Kernel) -> None:
        super().__init__(kernel)
        target = kernel.target
        self._is_simulated = not target.is_real or target.served_by is not None
        self.health = configured_hca_health(kernel.settings, kernel.wake.set)
        kept = boot_state(kernel.settings, PAIRS_FILE)
        self.companion = HcaCompanion(
            *self._planned(kernel.settings),
            self.health,
            requesters=kernel.requesters,
            file=None if kept is None else pairs_file(*kept),
        )
        kernel.companion = self.companion
        if self.health is not None and kernel.scans is not None:
            self.health.on_other_hcas = kernel.scans.scan_whole

    def loops(self) -> Iterator[tuple[str, Loop]]:
        if self.health is not None:
            yield "hcas", HcaLoop(self.health).run

    def reconfigured(self, settings: HcaSettings) -> Callable[[], None]:
        plan, places = self._planned(settings)
        return lambda: self.companion.use(plan, places)

    def notices(self) -> Iterable[Notice]:
        """Return the notices about the HCAs' health and the file of pairs."""
        health = () if self.health is None else self.health.notices()
        return (*health, *self.companion.notices())

    def observed(self) -> HcaReading:
        current, health = self.kernel.store.current, self.health
        return HcaReading(
            snapshot=None if current is None else current.snapshot,
            hca_health={} if health is None else health.view,
            hca_counters={} if health is None else health.counters,
        )

    def shown(self) -> Shown:
        """Return the pools that are offered, and their latest allocations."""
        pools = self.companion.pools
        return Shown(
            resources=tuple(
                ResourceState.of(
                    pool.resource.name,
                    pool.resource.devices,
                    pool.plugin.state,
                    f"{len(pool.resource.hcas)} HCAs, mode {pool.resource.pool.mode}",
                )
                for pool in pools
            ),
            allocations=tuple(
                allocation for pool in pools for allocation in pool.plugin.recent_allocations
            ),
        )

    def _planned(self, settings: HcaSettings) -> tuple[RdmaPlan, Places]:
        """Return what *settings* offer, and the way to the kubelet."""
        is_simulated = self._is_simulated
        return (
            RdmaPlan.of(settings, is_simulated=is_simulated),
            Places.of(settings, self.kernel.target.socket_dir, is_simulated=is_simulated),
        )
