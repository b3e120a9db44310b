"""The rules on what running pods really got."""

import pytest
from msgspec.structs import replace

from nodetopo.checks.rule import Finding, Verdict
from nodetopo.model.gpu import Gpu, Mig
from nodetopo.model.pod import Container
from nodetopo.model.probe_issue import ProbeIssue
from nodetopo.model.snapshot import Snapshot
from tests.components.audit.alignment.alignment_nodes import (
    GIB,
    GPU,
    NONE,
    joined_by_nvlink,
    node,
    placed,
    worker,
)
from tests.components.audit.judge import result, with_gpu

H100 = node()
TOGETHER = worker(H100, [0, 1], hcas=["mlx5_0"], cpus="0-15", memory={0: GIB})
APART = worker(H100, [0], hcas=["mlx5_7"], cpus="56-57", memory={1: GIB})
CODES = ("ALN-001", "ALN-002", "ALN-003", "ALN-004", "ALN-005")
NUMA_CODES = CODES[:4]


def findings(code: str, container: Container, snapshot: Snapshot = H100) -> tuple[Finding, ...]:
    return result(code, placed(snapshot, container)).findings


@pytest.mark.parametrize("code", CODES)
def test_a_pod_whose_parts_are_together_passes_every_rule(code: str) -> None:
    found = result(code, placed(H100, TOGETHER))
    assert (found.verdict, found.missing, found.skipped) == (Verdict.PASS, (), None)


@pytest.mark.parametrize(
    ("code", "verdict", "observed"),
    [
        ("ALN-001", Verdict.FAIL, "own CPUs 56-57 on NUMA node 1"),
        ("ALN-002", Verdict.WARN, "bound, on NUMA node 1"),
        ("ALN-003", Verdict.FAIL, "mlx5_7 on NUMA node 1"),
    ],
)
def test_a_finding_names_the_container_its_gpus_the_cause_and_the_place(
    code: str, verdict: Verdict, observed: str
) -> None:
    found = result(code, placed(node(settings=NONE), APART))
    why = "the Topology Manager has the policy none: devices and CPUs were chosen one by one"
    assert (found.verdict, found.findings) == (
        verdict,
        (
            Finding(
                subject="ml/job-0 container worker with GPU0",
                observed=f"{observed}: {why} (KUB-003)",
                expected="on NUMA node 0",
            ),
        ),
    )


def test_gpus_on_more_numa_nodes_than_they_need_are_warned_of() -> None:
    spread = worker(H100, [3, 4], cpus="0,56", memory={0: GIB, 1: GIB})
    (found,) = findings("ALN-004", spread)
    assert found.observed.startswith("on NUMA nodes 0, 1: the policy best-effort let the pod in")
    assert found.expected == "on 1 NUMA node"


def test_gpus_that_nvlink_does_not_join_are_warned_of_where_others_are_joined() -> None:
    pairs = joined_by_nvlink(H100, [(0, 1), (2, 3), (4, 5), (6, 7)])
    assert findings("ALN-005", worker(pairs, [1, 2], cpus="0-1"), pairs) == (
        Finding(
            subject="ml/job-0 container worker with GPU1, GPU2",
            observed="2 groups without NVLink between them",
            expected="1 in all, as other GPUs of this node are joined",
        ),
    )
    assert findings("ALN-005", worker(pairs, [0, 1, 2], cpus="0-1"), pairs) == ()
    assert len(findings("ALN-005", worker(pairs, [0, 2, 4], cpus="0-1"), pairs)) == 1


def test_gpus_of_a_mesh_are_joined_by_way_of_each_other() -> None:
    mesh = node("dgx-1v")
    assert findings("ALN-005", worker(mesh, [0, 1, 4], cpus="0-1"), mesh) == ()
    assert len(findings("ALN-005", worker(mesh, [0, 5], cpus="0-1"), mesh)) == 1


def test_a_gpu_in_mig_mode_uses_no_nvlink_and_lacks_none() -> None:
    def divided(gpu: Gpu) -> Gpu:
        return replace(gpu, mig=Mig(is_enabled=True))

    snapshot = H100
    for index in range(8):
        snapshot = with_gpu(snapshot, index, divided)
    found = result("ALN-005", placed(snapshot, TOGETHER))
    assert (found.verdict, found.skipped) == (Verdict.PASS, "no two GPUs that NVLink joins")


