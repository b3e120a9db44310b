"""RDMA, locked memory, shared memory and the host's identity for pods with GPUs."""

import pytest
from msgspec.structs import replace

from nodetopo.checks.rule import Area, Verdict
from nodetopo.components.audit.catalogue import AUDIT
from nodetopo.machines.bundled import names as bundled
from nodetopo.model.hca import Hca, LinkLayer
from nodetopo.model.host import HostSettings, RuntimeConfig
from nodetopo.model.node import NodeStatus
from nodetopo.model.pod import Container, Pod, SharedMemory
from tests.components.audit.judge import GIB, TRAINER, healthy, result
from tests.components.audit.rules.gpu_pods import (
    MEMLOCK,
    found,
    job,
    missing,
    node,
    observed,
    pod,
    runtimes,
    trainer,
    verdict,
)

RDMA = {"rdma/hca": 1}
WHO = "ml/job-0 container trainer"
WORKER = "ml/job-worker-1 container trainer"


def test_a_job_over_several_nodes_without_rdma_is_found() -> None:
    (finding,) = found("POD-004", node(job()))
    assert finding == (
        WORKER,
        "no RDMA device, although the node has mlx5_0, mlx5_1, mlx5_2, mlx5_3, mlx5_4 and 3 more",
        "a resource for RDMA devices",
    )


def test_the_resources_for_rdma_that_the_node_offers_are_named() -> None:
    status = healthy().node_status
    assert status is not None
    status = replace(status, capacity={"nvidia.com/gpu": 8, "rdma/hca": 63, "cpu": 1})
    assert found("POD-004", node(job(), node_status=status))[0][2] == "rdma/hca"


@pytest.mark.parametrize(
    "good",
    [
        pod(),
        job(index=0),
        pod(name="job-worker-1"),
        job(trainer(RDMA)),
        job(trainer({"openshift.io/mlnxnics": 1})),
        job(uses_host_network=True),
        job(has_other_devices=True),
        job(trainer(is_privileged=True)),
        pod(replicas=1, owner_kind="PyTorchJob"),
        pod(replicas=4, owner_kind="Deployment"),
        pod(replicas=4, owner_kind="Job"),
        job(phase="Succeeded"),
    ],
    ids=[
        "no job", "first worker", "no owner", "rdma", "another device", "host network",
        "other devices", "privileged", "one replica", "a service", "many jobs", "ended",
    ],
)  # fmt: skip
def test_a_pod_that_reaches_hcas_or_needs_none_is_fine(good: Pod) -> None:
    assert verdict("POD-004", node(good)) is Verdict.PASS


@pytest.mark.parametrize(
    "bad",
    [
        pod(replicas=2, owner_kind="MPIJob"),
        pod(trainer(env={"NCCL_SOCKET_IFNAME": "eth0"}), replicas=2, owner_kind="JobSet"),
    ],
    ids=["MPIJob", "JobSet"],
)
def test_a_manifest_of_several_pods_that_talk_is_found(bad: Pod) -> None:
    assert len(found("POD-004", node(bad))) == 1


def _ethernet(count: int, rate_gbps: float = 200.0) -> tuple[Hca, ...]:
    port = replace(
        (healthy().hcas or ())[0].ports[0], layer=LinkLayer.ETHERNET, rate_gbps=rate_gbps
    )
    return tuple(Hca(name=f"mlx5_{number}", ports=(port,)) for number in range(count))


def test_one_ethernet_port_is_not_taken_for_the_network_of_jobs() -> None:
    assert verdict("POD-004", node(job(), hcas=_ethernet(1))) is Verdict.PASS
    assert verdict("POD-004", node(job(), hcas=_ethernet(2, 25.0))) is Verdict.PASS
    assert verdict("POD-004", node(job(), hcas=_ethernet(2))) is Verdict.WARN


def test_a_node_without_hcas_asks_nothing_of_jobs() -> None:
    assert result("POD-004", node(job(), hcas=())).skipped == "no RDMA device"


def test_a_fabric_of_several_nodes_is_a_network_of_its_own() -> None:
    assert verdict("POD-004", node(job(), machine="gb200-nvl72")) is Verdict.PASS


def test_what_is_not_known_of_a_job_is_missing() -> None:
    blind = replace(job(), uses_host_network=None)
    assert missing("POD-004", node(blind)) == (f"ways to the network of {WORKER}",)
    assert missing("POD-004", node(job(), hcas=None)) == ("HCAs",)
    port = replace((healthy().hcas or ())[0].ports[0], state=None)
    unread = (Hca(name="mlx5_0", ports=(port,)),)
    assert missing("POD-004", node(job(), hcas=unread)) == ("port states of mlx5_0",)


def test_rdma_without_the_right_to_lock_memory_is_found() -> None:
    snapshot = node(pod(trainer(RDMA)), host=runtimes([MEMLOCK, -1]))
    assert found("POD-005", snapshot) == [
        (
            WHO,
            "no IPC_LOCK, and 8Mi of locked memory",
            "the capability IPC_LOCK, or unlimited locked memory",
        ),
    ]


@pytest.mark.parametrize(
    "container",
    [
        trainer(RDMA, capabilities=("IPC_LOCK",)),
        trainer(RDMA, capabilities=("ALL",)),
        trainer(RDMA, is_privileged=True, capabilities=None),
        trainer({"example.com/fuse": 1}),
    ],
    ids=["IPC_LOCK", "ALL", "privileged", "no RDMA"],
)
def test_a_container_that_may_lock_memory_or_needs_not_is_fine(container: Container) -> None:
    assert verdict("POD-005", node(pod(container), host=runtimes([MEMLOCK]))) is Verdict.PASS


