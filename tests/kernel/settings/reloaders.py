"""A reloader as a daemon uses it, with time that passes when a test says so."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from nodetopo.cli.files import read_text
from nodetopo.errors import AgentError
from nodetopo.kernel.settings.declare import Settings
from nodetopo.kernel.settings.reload import LOOK_S, Reloader, Sources


class Clock:
    """Time that passes when a test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """Return the time in seconds."""
        return self.now


class Running:
    """A reloader, and what it put in force, as a daemon would."""

    def __init__(self, reloader: Reloader, clock: Clock) -> None:
        self.reloader = reloader
        self.clock = clock
        self.applied: list[Settings] = []
        self.refusal: AgentError | None = None

    @property
    def mig(self) -> str:
        """The setting that most tests change."""
        return str(self.reloader.current.settings.mig_strategy)

    def apply(self, settings: Settings) -> None:
        """Put *settings* in force, unless the test refuses all."""
        if self.refusal is not None:
            raise self.refusal
        self.applied.append(settings)

    def poll(self, looks: int = 0) -> int:
        """Poll once, and again after each of *looks*; return how often settings were applied."""
        before = len(self.applied)
        for look in range(looks + 1):
            self.clock.now += LOOK_S if look else 0.0
            self.reloader.poll(self.apply)
        return len(self.applied) - before

    def told(self) -> list[tuple[str, str, bool]]:
        """Return reason, message and weight of each notice."""
        return [(one.reason, one.message, one.is_warning) for one in self.reloader.notices()]


@contextmanager
def running(
    file: Path | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, object] | None = None,
    read: Callable[[str], str] = read_text,
) -> Iterator[Running]:
    clock = Clock()
    sources = Sources(
        read=read,
        flags={"node_name": "gpu-1", **(flags or {})},
        environment=environment or {},
        file=None if file is None else str(file),
    )
    reloader = Reloader(sources, sources.resolved(), clock=clock)
    reloader.start()
    try:
        yield Running(reloader, clock)
    finally:
        reloader.close()


def write(path: Path, text: str) -> Path:
    """Replace *path* as an editor or the kubelet does: another file takes its name."""
    other = path.with_name(f".{path.name}.{time.monotonic_ns()}")
    other.write_text(text, encoding="utf-8")
    other.replace(path)
    return path
