"""The live node, read once."""

from argparse import Namespace
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TypeVar

from agent.cli.files import STDIO, read_text
from agent.cli.output import progress
from agent.config import Settings
from agent.config.settings import roots
from agent.errors import AgentError, InputError, NvmlUnavailable
from agent.kubeapi.pods import pods_from_manifest
from agent.model.kubelet import KubeletSettings
from agent.model.node import NodeStatus
from agent.model.pod import Pod
from agent.model.snapshot import ProbeIssue, Snapshot
from agent.probes.capture.raw import RawCapture, capture_raw
from agent.probes.discover import discover
from agent.probes.nvml.reading import NvmlReading
from agent.probes.nvml.supervisor import NvmlSupervisor

# What the kubelet and the API server tell of a live node, beside its hardware and files.

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
    from agent.probes.kubelet.api import (  # noqa: PLC0415
        kubelet_at,
        settings_from_configz,
        with_running,
    )
    from agent.probes.kubelet.metrics import metrics_from_text  # noqa: PLC0415

    api = kubelet_at(
        settings.kubelet_url, settings.kubelet_ca_file, insecure=settings.kubelet_insecure_tls
    )
    running = asking.ask("kubelet", "configz", lambda: settings_from_configz(api.configz()))
    metrics = asking.ask("kubelet", "metrics", lambda: metrics_from_text(api.metrics()))
    return replace(with_running(snapshot, running), kubelet_metrics=metrics)


def _of_api_server(snapshot: Snapshot, settings: Settings, asking: _Asking) -> Snapshot:
    from agent.kubeapi.pods import ASKED, ApiServer  # noqa: PLC0415 - the API client is heavy

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


# The pods of a manifest that a flag names.


def pods_of_manifest(args: Namespace) -> tuple[Pod, ...]:
    """Return the pods of the file that ``--manifest`` names, a controller's template as one pod.

    Raises:
        InputError: it cannot be read, is no manifest, holds no pod, or is standard input, which
            the node is to be read from.
    """
    name: str = args.manifest
    if name == STDIO and STDIO in (args.snapshot, args.topo_m, args.nccl_xml):
        raise InputError("standard input is named twice", "save one of them in a file")
    text = read_text(name)
    try:
        return pods_from_manifest(text)
    except InputError as error:
        raise InputError(f"{name}: {error.cause}", error.cure) from None


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
