"""What the kubelet answered itself, in the place of what its files say."""

from dataclasses import replace
from pathlib import Path

from agent.model.kubelet import KubeletSettings
from agent.model.snapshot import Snapshot
from agent.probes.kubelet.api import KubeletApi

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where a pod finds its account: ``token``, and ``ca.crt`` of the cluster's authority
(https://kubernetes.io/docs/tasks/run-application/access-api-from-pod/)."""


def kubelet_at(url: str, ca_file: Path | None, *, insecure: bool) -> KubeletApi:
    """Return the kubelet at *url*, spoken to by the account of the own pod."""
    return KubeletApi(
        url=url,
        token_file=SERVICE_ACCOUNT / "token",
        ca_file=ca_file or SERVICE_ACCOUNT / "ca.crt",
        insecure=insecure,
    )


def with_running(snapshot: Snapshot, running: KubeletSettings | None) -> Snapshot:
    """Return *snapshot* with the settings that the kubelet runs with, if it told them.

    What only files and flags tell is kept beside: where the kubelet keeps its files, what it is
    a part of, its version.
    """
    on_disk = snapshot.kubelet_on_disk or snapshot.kubelet
    if running is None or on_disk is None:
        return replace(snapshot, kubelet=running or snapshot.kubelet, kubelet_on_disk=on_disk)
    known = replace(
        running,
        embedded_in=on_disk.embedded_in,
        root_directory=on_disk.root_directory,
        version=running.version or on_disk.version,
    )
    return replace(snapshot, kubelet=known, kubelet_on_disk=on_disk)
