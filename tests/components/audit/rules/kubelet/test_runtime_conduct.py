"""KUB-026, KUB-027, KUB-028: limits of pods, rights of the agent, rejections."""

import pytest
from msgspec.structs import replace

from nodetopo.checks.rule import Verdict
from nodetopo.model.kubelet import KubeletMetrics
from nodetopo.model.pod import Pod
from nodetopo.model.probe_issue import ProbeIssue
from tests.components.audit.judge import METRICS, RIGHTS, healthy, result
from tests.components.audit.rules.kubelet.kubelet_node import FILE, missing, node, observed, skipped


@pytest.mark.parametrize(
    ("limit", "found"),
    [(1, ["1"]), (1024, ["1024"]), (4095, ["4095"]), (4096, []), (-1, []), (0, [])],
)
def test_few_processes_are_remarked(limit: int, found: list[str]) -> None:
    snapshot = node(pod_pids_limit=limit)
    assert observed("KUB-026", snapshot) == found
    assert result("KUB-026", snapshot).verdict is Verdict.PASS


def test_an_unread_limit_is_unknown() -> None:
    assert missing("KUB-026", node(pod_pids_limit=None)) == ("podPidsLimit",)
    assert missing("KUB-026", replace(healthy(), kubelet=None)) == ("kubelet settings",)


def test_processes_are_not_counted_where_no_gpu_is() -> None:
    assert skipped("KUB-026", replace(node(pod_pids_limit=9), gpus=())) == "no GPU"


@pytest.mark.parametrize("right", ["get nodes/proxy", "create nodes/proxy"])
def test_each_right_to_the_proxy_is_found(right: str) -> None:
    whole = result("KUB-027", replace(healthy(), agent_rights={**RIGHTS, right: True}))
    (finding,) = whole.findings
    assert whole.verdict is Verdict.WARN
    assert (finding.subject, finding.observed, finding.expected) == (
        "rights of the agent's account",
        right,
        "get on nodes/configz and nodes/metrics only",
    )


def test_an_account_without_the_proxy_passes() -> None:
    found = result("KUB-027", replace(healthy(), agent_rights=RIGHTS))
    assert (found.verdict, found.findings) == (Verdict.PASS, ())


@pytest.mark.parametrize("rights", [None, {}, {"get nodes/proxy": False}])
def test_rights_that_were_not_asked_about_are_unknown(rights: dict[str, bool] | None) -> None:
    assert missing("KUB-027", replace(healthy(), agent_rights=rights)) == (
        "rights of the agent's account",
    )


def test_whose_rights_were_read_instead_is_said() -> None:
    reason = "this is the account kubernetes-admin, and no pod of the agent is on node 'gpu-1'"
    issue = ProbeIssue(probe="rights", subject="API server", reason=reason)
    found = replace(healthy(), agent_rights=None, issues=(issue,))
    assert missing("KUB-027", found) == (f"rights of the agent's account (API server: {reason})",)


def test_each_kind_of_rejection_is_found_with_its_count() -> None:
    ours = {"OutOfExtendedResources": 1, "UnexpectedAdmissionError": 2, "TopologyAffinityError": 3}
    counts = {**ours, "Other": 9, "OutOfcpu": 2}
    snapshot = replace(healthy(), kubelet_metrics=replace(METRICS, rejections=counts))
    whole = result("KUB-028", snapshot)
    assert whole.verdict is Verdict.WARN
    assert [(one.subject, one.observed) for one in whole.findings] == [
        ("rejections for TopologyAffinityError", "3 pods since the kubelet started"),
        ("rejections for UnexpectedAdmissionError", "2 pods since the kubelet started"),
        ("rejections for OutOfExtendedResources", "1 pod since the kubelet started"),
    ]
    assert {one.expected for one in whole.findings} == {"none"}


def test_counts_are_told_where_pods_were_not_read() -> None:
    metrics = KubeletMetrics(rejections={"TopologyAffinityError": 1})
    snapshot = replace(healthy(), pods=None, kubelet_metrics=metrics)
    assert observed("KUB-028", snapshot) == ["1 pod since the kubelet started"]


def test_an_old_kubelet_counts_the_topology_managers_errors_only() -> None:
    metrics = KubeletMetrics(topology_errors=2)
    snapshot = replace(healthy(), kubelet_metrics=metrics)
    (finding,) = result("KUB-028", snapshot).findings
    assert (finding.subject, finding.observed) == (
        "rejections for TopologyAffinityError",
        "2 pods since the kubelet started",
    )


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
    assert [(one.subject, one.observed, one.expected) for one in found] == [
        ("a/b", f"{reason}: no room", "admitted")
    ][:count]


def test_a_rejected_pod_without_a_message_is_named_with_its_reason() -> None:
    pod = Pod(namespace="a", name="b", phase="Failed", status_reason="SMTAlignmentError")
    assert observed("KUB-028", replace(healthy(), pods=(pod,))) == ["SMTAlignmentError"]


@pytest.mark.parametrize("metrics", [None, KubeletMetrics(slow_allocations={})])
def test_without_counts_rejections_are_unknown(metrics: KubeletMetrics | None) -> None:
    snapshot = replace(healthy(), kubelet_metrics=metrics)
    assert missing("KUB-028", snapshot) == ("metrics of the kubelet",)


def test_either_count_of_rejections_is_enough_to_know() -> None:
    for metrics in (KubeletMetrics(rejections={}), KubeletMetrics(topology_errors=0)):
        found = result("KUB-028", replace(healthy(), kubelet_metrics=metrics))
        assert (found.verdict, found.missing) == (Verdict.PASS, ())


def test_a_finding_names_the_file_that_states_the_limit() -> None:
    origins = {"podPidsLimit": "--pod-max-pids", "podPidsLimitX": FILE}
    (finding,) = result("KUB-026", node(pod_pids_limit=9, origins=origins)).findings
    assert finding.subject == "podPidsLimit in --pod-max-pids"
    assert finding.expected == "4096 or more, or -1"
