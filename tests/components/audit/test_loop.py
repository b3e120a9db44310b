"""The audit of the node in the daemon: what it reads, what it finds, and when it logs."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from nodetopo.checks.waivers import NO_OVERRIDES
from nodetopo.components.audit import health_loop
from nodetopo.components.audit.alignment.loop import AlignmentLoop
from nodetopo.components.audit.catalogue import AUDIT
from nodetopo.components.audit.check_terms import OverridesFile, summarize
from nodetopo.components.audit.loop import AUDIT_S, AuditLoop
from nodetopo.errors import (
    AgentError,
    ApiUnavailable,
    DecodeError,
    InputError,
    NvmlUnavailable,
    UnreadableError,
)
from nodetopo.kernel.running_pods import RunningPods
from nodetopo.kernel.settings.declare import Settings
from nodetopo.kernel.store import SnapshotStore
from nodetopo.machines.bundled import machine
from nodetopo.model.kubelet import CONFIGZ, KubeletSettings
from nodetopo.model.snapshot import Snapshot
from nodetopo.probes.discover import Roots, discover
from nodetopo.probes.nvml.record import NvmlReading
from tests.compose.sysfs import unpack_whole
from tests.deviceplugin.machines import NODES, node

SHAPE = "h100x8-nvswitch-2numa-8cx7"
H100 = node(SHAPE)
RUNNING = KubeletSettings(source=CONFIGZ, topology_manager_policy="none", cpu_manager_policy="none")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """All files of the machine."""
    unpack_whole(NODES / SHAPE, tmp_path)
    return tmp_path


def with_files(root: Path, store: SnapshotStore) -> AuditLoop:
    settings = Settings(
        node_name="gpu-1",
        sysfs_root=root / "sys",
        procfs_root=root / "proc",
        host_root=root,
        pod_resources_socket=root / "none.sock",
    )
    return AuditLoop(settings, store, OverridesFile(None))


def with_read(read: Callable[[Snapshot], Snapshot]) -> tuple[AuditLoop, SnapshotStore]:
    store = SnapshotStore()
    audit = AuditLoop(Settings(node_name="gpu-1"), store, OverridesFile(None), read=read)
    return audit, store


@pytest.mark.parametrize(
    ("error", "is_bug"),
    [
        (AgentError("a", "b"), False),
        (InputError("a", "b"), False),
        (DecodeError("a", "b"), False),
        (UnreadableError("a", "b"), False),
        (NvmlUnavailable("a", "b"), False),
        (ApiUnavailable("a", "b"), False),
        (ZeroDivisionError("a"), True),
        (OSError(5, "a"), True),
    ],
)
def test_only_what_nobody_foresaw_is_called_a_bug(
    error: Exception, is_bug: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> Snapshot:
        raise error

    store = SnapshotStore()
    store.publish(H100)
    monkeypatch.setattr(health_loop, "summarize", fails)
    settings = Settings(node_name="gpu-1")
    loops = (
        AuditLoop(settings, store, OverridesFile(None), read=fails),
        health_loop.HealthLoop(store, OverridesFile(None)),
        AlignmentLoop(settings, store, post=None, read=fails),
    )
    for loop in loops:
        with capture_logs() as lines:
            for _ in range(10):
                loop.step()
        (line,) = lines  # once, however long it lasts
        assert ("a bug in nodetopo" in str(line)) is is_bug
        assert bool(line.get("exc_info")) is is_bug


def test_nothing_is_found_before_the_node_was_read() -> None:
    audit, store = with_read(lambda snapshot: snapshot)
    assert 0 < audit.step() < AUDIT_S
    assert not audit.found
    store.publish(H100)
    assert (audit.step(), audit.found) == (AUDIT_S, summarize(H100, AUDIT, NO_OVERRIDES))


def test_it_finds_what_a_whole_reading_finds_but_for_pods(root: Path) -> None:
    roots = Roots(sysfs=root / "sys", procfs=root / "proc", host=root)
    scans = [
        discover(
            roots,
            lambda: NvmlReading(gpus=H100.gpus),
            node="gpu-1",
            captured_at=None,
            counters=full,
        )
        for full in (False, True)
    ]
    store = SnapshotStore()
    store.publish(scans[0])
    audit = with_files(root, store)
    audit.step()
    assert audit.found == summarize(replace(scans[1], pods=None), AUDIT, NO_OVERRIDES)
    assert audit.found != summarize(scans[0], AUDIT, NO_OVERRIDES)


def test_the_running_kubelets_settings_are_in_force_beside_its_files(root: Path) -> None:
    store = SnapshotStore()
    store.publish(replace(H100, kubelet=RUNNING, pods=None, offer=None))
    audit = with_files(root, store)
    audit.step()
    assert audit.found is not None
    assert audit.found.broken["KUB-003"] == "fail"  # of what runs, not of what the files say
    assert "KUB-024" in audit.found.broken  # that they differ


def test_one_line_for_each_change_of_what_is_broken() -> None:
    now = [H100]
    audit, store = with_read(lambda _: now[-1])
    store.publish(H100)
    with capture_logs() as logs:
        audit.step()
        audit.step()
        now.append(replace(H100, kubelet=RUNNING))
        audit.step()
        audit.step()
    assert [(line["event"], line["log_level"]) for line in logs] == [("node audited", "info")] * 2
    assert audit.found is not None
    assert logs[1]["broken"] == sorted(audit.found.broken)
    assert "KUB-003" in logs[1]["broken"]
    assert logs[1]["fail"] > logs[0]["fail"]


def test_the_first_audit_is_logged_though_nothing_is_broken() -> None:
    sound = machine("dgx-h100")
    audit, store = with_read(lambda _: sound)
    store.publish(sound)
    with capture_logs() as logs:
        audit.step()
    assert [(line["event"], line["broken"]) for line in logs] == [("node audited", [])]


def test_it_judges_on_the_terms_of_its_file(tmp_path: Path) -> None:
    checks = tmp_path / "checks.yaml"
    checks.write_text("severities: {KUB-003: warning}", "utf-8")
    terms, store = OverridesFile(checks), SnapshotStore()
    store.publish(replace(H100, kubelet=RUNNING))
    audit = AuditLoop(Settings(node_name="gpu-1"), store, terms, read=lambda snapshot: snapshot)
    audit.step()
    assert audit.found is not None
    assert audit.found.broken["KUB-003"] == "warn"


def test_a_kubelet_that_does_not_answer_is_an_issue_beside_the_others(root: Path) -> None:
    found = with_files(root, SnapshotStore())._read(node("h100x8-nvswitch-2numa-broken"))
    *others, last = found.issues
    assert (last.probe, last.subject) == ("podresources", "kubelet")
    assert str(root / "none.sock") in last.reason
    assert len(others) >= len(node("h100x8-nvswitch-2numa-broken").issues) > 0


def test_a_bug_of_ours_is_logged_once_and_again_after_a_success() -> None:
    a, b = KeyError("a"), KeyError("b")
    bugs = [a, a, b, None, b]

    def read(snapshot: Snapshot) -> Snapshot:
        if (bug := bugs.pop(0)) is not None:
            raise bug
        return snapshot

    audit, store = with_read(read)
    store.publish(H100)
    with capture_logs() as logs:
        while bugs:
            audit.step()
    assert [line.get("exc_info") for line in logs] == [a, b, None, b]
    assert [line.get("problem") for line in logs] == [repr(a), repr(b), None, repr(b)]


def test_a_bug_of_ours_leaves_the_result_unknown_and_ends_nothing() -> None:
    def read(snapshot: Snapshot) -> Snapshot:
        if store.current is not None and store.current.generation > 1:
            raise ZeroDivisionError("a bug")
        return snapshot

    audit, store = with_read(read)
    store.publish(H100)
    audit.step()
    assert audit.found is not None
    store.publish(replace(H100, node="other"))
    with capture_logs() as logs:
        assert [audit.step(), audit.step()] == [AUDIT_S] * 2
    assert [(line["log_level"], line["problem"]) for line in logs] == [
        ("error", "ZeroDivisionError('a bug')")
    ]
    assert not audit.found


def test_it_ends_at_a_stop_and_closes_the_kubelet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    left = []

    def close(held: RunningPods) -> None:
        left.append(held)

    monkeypatch.setattr(RunningPods, "close", close)
    stopping, reading = threading.Event(), threading.Event()
    reads: list[Snapshot] = []

    def read(snapshot: Snapshot) -> Snapshot:
        reads.append(snapshot)
        reading.set()
        return snapshot

    audit, store = with_read(read)
    store.publish(H100)
    thread = threading.Thread(target=audit.run, args=(stopping,))
    thread.start()
    assert reading.wait(120)
    stopping.set()
    thread.join(120)
    assert not thread.is_alive()
    assert reads == [H100]
    assert len(left) == 1


def test_between_two_looks_it_waits() -> None:
    waits: list[float | None] = []

    class Stopping(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            waits.append(timeout)
            if len(waits) == 2:
                self.set()
            return self.is_set()

    audit, store = with_read(lambda snapshot: snapshot)
    store.publish(H100)
    audit.run(Stopping())
    assert waits == [AUDIT_S, AUDIT_S]
