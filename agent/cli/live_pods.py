"""What the kubelet and the API server tell of a live node, beside its hardware and files."""

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from typing import TypeVar

from agent.config import Settings
from agent.errors import AgentError
from agent.model.kubelet import KubeletSettings
from agent.model.node import NodeStatus
from agent.model.pod import Pod
from agent.model.snapshot import ProbeIssue, Snapshot

_Answer = TypeVar("_Answer")


class _Asking:
    """Collects what was not told, so that each question stands alone."""

    def __init__(self) -> None:
        self.issues: list[ProbeIssue] = []

    def ask(self, probe: str, subject: str, question: Callable[[], _Answer]) -> _Answer | None:
        try:
            return question()
        except AgentError as error:
            self.issues.append(ProbeIssue(probe=probe, subject=subject, reason=error.cause))
            return None


def with_pods(snapshot: Snapshot, settings: Settings) -> Snapshot:
    """Return *snapshot* with pods and their cgroups, what is on offer, and the kubelet's answers.

    What is not told is an issue of it, of the probes ``podresources``, ``pods``, ``node``,
    ``rights`` and ``kubelet``.
    """
    asking = _Asking()
    found = _of_api_server(_of_kubelet(snapshot, settings, asking), settings, asking)
    found = _of_pod_resources(found, settings, asking)
    return replace(
        found,
        pods=_with_cgroups(found, settings),
        kubelet=_with_version(found.kubelet, found.node_status),
        kubelet_on_disk=_with_version(found.kubelet_on_disk, found.node_status),
        issues=(*found.issues, *asking.issues),
    )


def _of_kubelet(snapshot: Snapshot, settings: Settings, asking: _Asking) -> Snapshot:
    """Ask the kubelet itself, if its address is known."""
    if settings.kubelet_url is None:
        return snapshot
    from agent.probes.kubelet.configz import settings_from_configz  # noqa: PLC0415 - as all here
    from agent.probes.kubelet.kubelet_answers import kubelet_at, with_running  # noqa: PLC0415
    from agent.probes.kubelet.metrics import metrics_from_text  # noqa: PLC0415

    api = kubelet_at(
        settings.kubelet_url, settings.kubelet_ca_file, insecure=settings.kubelet_insecure_tls
    )
    running = asking.ask("kubelet", "configz", lambda: settings_from_configz(api.configz()))
    metrics = asking.ask("kubelet", "metrics", lambda: metrics_from_text(api.metrics()))
    return replace(with_running(snapshot, running), kubelet_metrics=metrics)


def _of_api_server(snapshot: Snapshot, settings: Settings, asking: _Asking) -> Snapshot:
    from agent.kubeapi.pods import ApiServer  # noqa: PLC0415 - loads kubernetes: 21 MiB
    from agent.kubeapi.rights import ASKED  # noqa: PLC0415

    server = asking.ask("pods", "API server", lambda: ApiServer(settings.kubeconfig))
    if server is None:
        return snapshot
    name = settings.node_name
    return replace(
        snapshot,
        pods=asking.ask("pods", "API server", lambda: server.pods(name)),
        node_status=asking.ask("node", "API server", lambda: server.node(name)),
        agent_rights=asking.ask("rights", "API server", lambda: server.rights(ASKED)),
    )


def _of_pod_resources(snapshot: Snapshot, settings: Settings, asking: _Asking) -> Snapshot:
    from agent.probes.kubelet.podresources import PodResources  # noqa: PLC0415 - grpc: 21 MiB

    with closing(PodResources(settings.pod_resources_socket)) as kubelet:
        given = asking.ask("podresources", "kubelet", kubelet.assigned)
        if given is None:
            return snapshot
        offer = asking.ask("podresources", "kubelet", kubelet.offer)
    return replace(snapshot, offer=offer, pods=join(snapshot.pods, given))


def join(
    specified: tuple[Pod, ...] | None, assigned: tuple[Pod, ...] | None
) -> tuple[Pod, ...] | None:
    """Return *specified* pods with what was *assigned* to their containers, then the others."""
    from agent.kubeapi.pods import joined  # noqa: PLC0415

    if specified is None or assigned is None:
        return assigned if specified is None else specified
    return joined(specified, assigned)


def _with_cgroups(snapshot: Snapshot, settings: Settings) -> tuple[Pod, ...] | None:
    from agent.probes.pods.cgroups import with_cgroups  # noqa: PLC0415
    from agent.probes.pods.uids import uids_by_holdings  # noqa: PLC0415

    if snapshot.pods is None:
        return None
    uids = uids_by_holdings(snapshot.pods, snapshot.kubelet_state)
    return with_cgroups(settings.sysfs_root, snapshot.pods, uids)


def _with_version(
    settings: KubeletSettings | None, node: NodeStatus | None
) -> KubeletSettings | None:
    """Return *settings* with the version that the node reports, if they have none."""
    if settings is None or settings.version is not None or node is None:
        return settings
    return replace(settings, version=node.kubelet_version)
