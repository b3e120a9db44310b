"""The live node, read once: its hardware, and its state in the kubelet and the API server."""

from datetime import UTC, datetime

from msgspec import Struct
from msgspec.structs import replace

from nodetopo.cli.output import progress
from nodetopo.components.gpus.expected import expected_here
from nodetopo.components.gpus.settings import GpuSettings
from nodetopo.errors import NvmlUnavailable
from nodetopo.kernel.settings.kept import health_file
from nodetopo.kernel.settings.own import roots
from nodetopo.model.snapshot import Snapshot
from nodetopo.probes.discover import discover
from nodetopo.probes.host.driver_holders import with_driver_holders
from nodetopo.probes.nvml.record import NvmlReading
from nodetopo.probes.nvml.supervisor import NvmlSupervisor
from nodetopo.tools.capture.raw import RawCapture, capture_raw


class Reading(Struct, frozen=True, kw_only=True):
    """The node as it was read."""

    snapshot: Snapshot
    # Why there are no GPUs in the snapshot; ``None`` when NVML answered.
    nvml_failure: NvmlUnavailable | None
    # Sources other than the hardware that could not be reached, and why.
    unread: tuple[tuple[str, str], ...] = ()


def read(settings: GpuSettings, *, in_full: bool, pods: bool) -> Reading:
    """Return the node's current state; with *pods* also the pods in the kubelet and the API.

    *in_full* also reads the inputs of checks and captures: error counters of HCAs, and settings of
    the host outside the kernel.
    """
    supervisor = NvmlSupervisor(settings.nvml_library)
    failure: NvmlUnavailable | None = None

    def scan() -> NvmlReading:
        nonlocal failure  # discovery turns failures into issues
        try:
            return supervisor.scan()
        except NvmlUnavailable as error:
            failure = error
            raise

    try:
        with progress("reading the node"):
            snapshot = discover(
                roots(settings),
                scan,
                node=settings.node_name,
                captured_at=_now(),
                counters=in_full,
            )
    finally:
        supervisor.close()
    snapshot = replace(snapshot, expected_gpus=expected_here(settings, health_file(settings)))
    if not pods:
        return Reading(snapshot=snapshot, nvml_failure=failure)

    from nodetopo.cli.live_pods import with_pods  # noqa: PLC0415 - grpc and the API client

    with progress("asking the kubelet and the API server about pods"):
        complete = with_driver_holders(with_pods(snapshot, settings), settings.procfs_root)
    # Three questions to a server that is not there have one and the same answer.
    reasons = dict.fromkeys(
        ("kubelet" if issue.probe == "kubelet" else "pods", issue.reason)
        for issue in complete.issues[len(snapshot.issues) :]
    )
    return Reading(snapshot=complete, nvml_failure=failure, unread=tuple(reasons))


def read_raw(settings: GpuSettings) -> RawCapture:
    """Return the node as texts from which it can be replayed."""
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
