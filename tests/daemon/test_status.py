"""The status of the daemon while things change."""

import os
import threading
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from agent.checks.catalogue import AUDIT
from agent.checks.rule import Severity
from agent.checks.waivers import NO_OVERRIDES, Overrides, Waiver
from agent.config.data_files import load_checks
from agent.config.settings import Settings
from agent.daemon import check_terms
from agent.daemon import status as status_module
from agent.daemon.alignment_loop import MeasuredPods
from agent.daemon.check_terms import CheckSummary, OverridesFile, summarize
from agent.daemon.components import Components
from agent.daemon.pod_loops import pod_loops
from agent.daemon.status import READ_S, Status
from agent.daemon.target import Machine, Target
from agent.deviceplugin.cdi import OWN_KIND
from agent.errors import InputError
from agent.model.nvml_event import NvmlStatus
from agent.store import SnapshotStore
from tests.daemon.plugin_sets import ServedNode, serving_node
from tests.daemon.test_pod_loops import ignored
from tests.deviceplugin.eventually import eventually
from tests.deviceplugin.machines import node

WHOLE = node("h100x8-nvswitch-2numa-8cx7")
GPU = "nvidia.com/gpu"
_REASON = "CdiNotWritten"


class FixedOverrides(OverridesFile):
    """Overrides that a test sets; the last are in force."""

    def __init__(self, terms: Sequence[Overrides]) -> None:
        super().__init__(None)
        self._of_test = terms

    def current(self) -> Overrides:
        """Return the overrides in force."""
        return self._of_test[-1]


def status_of(
    served: ServedNode,
    store: SnapshotStore,
    settings: Settings,
    terms: Sequence[Overrides] = (NO_OVERRIDES,),
) -> Status:
    """Return the status of *served* and *store*, with the last of *terms* in force."""
    machine = Machine(read=lambda: WHOLE, reread=lambda: None, nvml=NvmlStatus)
    return Status(
        Components(
            settings=settings,
            target=Target(machine=machine, simulated=None, socket_dir=served.directory),
            store=store,
            plugins=served.plugins,
            overrides=FixedOverrides(terms),
        )
    )


def test_a_node_that_was_read_is_not_ready_before_its_gpus_are_offered() -> None:
    store = SnapshotStore()
    with serving_node() as served:
        status = status_of(served, store, Settings(node_name="n"))
        assert status.state().not_ready == "NotScanned: the node has not been read yet"
        store.publish(WHOLE)
        assert status.state().not_ready is not None
        served.plugins.take(WHOLE)
        served.listed(GPU)
        assert eventually(lambda: status.state().not_ready is None)


def test_a_node_whose_gpus_are_all_refused_is_not_ready_and_says_why() -> None:
    with serving_node(mig_strategy="single") as served:
        status = status_of(served, SnapshotStore(), Settings(node_name="n"))
        served.plugins.take(node("h100x8-nvswitch-2numa-mig"))
        (line,) = str(status.state().not_ready).splitlines()
        assert line.startswith("NotOffered: ")
        assert "in MIG mode without a MIG device: GPU2" in line


def test_a_node_whose_gpus_no_container_could_use_is_not_ready_and_says_why(
    tmp_path: Path,
) -> None:
    settings: dict[str, Any] = {"cdi_spec": "write", "cdi_kind": OWN_KIND, "host_root": tmp_path}
    with serving_node(**settings) as served:
        status = status_of(served, SnapshotStore(), Settings(node_name="n", **settings))
        served.plugins.take(WHOLE)
        served.listed(GPU)

        def reasons() -> list[str]:
            return str(status.state().not_ready).splitlines()

        assert eventually(lambda: [line.partition(": ")[0] for line in reasons()] == [_REASON])
        assert status.state().devices == {GPU: {"healthy": 0, "unhealthy": 8}}


def test_the_resource_that_is_missing_is_that_of_the_settings_in_force() -> None:
    with serving_node() as served:
        status = status_of(served, SnapshotStore(), Settings(node_name="n"))
        assert dict(status.state().is_registered) == {GPU: False}
        status.components.settings = Settings(node_name="n", resource_name="acme.com/gpu")
        assert dict(status.state().is_registered) == {"acme.com/gpu": False}


