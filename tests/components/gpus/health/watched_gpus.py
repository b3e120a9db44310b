"""A watch whose clock a test moves, and which can begin again as a new process."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from nodetopo.components.gpus.health.monitor import GpuHealthMonitor
from nodetopo.components.gpus.health.rules import HealthRules
from nodetopo.components.gpus.state_files import HealthFile
from tests.components.gpus.health.gpu_history import reasons


@dataclass
class Daemon:
    """A watch with a clock that the test moves, and a count of the changes told."""

    path: Path | None = None
    boot_id: str | None = "one"
    now: float = 1000.0
    changes: int = 0
    clock_reads: int = 0
    watch: GpuHealthMonitor = field(init=False)

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Begin a new process on the same file."""
        file = None if self.path is None else HealthFile(self.path)
        self.watch = GpuHealthMonitor(
            HealthRules(),
            file,
            boot_id=self.boot_id,
            clock=self._clock,
            on_change=self._changed,
        )

    def _clock(self) -> float:
        self.clock_reads += 1
        return self.now

    def _changed(self) -> None:
        self.changes += 1

    def wait(self, seconds: float) -> None:
        """Let time pass, and the watch know."""
        self.now += seconds
        self.watch.tick()

    @property
    def reasons(self) -> Mapping[str, str | None]:
        """The reason of each verdict."""
        return reasons(self.watch.view)
