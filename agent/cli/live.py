"""The live node, read once."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime

from agent.cli.progress import progress
from agent.config import Settings
from agent.errors import AgentError, NvmlUnavailable
from agent.model.pod import Container, Pod
from agent.model.snapshot import ProbeIssue, Snapshot
from agent.probes.discover import Roots, discover
from agent.probes.nvml import NvmlReading
from agent.probes.nvml_supervisor import NvmlSupervisor
from agent.probes.raw_capture import RawCapture, capture_raw


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


def read(settings: Settings, *, pods: bool) -> Reading:
    """Return the node as it is now; with *pods* also what the kubelet and the API tell of pods.

    With *pods* come the error counters of HCAs too: both are for captures and audits only.
    """
    nvml = _Nvml(settings)
    try:
        with progress("reading the node"):
            snapshot = discover(
                _roots(settings),
                nvml.scan,
                node=settings.node_name,
                captured_at=_now(),
                counters=pods,
            )
    finally:
        nvml.close()
    if not pods:
        return Reading(snapshot=snapshot, nvml_failure=nvml.failure)
    with progress("asking the kubelet and the API server about pods"):
        found, issues = _pods(settings)
    return Reading(
        snapshot=replace(snapshot, pods=found, issues=(*snapshot.issues, *issues)),
        nvml_failure=nvml.failure,
        warnings=tuple(f"pods: {issue.reason}" for issue in issues),
    )


def read_raw(settings: Settings) -> RawCapture:
    """Return the node as texts that play it again."""
    supervisor = NvmlSupervisor(settings.nvml_library)
    try:
        with progress("reading the node"):
            return capture_raw(
                _roots(settings), supervisor, node=settings.node_name, captured_at=_now()
            )
    finally:
        supervisor.close()


def _roots(settings: Settings) -> Roots:
    return Roots(sysfs=settings.sysfs_root, procfs=settings.procfs_root, host=settings.host_root)


def _now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)


def _pods(settings: Settings) -> tuple[tuple[Pod, ...] | None, tuple[ProbeIssue, ...]]:
    """Join what the API server asks for with what the kubelet gave; ``None`` if neither told."""
    from agent.probes.podresources import assigned  # noqa: PLC0415 - loads grpc: 21 MiB
    from agent.probes.pods import pods_of_node  # noqa: PLC0415 - loads kubernetes: 21 MiB

    issues: list[ProbeIssue] = []
    specified: tuple[Pod, ...] | None = None
    given: tuple[Pod, ...] | None = None
    try:
        given = assigned(settings.pod_resources_socket)
    except AgentError as error:
        issues.append(ProbeIssue(probe="podresources", subject="kubelet", reason=error.cause))
    try:
        specified = pods_of_node(settings.kubeconfig, settings.node_name)
    except AgentError as error:
        issues.append(ProbeIssue(probe="pods", subject="API server", reason=error.cause))
    return join(specified, given), tuple(issues)


def join(
    specified: tuple[Pod, ...] | None,
    assigned: tuple[Pod, ...] | None,
) -> tuple[Pod, ...] | None:
    """Return *specified* pods with what was *assigned* to their containers, then the others."""
    if specified is None or assigned is None:
        return assigned if specified is None else specified
    by_name = {(pod.namespace, pod.name): pod for pod in assigned}
    joined = [_with_devices(pod, by_name.pop((pod.namespace, pod.name), None)) for pod in specified]
    return (*joined, *by_name.values())


def _with_devices(pod: Pod, assigned: Pod | None) -> Pod:
    found = {container.name: container for container in assigned.containers} if assigned else {}
    return replace(
        pod,
        containers=tuple(
            _joined(container, found.get(container.name)) for container in pod.containers
        ),
    )


def _joined(container: Container, found: Container | None) -> Container:
    if found is None:
        return container
    return replace(container, devices=found.devices, cpus=found.cpus, memory=found.memory)
