"""The audit rules: kubelet settings, and pods with GPUs."""

import pytest
from msgspec.structs import replace

from nodetopo.checks.engine import evaluate
from nodetopo.checks.rule import Finding, Verdict
from nodetopo.components.audit.catalogue import AUDIT
from nodetopo.model.pod import AssignedDevices, Container, ContainerKind, Pod
from nodetopo.model.probe_issue import ProbeIssue
from nodetopo.model.snapshot import Snapshot
from tests.components.audit.judge import AMOUNTS, POD, SETTINGS, TRAINER, healthy, result

SOURCE = "/var/lib/kubelet/config.yaml"
KUBELET_CODES = ("KUB-001", "KUB-003", "KUB-004")
QOS_CODES = ("QOS-001", "QOS-002")


def with_pods(*pods: Pod) -> Snapshot:
    return replace(healthy(), pods=pods)


def with_amounts(requests: dict[str, int], limits: dict[str, int]) -> Snapshot:
    container = replace(TRAINER, requests=requests, limits=limits)
    return with_pods(replace(POD, containers=(container,)))


def test_every_audit_rule_passes_on_a_well_set_node() -> None:
    report = evaluate(healthy(), AUDIT)
    assert [(it.rule.code, it.verdict) for it in report.results] == [
        (rule.code, Verdict.PASS) for rule in AUDIT
    ]


@pytest.mark.parametrize(
    ("code", "field", "value", "verdict", "finding"),
    [
        (
            "KUB-001",
            "cpu_manager_policy",
            "none",
            Verdict.FAIL,
            Finding(subject=f"cpuManagerPolicy in {SOURCE}", observed="none", expected="static"),
        ),
        (
            "KUB-003",
            "topology_manager_policy",
            "none",
            Verdict.FAIL,
            Finding(
                subject=f"topologyManagerPolicy in {SOURCE}",
                observed="none",
                expected="best-effort | restricted | single-numa-node",
            ),
        ),
        (
            "KUB-004",
            "memory_manager_policy",
            "None",
            Verdict.WARN,
            Finding(subject=f"memoryManagerPolicy in {SOURCE}", observed="None", expected="Static"),
        ),
    ],
)
def test_a_policy_that_aligns_nothing_is_found(
    code: str,
    field: str,
    value: str,
    verdict: Verdict,
    finding: Finding,
) -> None:
    settings = replace(SETTINGS, **{field: value})
    found = result(code, replace(healthy(), kubelet=settings))
    assert (found.verdict, found.findings) == (verdict, (finding,))


@pytest.mark.parametrize("code", KUBELET_CODES)
def test_unread_kubelet_settings_are_unknown_with_the_reason(code: str) -> None:
    issue = ProbeIssue(probe="kubelet", subject=SOURCE, reason="no such file")
    found = result(code, replace(healthy(), kubelet=None, issues=(issue,)))
    assert (found.verdict, found.missing) == (
        Verdict.UNKNOWN,
        (f"kubelet settings ({SOURCE}: no such file)",),
    )


@pytest.mark.parametrize("code", KUBELET_CODES)
def test_a_setting_that_its_source_does_not_tell_is_unknown(code: str) -> None:
    bare = replace(healthy(), kubelet=type(SETTINGS)(source="elsewhere"))
    assert result(code, bare).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize("code", KUBELET_CODES)
def test_a_node_with_one_numa_node_needs_no_kubelet_settings(code: str) -> None:
    whole = healthy()
    single = replace(whole, kubelet=None, numa_nodes=(whole.numa_nodes or ())[:1])
    assert result(code, single).verdict is Verdict.PASS


@pytest.mark.parametrize("code", KUBELET_CODES)
def test_unread_numa_nodes_leave_the_kubelet_rules_unknown(code: str) -> None:
    assert result(code, replace(healthy(), numa_nodes=None)).missing == ("NUMA nodes",)


@pytest.mark.parametrize("code", QOS_CODES)
def test_pods_that_were_not_read_are_unknown(code: str) -> None:
    found = result(code, replace(healthy(), pods=None))
    assert (found.verdict, found.missing) == (Verdict.UNKNOWN, ("pods",))


