"""The NCCL variables of pods: which NCCL reads, and which work against the node."""

from typing import Any

import pytest

from nodetopo.checks.rule import Verdict
from nodetopo.model.pod import Container
from nodetopo.model.snapshot import Kernel, Snapshot
from tests.components.audit.rules.gpu_pods import (
    found,
    job,
    missing,
    node,
    observed,
    pod,
    trainer,
    verdict,
)

RDMA = {"rdma/hca": 1}
WHO = "ml/job-0 container trainer"


def rdma(env: dict[str, str | None], **changes: Any) -> Snapshot:
    """Return a node with a pod that has HCAs and sets *env*."""
    return node(pod(trainer(RDMA, env=env)), **changes)


def test_a_variable_that_never_was_is_explained() -> None:
    env: dict[str, str | None] = {"NCCL_PORT_RANGE": "50000-51000", "NCCL_DEBUG": "INFO"}
    assert found("POD-001", node(pod(trainer(env=env)))) == [
        (
            WHO,
            "NCCL_PORT_RANGE, which no NCCL up to 2.30.7 reads",
            (
                "the sysctl net.ipv4.ip_local_port_range in the pod's securityContext, from which "
                "NCCL's ports come"
            ),
        ),
    ]


@pytest.mark.parametrize(
    ("name", "seen", "expected"),
    [
        ("NCCL_IB_HCAS", "which no NCCL up to 2.30.7 reads", "NCCL_IB_HCA"),
        ("NCCL_LL_THRESHOLD", "which NCCL 2.4.8 was the last to read", "NCCL_PROTO"),
        ("NCCL_RINGS", "which NCCL 2.4.8 was the last to read", "no such variable"),
        ("NCCL_WHATEVER_THIS_IS", "which no NCCL up to 2.30.7 reads", "no such variable"),
    ],
)
def test_a_variable_that_nccl_does_not_read_is_found(name: str, seen: str, expected: str) -> None:
    snapshot = node(pod(trainer(env={name: None})))
    assert found("POD-001", snapshot) == [(WHO, f"{name}, {seen}", expected)]


@pytest.mark.parametrize("name", ["NCCL_CREATE_THREAD_CONTEXT", "NCCL_MNNVL", "NCCL_VERSION"])
def test_a_variable_that_a_release_in_use_reads_is_none(name: str) -> None:
    assert verdict("POD-001", node(pod(trainer(env={name: "1"})))) is Verdict.PASS


def test_a_launcher_without_gpus_is_judged_too() -> None:
    launcher = Container(name="mpirun", requests={}, limits={}, environment={"NCCL_IB_HCAS": "x"})
    assert len(found("POD-001", node(pod(launcher)))) == 1


def test_thousands_of_variables_make_few_findings() -> None:
    env: dict[str, str | None] = {f"NCCL_{'Z' * 200}{number}": "1" for number in range(5000)}
    seen = observed("POD-001", node(pod(trainer(env=env))))
    assert len(seen) == 20
    assert max(map(len, seen)) < 200


@pytest.mark.parametrize("code", ["POD-001", "POD-002", "POD-003"])
def test_variables_that_are_not_known_leave_the_rule_unknown(code: str) -> None:
    unread = node(pod(trainer(environment=None)))
    hidden = node(pod(trainer(has_hidden_environment=True)))
    assert missing(code, unread) == (f"environment of {WHO}",)
    assert missing(code, hidden) == (f"variables that envFrom adds of {WHO}",)
    assert {verdict(code, unread), verdict(code, hidden)} == {Verdict.UNKNOWN}


def test_debugging_variables_are_a_remark() -> None:
    env: dict[str, str | None] = {"NCCL_ALGO": "Ring", "NCCL_PROTO": "Simple", "NCCL_DEBUG": "WARN"}
    snapshot = node(pod(trainer(env=env)))
    assert observed("POD-003", snapshot) == ["NCCL_ALGO, NCCL_PROTO"]
    assert verdict("POD-003", snapshot) is Verdict.PASS


@pytest.mark.parametrize(
    ("env", "seen"),
    [
        ({"NCCL_P2P_DISABLE": "1"}, "NCCL_P2P_DISABLE=1 keeps NCCL from NVLink"),
        ({"NCCL_P2P_LEVEL": "LOC"}, "NCCL_P2P_LEVEL=LOC keeps NCCL from NVLink"),
        ({"NCCL_P2P_LEVEL": "0"}, "NCCL_P2P_LEVEL=0 keeps NCCL from NVLink"),
        ({"NCCL_NET_GDR_LEVEL": "NODE"}, "NCCL_NET_GDR_LEVEL=NODE, which NCCL ignores"),
        ({"NCCL_P2P_LEVEL": "nvl"}, "NCCL_P2P_LEVEL=nvl, which NCCL ignores"),
        ({"NCCL_IB_DISABLE": "1"}, "NCCL_IB_DISABLE=1 with RDMA devices"),
        ({"NCCL_NET": "Socket"}, "NCCL_NET=Socket with RDMA devices"),
        ({"NCCL_NET_GDR_LEVEL": "LOC"}, "NCCL_NET_GDR_LEVEL=LOC turns GPUDirect RDMA off"),
    ],
)
def test_a_variable_that_turns_a_fast_path_off_is_found(
    env: dict[str, str | None], seen: str
) -> None:
    assert observed("POD-002", rdma(env)) == [seen]