def test_unlimited_locked_memory_of_the_runtime_is_enough() -> None:
    blind = trainer(RDMA, capabilities=None)
    assert verdict("POD-005", node(pod(blind), host=runtimes([-1]))) is Verdict.PASS


def test_the_limit_that_a_runtime_gives_containers_goes_before_its_own() -> None:
    host = runtimes([MEMLOCK])
    given = RuntimeConfig(name="containerd0", path="/etc/containerd/config.toml", memlock_bytes=-1)
    host = replace(host, runtime_configs=(given,))
    assert verdict("POD-005", node(pod(trainer(RDMA)), host=host)) is Verdict.PASS


@pytest.mark.parametrize("host", [None, HostSettings(), runtimes([]), runtimes([-1, None])])
def test_an_unread_limit_is_missing(host: HostSettings | None) -> None:
    snapshot = node(pod(trainer(RDMA)), host=host)
    assert missing("POD-005", snapshot) == ("locked memory of the container runtime",)


@pytest.mark.parametrize(
    ("kind", "size", "seen"),
    [
        (SharedMemory.DEFAULT, None, ["64Mi, the runtime's default"]),
        (SharedMemory.OTHER, None, ["a volume that is not in memory"]),
        (SharedMemory.MEMORY, 64 << 20, ["64Mi"]),
        (SharedMemory.MEMORY, 8 << 30, []),
        (SharedMemory.MEMORY, None, []),
        (SharedMemory.HOST, None, []),
    ],
)
def test_shared_memory_is_judged_by_kind_and_size(
    kind: SharedMemory, size: int | None, seen: list[str]
) -> None:
    container = trainer(shared_memory=kind, shared_memory_bytes=size)
    assert observed("POD-006", node(pod(container))) == seen


def test_one_gpu_needs_no_large_shared_memory() -> None:
    one = trainer({"nvidia.com/gpu": 1}, shared_memory=SharedMemory.DEFAULT)
    assert verdict("POD-006", node(pod(one))) is Verdict.PASS
    assert missing("POD-006", node(pod(trainer(shared_memory=None)))) == (
        f"shared memory of {WHO}",
    )


def test_two_pods_of_a_job_on_a_node_with_nvlink_are_found() -> None:
    assert found("POD-007", node(job(index=0), job(index=1))) == [
        (
            "ml/job-worker-0, ml/job-worker-1",
            "different host names, so that NCCL uses the network",
            "one pod with all the GPUs of the job on this node",
        ),
    ]


def test_pods_that_nccl_can_place_or_that_lose_nothing_are_fine() -> None:
    on_host = [job(index=number, uses_host_network=True) for number in (0, 1)]
    told = [job(trainer(env={"NCCL_HOSTID": None}), index=number) for number in (0, 1)]
    idle = Container(name="c", requests={}, limits={}, environment={})
    launcher = replace(job(idle), name="job-launcher-0")
    assert verdict("POD-007", node(*on_host)) is Verdict.PASS
    assert verdict("POD-007", node(*told)) is Verdict.PASS
    assert verdict("POD-007", node(job(index=0), launcher)) is Verdict.PASS
    assert verdict("POD-007", node(job(index=0), job(index=1), machine="gb200-nvl72")) is (
        Verdict.PASS
    )
    assert verdict("POD-007", node(job(index=0), job(index=1), machine="l40s-pcie-4")) is (
        Verdict.PASS
    )


def test_one_host_id_for_pods_of_several_nodes_is_found() -> None:
    container = trainer(env={"NCCL_HOSTID": "cluster"})
    spread = pod(container, replicas=4)
    assert observed("POD-007", node(spread)) == ["NCCL_HOSTID=cluster in all 4 pods"]
    assert verdict("POD-007", node(pod(container))) is Verdict.PASS
    by_node = pod(trainer(env={"NCCL_HOSTID": None}), replicas=4)
    assert verdict("POD-007", node(by_node)) is Verdict.PASS


def test_what_decides_the_identity_is_missing_where_it_is_not_known() -> None:
    blind = [replace(job(TRAINER, index=number), uses_host_network=None) for number in (0, 1)]
    assert missing("POD-007", node(*blind, nvlinks=None)) == (
        "network of ml/job-worker-0, ml/job-worker-1",
        "NVLinks",
    )


@pytest.mark.parametrize("name", sorted({*bundled()} - {"hgx-h100-mig"}))
def test_a_good_job_is_fine_on_every_machine_whose_gpus_it_can_have_whole(name: str) -> None:
    gpus = len(healthy(name).gpus)
    amounts = {**RDMA, "nvidia.com/gpu": gpus}
    container = trainer(amounts, capabilities=("IPC_LOCK",), env={"NCCL_SOCKET_IFNAME": "eth0"})
    # Where all HCAs speak RoCE, a second network of the pod has an interface of theirs.
    good = job(container, has_other_devices=name == "hgx-h200")
    status = NodeStatus(capacity=amounts, allocatable={"cpu": 32_000, "memory": 64 * GIB})
    snapshot = node(good, machine=name, node_status=status, host=runtimes([MEMLOCK]))
    codes = [rule.code for rule in AUDIT if rule.area in (Area.PODS, Area.MIG)]
    assert {code: verdict(code, snapshot) for code in codes} == dict.fromkeys(codes, Verdict.PASS)