@pytest.mark.parametrize("code", QOS_CODES)
def test_a_node_without_pods_passes(code: str) -> None:
    assert result(code, with_pods()).verdict is Verdict.PASS


@pytest.mark.parametrize("resource", ["nvidia.com/gpu", "nvidia.com/gpu.shared"])
def test_a_pod_with_gpus_alone_is_found_to_be_best_effort(resource: str) -> None:
    found = result("QOS-001", with_amounts({resource: 1}, {resource: 1}))
    assert found.findings == (
        Finding(
            subject="ml/job-0",
            observed="BestEffort; trainer: no cpu limit; trainer: no memory limit",
            expected="Guaranteed",
        ),
    )


def test_a_mig_device_makes_a_gpu_pod() -> None:
    amounts = {"nvidia.com/mig-1g.10gb": 1, "memory": 1}
    assert result("QOS-001", with_amounts(amounts, amounts)).verdict is Verdict.FAIL


@pytest.mark.parametrize(
    "pod",
    [
        Pod(namespace="a", name="cpu-only", containers=(Container(name="c", requests={}),)),
        replace(POD, phase="Succeeded", containers=(Container(name="c"),)),
        Pod(
            namespace="a",
            name="hca-only",
            containers=(Container(name="c", requests={"rdma/hca": 1}, limits={"rdma/hca": 1}),),
        ),
    ],
    ids=lambda pod: pod.name,
)
@pytest.mark.parametrize("code", QOS_CODES)
def test_a_pod_that_holds_no_gpus_is_nobodys_business(code: str, pod: Pod) -> None:
    assert result(code, with_pods(pod)).verdict is Verdict.PASS


@pytest.mark.parametrize("code", QOS_CODES)
def test_a_gpu_pod_known_from_its_devices_alone_is_unknown(code: str) -> None:
    devices = (AssignedDevices(resource="nvidia.com/gpu", ids=("GPU-1",)),)
    pod = Pod(namespace="a", name="b", containers=(Container(name="c", devices=devices),))
    assert result(code, with_pods(pod)).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize("code", QOS_CODES)
def test_a_pod_of_which_nothing_is_known_is_unknown(code: str) -> None:
    pod = Pod(namespace="a", name="b", containers=(Container(name="c"),))
    assert result(code, with_pods(pod)).verdict is Verdict.UNKNOWN


def test_the_class_in_the_status_wins_over_the_resources() -> None:
    found = result("QOS-001", with_pods(replace(POD, qos_class="Burstable")))
    assert [finding.observed for finding in found.findings] == ["Burstable"]


@pytest.mark.parametrize(
    ("millicores", "observed"),
    [(7_500, "7500m"), (500, "500m"), (0, "no CPU request")],
)
def test_a_container_with_gpus_and_broken_cpus_is_warned_of(millicores: int, observed: str) -> None:
    amounts = {**AMOUNTS, "cpu": millicores}
    found = result("QOS-002", with_amounts(amounts, amounts))
    assert (found.verdict, found.findings) == (
        Verdict.WARN,
        (
            Finding(
                subject="ml/job-0 container trainer",
                observed=observed,
                expected="a whole number of CPUs, at least 1",
            ),
        ),
    )


def test_a_broken_cpu_count_beside_the_gpus_is_allowed() -> None:
    amounts = {"cpu": 100, "memory": 1}
    sidecar = Container(name="proxy", kind=ContainerKind.SIDECAR, requests=amounts, limits=amounts)
    pod = replace(POD, containers=(sidecar, TRAINER))
    assert result("QOS-002", with_pods(pod)).verdict is Verdict.PASS


def test_text_from_a_pod_is_carried_as_it_is() -> None:
    pod = replace(POD, name="{0}%s", qos_class="{observed}%d")
    (finding,) = result("QOS-001", with_pods(pod)).findings
    assert (finding.subject, finding.observed) == ("ml/{0}%s", "{observed}%d")