@pytest.mark.parametrize(
    "env",
    [
        {"NCCL_P2P_DISABLE": "0"},
        {"NCCL_P2P_LEVEL": "NVL", "NCCL_NET_GDR_LEVEL": "PHB"},
        {"NCCL_P2P_LEVEL": "5"},
        {"NCCL_SHM_DISABLE": "1"},
        {"NCCL_IB_DISABLE": "1", "NCCL_NET": "AWS Libfabric"},
        {"NCCL_IB_DISABLE": "1", "NCCL_NET_PLUGIN": "fastrak"},
        {"NCCL_IB_HCA": "mlx5"},
        {"NCCL_IB_HCA": "^mlx5_0"},
        {"NCCL_DMABUF_ENABLE": "0"},
        {"NCCL_MNNVL_ENABLE": "0"},
        {"NCCL_SOCKET_IFNAME": "lo"},
    ],
    ids="+".join,
)
def test_a_variable_that_costs_nothing_here_is_none(env: dict[str, str | None]) -> None:
    assert verdict("POD-002", rdma(env)) is Verdict.PASS


def test_a_container_with_one_gpu_has_no_nvlink_to_lose() -> None:
    alone = pod(trainer({"nvidia.com/gpu": 1}, env={"NCCL_P2P_DISABLE": "1"}))
    assert verdict("POD-002", node(alone)) is Verdict.PASS


def test_direct_access_is_no_loss_where_there_is_no_nvlink() -> None:
    snapshot = node(pod(trainer(env={"NCCL_P2P_DISABLE": "1"})), machine="l40s-pcie-4")
    assert verdict("POD-002", snapshot) is Verdict.PASS


def test_shared_memory_is_the_way_where_there_is_no_nvlink() -> None:
    snapshot = node(pod(trainer(env={"NCCL_SHM_DISABLE": "1"})), machine="l40s-pcie-4")
    assert observed("POD-002", snapshot) == [
        "NCCL_SHM_DISABLE=1 leaves GPUs without a direct path only the network"
    ]


def test_a_pod_without_hcas_may_turn_infiniband_off() -> None:
    quiet = pod(trainer({"vpc.amazonaws.com/efa": 4}, env={"NCCL_IB_DISABLE": "1"}))
    assert verdict("POD-002", node(quiet)) is Verdict.PASS


def test_dma_buf_is_needed_where_peermem_is_not_loaded() -> None:
    env: dict[str, str | None] = {"NCCL_DMABUF_ENABLE": "0"}
    kernel = Kernel(modules=("mlx5_ib", "nvidia"))
    assert observed("POD-002", rdma(env, kernel=kernel)) == [
        "NCCL_DMABUF_ENABLE=0, and the module nvidia_peermem is not loaded"
    ]
    assert missing("POD-002", rdma(env, kernel=None)) == ("kernel modules",)


def test_jobs_over_several_nodes_need_more_than_the_loopback() -> None:
    lost = job(trainer(env={"NCCL_SOCKET_IFNAME": "=lo,docker0"}))
    assert observed("POD-002", node(lost)) == [
        "NCCL_SOCKET_IFNAME==lo,docker0 in a job of several pods"
    ]
    kept = job(trainer(env={"NCCL_SOCKET_IFNAME": "eth0,lo"}))
    assert verdict("POD-002", node(kept)) is Verdict.PASS


@pytest.mark.parametrize("name", ["NCCL_MNNVL_ENABLE", "NCCL_CUMEM_ENABLE"])
def test_nvlink_between_nodes_is_a_loss_where_there_is_one(name: str) -> None:
    cut = job(trainer(env={name: "0"}))
    assert observed("POD-002", node(cut, machine="gb200-nvl72")) == [
        f"{name}=0 keeps NCCL from NVLink between nodes"
    ]
    assert verdict("POD-002", node(cut)) is Verdict.PASS


def test_a_value_that_another_object_holds_is_missing() -> None:
    assert missing("POD-002", rdma({"NCCL_NET": None})) == (f"value of NCCL_NET in {WHO}",)


def test_what_the_node_did_not_tell_is_missing() -> None:
    env: dict[str, str | None] = {"NCCL_P2P_DISABLE": "1", "NCCL_IB_HCA": "=mlx5_0"}
    assert missing("POD-002", rdma(env, nvlinks=None, hcas=None)) == ("NVLinks", "HCAs")
