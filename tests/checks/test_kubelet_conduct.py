"""KUB-026, KUB-027, KUB-028: limits of pods, rights of the agent, rejections."""

from dataclasses import replace

import pytest

from agent.checks.rule import Verdict
from agent.model.kubelet import KubeletMetrics
from agent.model.pod import Pod
from tests.checks.judge import METRICS, RIGHTS, healthy, result
from tests.checks.kubelet_node import FILE, missing, node, observed


@pytest.mark.parametrize(
    ("limit", "found"), [(1024, ["1024"]), (4095, ["4095"]), (4096, []), (-1, []), (0, [])]
)
def test_few_processes_are_remarked(limit: int, found: list[str]) -> None:
    snapshot = node(pod_pids_limit=limit)
    assert observed("KUB-026", snapshot) == found
    assert result("KUB-026", snapshot).verdict is Verdict.PASS


def test_an_unread_limit_is_unknown() -> None:
    assert missing("KUB-026", node(pod_pids_limit=None)) == ("podPidsLimit",)


@pytest.mark.parametrize("right", ["get nodes/proxy", "create nodes/proxy"])
def test_each_right_to_the_proxy_is_found(right: str) -> None:
    assert observed("KUB-027", replace(healthy(), agent_rights={**RIGHTS, right: True})) == [right]


@pytest.mark.parametrize("rights", [None, {}, {"get nodes/proxy": False}])
def test_rights_that_were_not_asked_about_are_unknown(rights: dict[str, bool] | None) -> None:
    assert missing("KUB-027", replace(healthy(), agent_rights=rights)) == (
        "rights of the agent's account",
    )


def test_each_kind_of_rejection_is_found_with_its_count() -> None:
    counts = {"TopologyAffinityError": 3, "OutOfExtendedResources": 1, "Other": 9, "OutOfcpu": 2}
    snapshot = replace(healthy(), kubelet_metrics=replace(METRICS, rejections=counts))
    assert [(one.subject, one.observed) for one in result("KUB-028", snapshot).findings] == [
        ("rejections for TopologyAffinityError", "3 pods since the kubelet started"),
        ("rejections for OutOfExtendedResources", "1 pod since the kubelet started"),
    ]


def test_an_old_kubelet_counts_the_topology_managers_errors_only() -> None:
    metrics = KubeletMetrics(topology_errors=2)
    snapshot = replace(healthy(), kubelet_metrics=metrics)
    assert observed("KUB-028", snapshot) == ["2 pods since the kubelet started"]


def test_the_topology_managers_errors_are_not_counted_twice() -> None:
    metrics = KubeletMetrics(rejections={}, topology_errors=2)
    assert observed("KUB-028", replace(healthy(), kubelet_metrics=metrics)) == []


@pytest.mark.parametrize(
    ("phase", "reason", "count"),
    [
        ("Failed", "TopologyAffinityError", 1),
        ("Failed", "SMTAlignmentError", 1),
        ("Failed", "UnexpectedAdmissionError", 1),
        ("Failed", "OutOfnvidia.com/gpu", 1),
        ("Failed", "Evicted", 0),
        ("Failed", None, 0),
        ("Running", "TopologyAffinityError", 0),
    ],
)
def test_a_rejected_pod_is_named_with_the_kubelets_words(
    phase: str, reason: str | None, count: int
) -> None:
    pod = Pod(namespace="a", name="b", phase=phase, status_reason=reason, status_message="no room")
    found = result("KUB-028", replace(healthy(), pods=(pod,))).findings
    assert [(one.subject, one.observed) for one in found] == [("a/b", f"{reason}: no room")][:count]


def test_without_metrics_rejections_are_unknown() -> None:
    assert missing("KUB-028", replace(healthy(), kubelet_metrics=None)) == (
        "metrics of the kubelet",
    )


def test_a_finding_names_the_file_that_states_the_limit() -> None:
    origins = {"podPidsLimit": "--pod-max-pids", "podPidsLimitX": FILE}
    (finding,) = result("KUB-026", node(pod_pids_limit=9, origins=origins)).findings
    assert finding.subject == "podPidsLimit in --pod-max-pids"
