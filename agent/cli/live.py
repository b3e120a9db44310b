"""The live node, read once."""

from dataclasses import dataclass
from datetime import UTC, datetime

from agent.cli.progress import progress
from agent.config import Settings
from agent.config.roots import roots
from agent.errors import NvmlUnavailable
from agent.model.snapshot import Snapshot
from agent.probes.capture.raw import RawCapture, capture_raw
from agent.probes.discover import discover
from agent.probes.nvml.reading import NvmlReading
from agent.probes.nvml.supervisor import NvmlSupervisor

_ABOUT = {"kubelet": "kubelet"}
"""Of an issue's probe, what a warning is about; all others are about pods."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What the node told.

    Attributes:
        nvml_failure: why there are no GPUs in the snapshot; ``None`` when NVML answered.
        warnings: what could not be reached beside the hardware.
    """

    snapshot: Snapshot
    nvml_failure: NvmlUnavailable | None
    warnings: tuple[str, ...] = ()


class _Nvml:
    """Scans once, and remembers why that failed: discovery turns failures into issues."""

    def __init__(self, settings: Settings) -> None:
        self._supervisor = NvmlSupervisor(settings.nvml_library)
        self.failure: NvmlUnavailable | None = None

    def scan(self) -> NvmlReading:
        try:
            return self._supervisor.scan()
        except NvmlUnavailable as failure:
            self.failure = failure
            raise

    def close(self) -> None:
        self._supervisor.close()


def read(settings: Settings, *, in_full: bool, pods: bool) -> Reading:
    """Return the node as it is now; with *pods* also what the kubelet and the API tell of pods.

    *in_full* reads what only checks and captures need: error counters of HCAs, settings of the
    host beside its kernel's.
    """
    nvml = _Nvml(settings)
    try:
        with progress("reading the node"):
            snapshot = discover(
                roots(settings),
                nvml.scan,
                node=settings.node_name,
                captured_at=_now(),
                counters=in_full,
            )
    finally:
        nvml.close()
    if not pods:
        return Reading(snapshot=snapshot, nvml_failure=nvml.failure)
    from agent.cli.live_pods import with_pods  # noqa: PLC0415 - loads grpc and kubernetes: 42 MiB

    with progress("asking the kubelet and the API server about pods"):
        found = with_pods(snapshot, settings)
    told = found.issues[len(snapshot.issues) :]
    # Three questions to a server that is not there have one and the same answer.
    reasons = dict.fromkeys(f"{_ABOUT.get(issue.probe, 'pods')}: {issue.reason}" for issue in told)
    return Reading(snapshot=found, nvml_failure=nvml.failure, warnings=tuple(reasons))


def read_raw(settings: Settings) -> RawCapture:
    """Return the node as texts that play it again."""
    supervisor = NvmlSupervisor(settings.nvml_library)
    try:
        with progress("reading the node"):
            return capture_raw(
                roots(settings), supervisor, node=settings.node_name, captured_at=_now()
            )
    finally:
        supervisor.close()


def _now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)
