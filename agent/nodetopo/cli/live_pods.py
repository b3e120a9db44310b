"""Reads the live node's pods from the kubelet and the API server."""

from collections.abc import Callable
from contextlib import closing
from typing import TypeVar

from msgspec.structs import replace

from nodetopo.errors import AgentError
from nodetopo.kernel.settings.own import KernelSettings
from nodetopo.kubeapi.pods import AUDITED_RIGHTS, ApiServer, joined
from nodetopo.model.kubelet import KubeletSettings
from nodetopo.model.node import NodeStatus
from nodetopo.model.pod import Pod
from nodetopo.model.probe_issue import ProbeIssue
from nodetopo.model.snapshot import Snapshot
from nodetopo.probes.kubelet.api import kubelet_at, settings_from_configz, with_running
from nodetopo.probes.kubelet.metrics import metrics_from_text
from nodetopo.probes.kubelet.podresources import PodResources
from nodetopo.probes.pods.cgroups import with_cgroups
from nodetopo.probes.pods.uids import uids_by_holdings

_Answer = TypeVar("_Answer")


def with_pods(snapshot: Snapshot, settings: KernelSettings) -> Snapshot:
    """Return *snapshot* with pods and cgroups, allocatable resources, and kubelet answers.

    Each failed question is an issue, of the probes ``podresources``, ``pods``, ``slices``,
    ``node``, ``rights`` and ``kubelet``.
    """
    issues: list[ProbeIssue] = []

    def ask(probe: str, subject: str, question: Callable[[], _Answer]) -> _Answer | None:
        """Return the answer, or ``None`` and note why: each question is independent."""
        try:
            return question()
        except AgentError as error:
            issues.append(ProbeIssue(probe=probe, subject=subject, reason=error.cause))
            return None

    completed = snapshot
    if settings.kubelet_url is not None:
        kubelet = kubelet_at(
            settings.kubelet_url, settings.kubelet_ca_file, insecure=settings.kubelet_insecure_tls
        )
        running = ask("kubelet", "configz", lambda: settings_from_configz(kubelet.configz()))
        metrics = ask("kubelet", "metrics", lambda: metrics_from_text(kubelet.metrics()))
        completed = replace(with_running(completed, running), kubelet_metrics=metrics)

    server = ask("pods", "API server", lambda: ApiServer(settings.kubeconfig))
    if server is not None:
        name = settings.node_name
        completed = replace(
            completed,
            pods=ask("pods", "API server", lambda: server.pods(name)),
            published=ask("slices", "API server", lambda: server.published(name)),
            node_status=ask("node", "API server", lambda: server.node(name)),
            agent_rights=ask(
                "rights", "API server", lambda: server.agent_rights(name, AUDITED_RIGHTS)
            ),
        )

    with closing(PodResources(settings.pod_resources_socket)) as resources:
        assigned = ask("podresources", "kubelet", resources.assigned)
        if assigned is not None:
            offer = ask("podresources", "kubelet", resources.offer)
            completed = replace(completed, offer=offer, pods=join(completed.pods, assigned))

    pods = completed.pods
    if pods is not None:
        uids = uids_by_holdings(pods, completed.kubelet_state)
        pods = with_cgroups(settings.sysfs_root, pods, uids)
    return replace(
        completed,
        pods=pods,
        kubelet=_with_version(completed.kubelet, completed.node_status),
        kubelet_on_disk=_with_version(completed.kubelet_on_disk, completed.node_status),
        issues=(*completed.issues, *issues),
    )


def join(
    specified: tuple[Pod, ...] | None, assigned: tuple[Pod, ...] | None
) -> tuple[Pod, ...] | None:
    """Return *specified* pods with their containers' *assigned* resources, then the others."""
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
