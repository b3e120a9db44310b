"""The loops that check the node and follow its pods, as the settings ask for them."""

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nodetopo.checks.waivers import NO_OVERRIDES
from nodetopo.cli.live_pods import with_pods
from nodetopo.components.audit.catalogue import AUDIT
from nodetopo.components.audit.check_terms import OverridesFile, summarize
from nodetopo.components.audit.component import Audit
from nodetopo.components.audit.loop import AuditLoop
from nodetopo.kernel.settings.declare import Settings
from nodetopo.kernel.store import SnapshotStore
from nodetopo.model.snapshot import Snapshot
from nodetopo.probes.discover import Roots, discover
from nodetopo.probes.kubelet.pb import podresources_pb2 as pb
from nodetopo.probes.nvml.record import NvmlReading
from tests.compose.sysfs import unpack_whole
from tests.deviceplugin.machines import NODES, node
from tests.kernel.running import added, kernel_of
from tests.probes.kubelet.test_podresources_kept import GPU, device, serving, socket

__all__ = ["socket"]

NOTHING: dict[str, Any] = {"audit_node": False, "measure_pods": False}


def with_asked(**wanted: bool) -> Audit | None:
    """Return the component where the settings ask for *wanted* and nothing else."""
    kernel = kernel_of(Path("/nonexistent"), **{**NOTHING, **wanted})
    found = added(kernel, "audit")
    assert found is None or isinstance(found, Audit)
    return found


def audit(**wanted: bool) -> Audit:
    found = with_asked(**wanted)
    assert found is not None
    return found


def loops(found: Audit) -> list[str]:
    return [name for name, _ in found.loops()]


def test_without_settings_nothing_is_audited() -> None:
    assert with_asked() is None


@pytest.mark.parametrize(
    "name", ["audit_node", "measure_pods", "publish_pod_events", "explain_rejections"]
)
def test_each_setting_alone_is_reason_enough_on_a_real_machine(name: str) -> None:
    assert with_asked(**{name: True}) is not None
    assert added(kernel_of(Path("/nonexistent"), simulated="dgx-h100"), "audit") is None
    assert added(kernel_of(Path("/nonexistent"), once=True), "audit") is None


def test_health_is_checked_where_metrics_are_served() -> None:
    kernel = kernel_of(Path("/nonexistent"), simulated="dgx-h100", **NOTHING)
    kernel.metrics_url = "http://127.0.0.1:1/metrics"
    found = added(kernel, "audit")
    assert isinstance(found, Audit)
    assert loops(found) == ["health checks"]


def test_the_audit_is_on_by_default_and_writes_nothing() -> None:
    assert Settings(node_name="gpu-1").audit_node
    found = audit(audit_node=True)
    assert loops(found) == ["audit"]
    assert (found.alignment, found.rejections, found.events) == (None, None, None)


def test_measuring_is_on_by_default_and_writes_nothing() -> None:
    assert Settings(node_name="gpu-1").measure_pods
    found = audit(measure_pods=True)
    assert loops(found) == ["pods"]
    assert (found.rejections, found.events) == (None, None)


def test_events_on_pods_turn_on_measuring() -> None:
    found = audit(publish_pod_events=True)
    assert loops(found) == ["pods", "pod events"]
    assert found.rejections is None


def test_explaining_rejections_watches_and_writes_and_measures_nothing() -> None:
    found = audit(explain_rejections=True)
    assert loops(found) == ["rejections", "rejected pods", "pod events"]
    assert found.alignment is None


def test_all_pod_loops_share_one_event_writer() -> None:
    found = audit(measure_pods=True, publish_pod_events=True, explain_rejections=True)
    assert loops(found) == ["pods", "rejections", "rejected pods", "pod events"]
    assert found.kernel.writers == [found.events]


def test_a_misaligned_pod_has_no_event_where_only_rejections_are_asked_for() -> None:
    quiet = audit(measure_pods=True, explain_rejections=True)
    loud = audit(measure_pods=True, publish_pod_events=True)
    assert quiet.alignment is not None
    assert quiet.alignment.post is None
    assert loud.alignment is not None
    assert loud.events is not None
    assert loud.alignment.post == loud.events.post


def test_every_loop_ends_at_a_stop(tmp_path: Path) -> None:
    found = added(
        kernel_of(
            tmp_path,
            audit_node=True,
            publish_pod_events=True,
            explain_rejections=True,
            pod_resources_socket=tmp_path / "none.sock",
        ),
        "audit",
    )
    assert found is not None
    stopping = threading.Event()
    threads = [threading.Thread(target=run, args=(stopping,)) for _, run in found.loops()]
    for thread in threads:
        thread.start()
    stopping.set()
    found.wake()
    for thread in threads:
        thread.join(120)
    assert not any(thread.is_alive() for thread in threads)


WORKER = pb.ContainerResources(name="worker", devices=[device("GPU-1", 0)], cpu_ids=[2, 3])
LISTED = pb.ListPodResourcesResponse(
    pod_resources=[pb.PodResources(namespace="ml", name="job-0", containers=[WORKER])]
)
HELD = {
    "PodUID": "11111111-2222-3333-4444-555555555555",
    "ContainerName": "worker",
    "ResourceName": GPU,
    "DeviceIDs": {"0": ["GPU-1"]},
    "AllocResp": "",
}


def without_offer(method: str) -> None:
    if method == "GetAllocatableResources":
        raise RuntimeError("the feature is switched off")


def silent(_method: str) -> None:
    raise RuntimeError("not now")


@pytest.mark.parametrize("asked", [str, without_offer, silent])
def test_it_judges_as_an_audit_of_a_node_without_an_api_server_does(
    tmp_path: Path, socket: Path, asked: Callable[[str], object]
) -> None:
    settings, ours, scan = audited(tmp_path, socket)
    with serving(socket, LISTED, asked=asked):
        ours.step()
        assert ours.found == summarize(with_pods(scan, settings), AUDIT, NO_OVERRIDES)


def test_the_kubelets_files_are_read_once_a_look(tmp_path: Path, socket: Path) -> None:
    _settings, ours, _scan = audited(tmp_path, socket)
    with serving(socket, LISTED):
        ours.step()
        before = ours.found
    with serving(socket, LISTED, asked=lambda _method: checkpoint(tmp_path).unlink(True)):
        ours.step()
        assert ours.found == before
        ours.step()
        assert ours.found != before


def checkpoint(root: Path) -> Path:
    return root / "var/lib/kubelet/device-plugins/kubelet_internal_checkpoint"


def audited(root: Path, socket: Path) -> tuple[Settings, AuditLoop, Snapshot]:
    """Return a node whose kubelet listens on *socket*: its audit, and a whole reading."""
    shape = "h100x8-nvswitch-2numa-8cx7"
    unpack_whole(NODES / shape, root)
    checkpoint(root).write_text(json.dumps({"Data": {"PodDeviceEntries": [HELD]}, "Checksum": 1}))
    settings = Settings(
        node_name="gpu-1",
        sysfs_root=root / "sys",
        procfs_root=root / "proc",
        host_root=root,
        pod_resources_socket=socket,
        kubeconfig=root / "none",
    )
    roots = Roots(sysfs=root / "sys", procfs=root / "proc", host=root)
    scans = [
        discover(
            roots,
            lambda: NvmlReading(gpus=node(shape).gpus),
            node="gpu-1",
            captured_at=None,
            counters=full,
        )
        for full in (False, True)
    ]
    store = SnapshotStore()
    store.publish(scans[0])
    return settings, AuditLoop(settings, store, OverridesFile(None)), scans[1]