def test_waivers_count_until_they_end() -> None:
    store = SnapshotStore()
    store.publish(node("h100x8-nvswitch-2numa-broken"))
    terms = [NO_OVERRIDES]
    with serving_node() as served:
        status = status_of(served, store, Settings(node_name="n"), terms)
        status.loop.step()
        usual = status.state()
        code = next(iter(usual.checks_broken["health"]))
        waiver = Waiver(code=code, reason="known", until=date(2026, 11, 21))
        terms.append(Overrides(waivers=(waiver,), today=date(2026, 11, 21)))
        status.loop.step()
        assert status.state().check_counts["health"]["waived"] == 1
        assert code not in status.state().checks_broken["health"]
        terms.append(Overrides(waivers=(waiver,), today=date(2026, 11, 22)))
        status.loop.step()
        assert status.state().check_counts == usual.check_counts


def test_a_checks_file_counts_as_soon_as_it_is_readable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "checks.yaml"
    path.write_text("{}", "utf-8")
    terms = OverridesFile(path)
    with monkeypatch.context() as forbidden, capture_logs() as logs:

        def refuse(*_: object) -> Overrides:
            raise InputError(f"cannot read {path}: Permission denied", "check the path")

        forbidden.setattr(check_terms, "load_checks", refuse)
        path.write_text("severities: {KUB-004: info}", "utf-8")
        path.chmod(0o000)
        assert [dict(terms.current().severities) for _ in range(2)] == [{}, {}]
        before = path.stat()
        while path.stat().st_ctime_ns == before.st_ctime_ns:  # the clock of files is coarse
            path.chmod(0o444)
    assert [line["event"] for line in logs] == ["checks-file not taken"]
    assert dict(terms.current().severities) == {"KUB-004": Severity.INFO}


def test_a_checks_file_that_is_only_touched_is_no_news(tmp_path: Path) -> None:
    path, good = tmp_path / "checks.yaml", "severities: {KUB-004: info}"
    path.write_text(good, "utf-8")
    terms = OverridesFile(path, today=lambda: date(2026, 11, 21))
    terms.current()
    with capture_logs() as logs:
        for seconds, text in enumerate((good, "loud", "loud", good, good, "loud")):
            path.write_text(text, "utf-8")
            os.utime(path, (seconds, seconds))
            assert dict(terms.current().severities) == {"KUB-004": Severity.INFO}
    said = ["checks-file not taken", "checks-file taken", "checks-file not taken"]
    assert [line["event"] for line in logs] == said


def test_a_thread_that_read_an_older_file_does_not_have_the_last_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "checks.yaml"
    path.write_text("{}", "utf-8")
    terms, texts = OverridesFile(path), ["severities: {KUB-005: info}"]
    newer = threading.Thread(target=terms.current)

    def changed_meanwhile(*asked: Any) -> Overrides:
        found = load_checks(*asked)
        if texts:
            path.with_suffix(".new").write_text(texts.pop(), "utf-8")
            path.with_suffix(".new").replace(path)
            newer.start()
            newer.join(0.5)  # it has to wait for us
        return found

    monkeypatch.setattr(check_terms, "load_checks", changed_meanwhile)
    path.write_text("severities: {KUB-004: info}", "utf-8")
    terms.current()
    newer.join()
    assert dict(terms.current().severities) == {"KUB-005": Severity.INFO}


def test_a_fault_in_a_check_is_logged_once_and_ends_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = SnapshotStore()
    store.publish(WHOLE)

    def broken(*_: object) -> CheckSummary:
        raise ZeroDivisionError("a rule")

    with serving_node() as served:
        status = status_of(served, store, Settings(node_name="n"))
        with monkeypatch.context() as broken_rules, capture_logs() as logs:
            broken_rules.setattr(status_module, "summarize", broken)
            assert [status.loop.step() for _ in range(2)] == [READ_S, READ_S]
            assert status.state().check_counts == {}
        status.loop.step()
        assert set(status.state().check_counts) == {"health"}
    assert [line["event"] for line in logs] == ["health not checked: a bug of ours"]


def test_what_the_process_uses_is_read_by_the_loop_alone() -> None:
    with serving_node() as served:
        status = status_of(served, SnapshotStore(), Settings(node_name="n"))
        first = status.state().process
        assert first is not None
        assert status.state().process is first
        status.loop.step()
        assert status.state().process is not first


