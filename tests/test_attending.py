"""Which loops judge the node and follow pods, by what the settings ask for."""

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from agent.attending import Attending, attending
from agent.config.settings import Settings
from agent.judging import TermsFile
from agent.store import SnapshotStore

NOTHING = Settings(node_name="gpu-1", audit_node=False, measure_pods=False)


def with_settings(**wanted: bool) -> Attending:
    settings = replace(NOTHING, **wanted)  # type: ignore[arg-type]
    return attending(settings, SnapshotStore(), TermsFile(None))


def loops(found: Attending) -> list[str]:
    return [name for name, _ in found.loops()]


def test_what_nobody_asks_for_is_not_wanted() -> None:
    assert not NOTHING.attends
    assert loops(with_settings()) == []


@pytest.mark.parametrize(
    "name", ["audit_node", "measure_pods", "publish_pod_events", "explain_rejections"]
)
def test_each_setting_alone_is_reason_enough(name: str) -> None:
    assert replace(NOTHING, **{name: True}).attends  # type: ignore[arg-type]


def test_the_node_is_judged_unless_told_otherwise_and_nothing_is_written() -> None:
    assert Settings(node_name="gpu-1").audit_node
    found = with_settings(audit_node=True)
    assert loops(found) == ["audit"]
    assert (found.auditing, found.rejections, found.events) == (None, None, None)


def test_measuring_is_on_unless_told_otherwise_and_writes_nothing() -> None:
    assert Settings(node_name="gpu-1").attends
    found = with_settings(measure_pods=True)
    assert loops(found) == ["pods"]
    assert (found.rejections, found.events) == (None, None)


def test_events_about_pods_take_measuring_with_them() -> None:
    found = with_settings(publish_pod_events=True)
    assert loops(found) == ["pods", "pod events"]
    assert found.rejections is None


def test_explaining_rejections_watches_and_writes_and_measures_nothing() -> None:
    found = with_settings(explain_rejections=True)
    assert loops(found) == ["rejections", "rejected pods", "pod events"]
    assert found.auditing is None


def test_all_of_it_shares_one_writer_and_with_it_one_budget() -> None:
    found = with_settings(measure_pods=True, publish_pod_events=True, explain_rejections=True)
    assert loops(found) == ["pods", "rejections", "rejected pods", "pod events"]


def test_a_misaligned_pod_has_no_event_where_only_rejections_are_asked_for() -> None:
    quiet = with_settings(measure_pods=True, explain_rejections=True)
    loud = with_settings(measure_pods=True, publish_pod_events=True)
    assert (quiet.auditing, loud.auditing) != (None, None)
    assert quiet.auditing is not None
    assert quiet.auditing.post is None
    assert loud.auditing is not None
    assert loud.events is not None
    assert loud.auditing.post == loud.events.post


@pytest.mark.timeout(60)
def test_every_loop_ends_when_it_is_told_to(tmp_path: Path) -> None:
    settings = replace(
        NOTHING,
        audit_node=True,
        publish_pod_events=True,
        explain_rejections=True,
        kubeconfig=tmp_path / "none",
        pod_resources_socket=tmp_path / "none.sock",
    )
    stopping = threading.Event()
    found = attending(settings, SnapshotStore(), TermsFile(None))
    threads = [threading.Thread(target=run, args=(stopping,)) for _, run in found.loops()]
    for thread in threads:
        thread.start()
    stopping.set()
    for thread in threads:
        thread.join(30)
    assert not any(thread.is_alive() for thread in threads)
