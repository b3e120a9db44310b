"""What the daemon tells of itself while things change."""

import os
import threading
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from agent import judging
from agent.attending import attending
from agent.checks.catalogue import AUDIT
from agent.checks.rule import Severity
from agent.checks.terms import USUAL, Terms, Waiver
from agent.config.settings import Settings
from agent.errors import InputError
from agent.judging import TermsFile, judged
from agent.model.nvml_event import NvmlStatus
from agent.scene import Machine, Scene
from agent.store import SnapshotStore
from agent.telling import Telling
from tests.kubelet.eventually import eventually
from tests.kubelet.machines import node
from tests.offerings import Played, playing

WHOLE = node("h100x8-nvswitch-2numa-8cx7")
GPU = "nvidia.com/gpu"


def telling(
    played: Played,
    store: SnapshotStore,
    settings: list[Settings],
    terms: Sequence[Terms] = (USUAL,),
) -> Telling:
    """Return what tells of *played* and *store*; the last of *settings* and *terms* is in force."""
    machine = Machine(read=lambda: WHOLE, reread=lambda: None, nvml=NvmlStatus)
    return Telling(
        settings=lambda: settings[-1],
        scene=Scene(machine=machine, simulated=None, socket_dir=played.directory),
        store=store,
        terms=lambda: terms[-1],
        offering=played.offering,
        health=None,
        labelling=None,
        zoning=None,
        attending=lambda: None,
        events=None,
        reloader=None,
    )


def test_a_node_that_was_read_is_not_ready_before_its_gpus_are_offered() -> None:
    store = SnapshotStore()
    with playing() as played:
        told = telling(played, store, [Settings(node_name="n")])
        assert told.state().not_ready == "NotScanned: the node has not been read yet"
        store.publish(WHOLE)
        assert told.state().not_ready is not None
        played.offering.take(WHOLE)
        played.listed(GPU)
        assert eventually(lambda: told.state().not_ready is None)


def test_a_node_whose_gpus_are_all_refused_is_not_ready_and_says_why() -> None:
    with playing(mig_strategy="single") as played:
        told = telling(played, SnapshotStore(), [Settings(node_name="n")])
        played.offering.take(node("h100x8-nvswitch-2numa-mig"))
        (line,) = str(told.state().not_ready).splitlines()
        assert line.startswith("NotOffered: ")
        assert "in MIG mode without a MIG device: GPU2" in line


def test_the_resource_that_is_missing_is_that_of_the_settings_in_force() -> None:
    settings = [Settings(node_name="n")]
    with playing() as played:
        told = telling(played, SnapshotStore(), settings)
        assert dict(told.state().is_registered) == {GPU: False}
        settings.append(Settings(node_name="n", resource_name="acme.com/gpu"))
        assert dict(told.state().is_registered) == {"acme.com/gpu": False}


def test_waivers_of_the_terms_count_and_end_with_them() -> None:
    store = SnapshotStore()
    store.publish(node("h100x8-nvswitch-2numa-broken"))
    terms = [USUAL]
    with playing() as played:
        told = telling(played, store, [Settings(node_name="n")], terms)
        usual = told.state()
        code = next(iter(usual.checks_broken["health"]))
        waiver = Waiver(code=code, reason="known", until=date(2026, 11, 21))
        terms.append(Terms(waivers=(waiver,), today=date(2026, 11, 21)))
        assert told.state().check_counts["health"]["waived"] == 1
        assert code not in told.state().checks_broken["health"]
        terms.append(Terms(waivers=(waiver,), today=date(2026, 11, 22)))
        assert told.state().check_counts == usual.check_counts


def test_a_file_of_terms_counts_as_soon_as_it_may_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "checks.yaml"
    path.write_text("{}", "utf-8")
    terms = TermsFile(path)
    with monkeypatch.context() as forbidden, capture_logs() as logs:

        def refuse(*_: object) -> Terms:
            raise InputError(f"cannot read {path}: Permission denied", "check the path")

        forbidden.setattr(judging, "_load", refuse)
        path.write_text("severities: {KUB-004: info}", "utf-8")
        path.chmod(0o000)
        assert [dict(terms.terms().severities) for _ in range(2)] == [{}, {}]
        before = path.stat()
        while path.stat().st_ctime_ns == before.st_ctime_ns:  # the clock of files is coarse
            path.chmod(0o444)
    assert len(logs) == 1
    assert dict(terms.terms().severities) == {"KUB-004": Severity.INFO}


def test_a_file_of_terms_that_is_only_touched_is_no_news(tmp_path: Path) -> None:
    path, good = tmp_path / "checks.yaml", "severities: {KUB-004: info}"
    path.write_text(good, "utf-8")
    terms = TermsFile(path, today=lambda: date(2026, 11, 21))
    with capture_logs() as logs:
        for seconds, text in enumerate((good, "loud", "loud", good, good, "loud")):
            path.write_text(text, "utf-8")
            os.utime(path, (seconds, seconds))
            assert dict(terms.terms().severities) == {"KUB-004": Severity.INFO}
    said = ["checks-file not taken", "checks-file taken", "checks-file not taken"]
    assert [line["event"] for line in logs] == said


def test_who_read_an_older_file_of_terms_does_not_have_the_last_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "checks.yaml"
    path.write_text("{}", "utf-8")
    terms, load, texts = TermsFile(path), judging._load, ["severities: {KUB-005: info}"]
    newer = threading.Thread(target=terms.terms)

    def changed_meanwhile(*asked: Any) -> Terms:
        found = load(*asked)
        if texts:
            path.with_suffix(".new").write_text(texts.pop(), "utf-8")
            path.with_suffix(".new").replace(path)
            newer.start()
            newer.join(0.5)  # it has to wait for us
        return found

    monkeypatch.setattr(judging, "_load", changed_meanwhile)
    path.write_text("severities: {KUB-004: info}", "utf-8")
    terms.terms()
    newer.join()
    assert dict(terms.terms().severities) == {"KUB-005": Severity.INFO}


def test_the_audit_is_told_once_there_is_one() -> None:
    settings = Settings(node_name="n", measure_pods=False)
    store = SnapshotStore()
    store.publish(WHOLE)
    found = attending(settings, store, TermsFile(None))
    assert found.node is not None
    with playing() as played:
        told = replace(telling(played, store, [settings]), attending=lambda: found)
        assert set(told.state().check_counts) == {"health"}
        found.node.found = judged(replace(WHOLE, kubelet=None), AUDIT, USUAL)
        assert set(told.state().check_counts) == {"health", "audit"}
        assert told.state().check_counts["audit"] == found.node.found.counts
        assert told.state().checks_broken["audit"] == found.node.found.broken


def test_the_verdicts_of_the_checks_are_those_of_the_latest_snapshot() -> None:
    store = SnapshotStore()
    with playing() as played:
        told = telling(played, store, [Settings(node_name="n")])
        assert told.state().check_counts == {}
        store.publish(WHOLE)
        sound = told.state().check_counts["health"]
        store.publish(node("h100x8-nvswitch-2numa-broken"))
        broken = told.state().check_counts["health"]

        assert (sound["fail"], told.state().check_counts["health"]) == (0, broken)
        assert broken["fail"] > 0