@pytest.mark.parametrize("code", CODES)
def test_pods_that_were_not_read_are_unknown(code: str) -> None:
    issue = ProbeIssue(probe="podresources", subject="kubelet", reason="no socket")
    found = result(code, replace(H100, pods=None, issues=(issue,)))
    assert (found.verdict, found.missing) == (
        Verdict.UNKNOWN,
        ("pods (kubelet: no socket)",),
    )


@pytest.mark.parametrize("code", CODES)
def test_a_running_pod_whose_devices_are_not_known_is_unknown(code: str) -> None:
    silent = Container(name="worker", requests={GPU: 1}, limits={GPU: 1})
    found = result(code, placed(H100, silent, phase="Running"))
    assert (found.verdict, found.missing) == (
        Verdict.UNKNOWN,
        ("the devices of ml/job-0 container worker",),
    )


@pytest.mark.parametrize("code", CODES)
def test_no_rule_has_anything_to_say_without_a_running_pod_with_gpus(code: str) -> None:
    found = result(code, replace(H100, pods=()))
    assert (found.verdict, found.skipped) == (Verdict.PASS, "no running pod holds GPUs")


@pytest.mark.parametrize("code", NUMA_CODES)
def test_one_numa_node_has_nothing_to_align(code: str) -> None:
    single = replace(H100, numa_nodes=(H100.numa_nodes or ())[:1], pods=None)
    found = result(code, single)
    assert (found.verdict, found.skipped) == (Verdict.PASS, "one NUMA node")


@pytest.mark.parametrize("code", NUMA_CODES)
def test_numa_nodes_that_were_not_read_are_unknown(code: str) -> None:
    found = result(code, placed(replace(H100, numa_nodes=None), TOGETHER))
    assert (found.verdict, found.missing) == (Verdict.UNKNOWN, ("NUMA nodes",))


def test_each_rule_needs_its_own_part_only() -> None:
    silent = replace(TOGETHER, memory=None)
    assert result("ALN-002", placed(H100, silent)).missing == (
        "memory of ml/job-0 container worker",
    )
    assert result("ALN-001", placed(H100, silent)).verdict is Verdict.PASS
    shared = replace(TOGETHER, cpus=None)
    assert result("ALN-001", placed(H100, shared)).missing == ("CPUs of ml/job-0 container worker",)
    assert result("ALN-003", placed(H100, shared)).verdict is Verdict.PASS


def test_hcas_that_were_not_read_are_unknown_and_none_are_no_matter() -> None:
    unread = result("ALN-003", placed(replace(H100, hcas=None), worker(H100, [0], cpus="0-1")))
    assert (unread.verdict, unread.missing) == (Verdict.UNKNOWN, ("HCAs",))
    without = result("ALN-003", placed(replace(H100, hcas=()), worker(H100, [0], cpus="0-1")))
    assert (without.verdict, without.skipped) == (Verdict.PASS, "no RDMA device")


def test_an_hca_of_unknown_node_is_unknown_for_the_rule_on_hcas_only() -> None:
    hcas = tuple(replace(hca, numa_node=None) for hca in H100.hcas or ())
    blind = replace(H100, hcas=hcas)
    found = result("ALN-003", placed(blind, TOGETHER))
    assert (found.verdict, found.missing) == (
        Verdict.UNKNOWN,
        ("NUMA node of mlx5_0 in ml/job-0 container worker",),
    )
    assert result("ALN-001", placed(blind, TOGETHER)).verdict is Verdict.PASS


def test_a_gpu_that_the_machine_does_not_list_cannot_be_counted() -> None:
    unlisted = placed(H100, TOGETHER)
    fewer = replace(unlisted, gpus=H100.gpus[1:])
    for code in ("ALN-004", "ALN-005"):
        assert result(code, fewer).verdict is Verdict.UNKNOWN


def test_links_that_would_not_tell_are_unknown() -> None:
    links = tuple(replace(link, is_active=None) for link in H100.nvlinks or ())
    found = result("ALN-005", placed(replace(H100, nvlinks=links), TOGETHER))
    assert (found.verdict, found.missing) == (Verdict.UNKNOWN, ("NVLinks",))