def test_the_audit_is_in_the_status_once_there_is_one() -> None:
    settings = Settings(node_name="n", measure_pods=False)
    store = SnapshotStore()
    store.publish(WHOLE)
    found = pod_loops(settings, store, OverridesFile(None), expect=ignored)
    assert found.audit is not None
    with serving_node() as served:
        status = status_of(served, store, settings)
        status.components.pod_loops = found
        status.loop.step()
        assert set(status.state().check_counts) == {"health"}
        found.audit.found = summarize(replace(WHOLE, kubelet=None), AUDIT, NO_OVERRIDES)
        assert set(status.state().check_counts) == {"health", "audit"}
        assert status.state().check_counts["audit"] == found.audit.found.counts
        assert status.state().checks_broken["audit"] == found.audit.found.broken


def test_devices_are_counted_by_their_health() -> None:
    with serving_node() as served:
        status = status_of(served, SnapshotStore(), Settings(node_name="n"))
        served.plugins.take(WHOLE)
        served.plugins.take(replace(WHOLE, gpus=WHOLE.gpus[1:]))
        assert status.state().devices == {GPU: {"healthy": 7, "unhealthy": 1}}


def test_writes_and_explanations_are_counted(tmp_path: Path) -> None:
    settings = Settings(
        node_name="n",
        kubeconfig=tmp_path / "none",
        publish_labels=True,
        publish_zones=True,
        explain_rejections=True,
    )
    with serving_node() as served:
        status = status_of(served, SnapshotStore(), settings)
        none = status.state()
        status.components.add_publishers()
        status.components.pod_loops = found = pod_loops(
            settings, status.components.store, OverridesFile(None), expect=ignored
        )
        assert status.state() == none
        labelling, zoning = status.components.labels, status.components.zones
        assert labelling is not None
        assert zoning is not None
        assert zoning._zone_writer is not None
        assert found.alignment is not None
        assert found.rejections is not None
        lane = labelling._lanes[0]
        lane.writes, lane.errors = 1, 2
        lane.output._refused = frozenset({("key", "value")})  # type: ignore[attr-defined]
        assert zoning._zones is not None
        zoning._zones.writes, zoning._zone_writer.errors = 7, 3
        found.alignment.errors = 4
        found.rejections.explained, found.rejections.given_up = 5, 6
        counted = replace(
            none,
            publish_writes=1,
            publish_errors=2,
            publish_refused=1,
            zone_writes=7,
            zone_errors=3,
            pod_errors=4,
            rejections_explained=5,
            rejections_given_up=6,
        )
        assert status.state() == counted


def test_counters_of_components_are_in_the_status(tmp_path: Path) -> None:
    settings = Settings(
        node_name="n",
        kubeconfig=tmp_path / "none",
        publish_labels=False,
        publish_events=True,
        publish_pod_events=True,
    )
    with serving_node() as served:
        status = status_of(served, SnapshotStore(), settings)
        none = status.state()
        parts = status.components
        parts.add_events()
        parts.pod_loops = found = pod_loops(
            settings, parts.store, OverridesFile(None), expect=ignored
        )
        assert parts.events is not None
        assert found.events is not None
        assert found.alignment is not None
        parts.events._posted, found.events._posted = 1, 2
        measured = MeasuredPods(verdicts={"misaligned": 3}, reasons={"shared-cpus": 3})
        found.alignment.found = measured
        config = SimpleNamespace(name="shared")
        parts.reloader = SimpleNamespace(config=config, failures=4)  # type: ignore[assignment]
        parts.health = SimpleNamespace(view={}, counts={("GPU-1", 62): 5})  # type: ignore[assignment]
        assert status.state() == replace(
            none,
            events_posted=3,
            pods_measured=measured.verdicts,
            pods_misaligned=measured.reasons,
            config="shared",
            config_failures=4,
            xid_counts={("GPU-1", 62): 5},
        )


def test_the_verdicts_of_the_checks_are_those_of_the_latest_snapshot() -> None:
    store = SnapshotStore()
    with serving_node() as served:
        status = status_of(served, store, Settings(node_name="n"))
        status.loop.step()
        assert status.state().check_counts == {}
        store.publish(WHOLE)
        status.loop.step()
        sound = status.state().check_counts["health"]
        store.publish(node("h100x8-nvswitch-2numa-broken"))
        status.loop.step()
        broken = status.state().check_counts["health"]

        assert (sound["fail"], status.state().check_counts["health"]) == (0, broken)
        assert broken["fail"] > 0
