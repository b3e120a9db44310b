"""The live node, read once: its hardware, and what the kubelet and the API server know of it."""

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TypeVar

from agent.cli.output import progress
from agent.components.gpus.settings import GpuSettings
from agent.daemon.expected_gpus import expected_here
from agent.daemon.gpu_health import health_file
from agent.errors import AgentError, NvmlUnavailable
from agent.kernel.settings.own import roots
from agent.model.kubelet import KubeletSettings
from agent.model.node import NodeStatus
from agent.model.pod import Pod
from agent.model.probe_issue import ProbeIssue
from agent.model.snapshot import Snapshot
from agent.probes.capture.raw import RawCapture, capture_raw
from agent.probes.discover import discover
from agent.probes.host.driver_holders import with_driver_holders
from agent.probes.nvml.record import NvmlReading
from agent.probes.nvml.supervisor import NvmlSupervisor

_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The node as it was read.

    Attributes:
        nvml_failure: why there are no GPUs in the snapshot; ``None`` when NVML answered.
        unread: what could not be reached beside the hardware, and why.
    """

    snapshot: Snapshot
    nvml_failure: NvmlUnavailable | None
    unread: tuple[tuple[str, str], ...] = ()


def read(settings: GpuSettings, *, in_full: bool, pods: bool) -> Reading:
    """Return the node as it is now; with *pods* also what the kubelet and the API know of pods.

    *in_full* reads what only checks and captures need: error counters of HCAs, settings of the
    host beside its kernel's.
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


def with_pods(snapshot: Snapshot, settings: GpuSettings) -> Snapshot:
    """Return *snapshot* with pods and their cgroups, what is on offer, and the kubelet's answers.

    Each question that fails is an issue, of the probes ``podresources``, ``pods``, ``slices``,
    ``node``, ``rights`` and ``kubelet``.
    """
    from agent.probes.pods.cgroups import with_cgroups  # noqa: PLC0415
    from agent.probes.pods.uids import uids_by_holdings  # noqa: PLC0415

    issues: list[ProbeIssue] = []

    def ask(probe: str, subject: str, question: Callable[[], _Answer]) -> _Answer | None:
        """Return the answer, or ``None`` and note why: each question stands alone."""
        try:
            return question()
        except AgentError as error:
            issues.append(ProbeIssue(probe=probe, subject=subject, reason=error.cause))
            return None

    found = snapshot
    if settings.kubelet_url is not None:
        from agent.probes.kubelet.api import (  # noqa: PLC0415
            kubelet_at,
            settings_from_configz,
            with_running,
        )
        from agent.probes.kubelet.metrics import metrics_from_text  # noqa: PLC0415

        kubelet = kubelet_at(
            settings.kubelet_url, settings.kubelet_ca_file, insecure=settings.kubelet_insecure_tls
        )
        running = ask("kubelet", "configz", lambda: settings_from_configz(kubelet.configz()))
        metrics = ask("kubelet", "metrics", lambda: metrics_from_text(kubelet.metrics()))
        found = replace(with_running(found, running), kubelet_metrics=metrics)

    from agent.kubeapi.pods import AUDITED_RIGHTS, ApiServer  # noqa: PLC0415 - the API client is heavy

    server = ask("pods", "API server", lambda: ApiServer(settings.kubeconfig))
    if server is not None:
        name = settings.node_name
        found = replace(
            found,
            pods=ask("pods", "API server", lambda: server.pods(name)),
            published=ask("slices", "API server", lambda: server.published(name)),
            node_status=ask("node", "API server", lambda: server.node(name)),
            agent_rights=ask(
                "rights", "API server", lambda: server.agent_rights(name, AUDITED_RIGHTS)
            ),
        )

    from agent.probes.kubelet.podresources import PodResources  # noqa: PLC0415 - grpc: 21 MiB

    with closing(PodResources(settings.pod_resources_socket)) as resources:
        assigned = ask("podresources", "kubelet", resources.assigned)
        if assigned is not None:
            offer = ask("podresources", "kubelet", resources.offer)
            found = replace(found, offer=offer, pods=join(found.pods, assigned))

    pods = found.pods
    if pods is not None:
        uids = uids_by_holdings(pods, found.kubelet_state)
        pods = with_cgroups(settings.sysfs_root, pods, uids)
    return replace(
        found,
        pods=pods,
        kubelet=_with_version(found.kubelet, found.node_status),
        kubelet_on_disk=_with_version(found.kubelet_on_disk, found.node_status),
        issues=(*found.issues, *issues),
    )


def join(
    specified: tuple[Pod, ...] | None, assigned: tuple[Pod, ...] | None
) -> tuple[Pod, ...] | None:
    """Return *specified* pods with what was *assigned* to their containers, then the others."""
    from agent.kubeapi.pods import joined  # noqa: PLC0415

    if specified is None or assigned is None:
        return assigned if specified is None else specified
    return joined(specified, assigned)


def _with_version(
    settings: KubeletSettings | None, node: NodeStatus | None
) -> KubeletSettings | None:
    """Return *settings* with the version that the node reports, if they have none."""
    if settings is None or settings.version is not None or node is None:
        return settings
    return replace(settings, version=node.kubelet_version)
