"""Watches the HCAs that are offered, and verifies which GPUs they followed."""

import threading
from collections.abc import Iterable, Iterator
from dataclasses import asdict

from agent.components.rdma.metrics import HcaReading
from agent.daemon.hca_health import HcaLoop, configured_hca_health
from agent.daemon.loops import Loop
from agent.kernel.component import QUIET_S, Component, Kernel
from agent.kernel.shown import ResourceState, Shown
from agent.model.notice import Notice


class Hcas(Component):
    """Runs the loop that looks at ports, and the one that verifies joint placements."""

    def __init__(self, kernel: Kernel) -> None:
        """Watch no HCA yet."""
        super().__init__(kernel)
        self.health = configured_hca_health(kernel.settings, kernel.wake.set)
        kernel.hcas = self.health
        if self.health is not None and kernel.scans is not None:
            self.health.on_other_hcas = kernel.scans.scan_whole

    def loops(self) -> Iterator[tuple[str, Loop]]:
        """Yield the loops."""
        if self.health is not None:
            yield "hcas", HcaLoop(self.health).run
        if self.kernel.target.is_real and not self.kernel.settings.once:
            yield "joint placement", self._run_joint

    def notices(self) -> Iterable[Notice]:
        """Return what is new of the HCAs' health."""
        return () if self.health is None else self.health.notices()

    def observed(self) -> HcaReading:
        """Return the HCAs of the node, their health, and how they follow GPUs."""
        current, health, gpus = self.kernel.store.current, self.health, self.kernel.gpus
        has_pools = gpus is not None and bool(gpus.pools)
        return HcaReading(
            snapshot=None if current is None else current.snapshot,
            joint=asdict(gpus.joint.tally) if gpus is not None and has_pools else {},
            hca_health={} if health is None else health.view,
            hca_counters={} if health is None else health.counters,
        )

    def shown(self) -> Shown:
        """Return the pools that are offered, and their latest allocations."""
        pools = () if self.kernel.gpus is None else self.kernel.gpus.pools
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

    def _run_joint(self, stopping: threading.Event) -> None:
        """Verify which GPUs and HCAs followed each other, on nodes that offer HCAs."""
        gpus = self.kernel.gpus
        assert gpus is not None
        while not gpus.joint.guesses:
            if stopping.wait(QUIET_S):
                return
        from agent.daemon.joint_loop import JointLoop  # noqa: PLC0415 - where HCAs are offered

        JointLoop(self.kernel.settings, gpus.joint).run(stopping)
