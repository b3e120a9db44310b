"""Pods that see GPUs they were not given, or ask for what the node does not have."""

import pytest
from msgspec.structs import replace

from nodetopo.checks.rule import Verdict
from nodetopo.model.host import ContainerToolkit, HostSettings, RuntimeConfig
from nodetopo.model.node import NodeOffer, NodeStatus, PlacedDevice
from nodetopo.model.pod import AssignedDevices, Container, ContainerKind, Pod
from tests.components.audit.judge import GIB, TRAINER, healthy, result
from tests.components.audit.rules.gpu_pods import (
    found,
    missing,
    node,
    observed,
    pod,
    trainer,
    verdict,
)

WHO = "ml/job-0 container trainer"
ALL: dict[str, str | None] = {"NVIDIA_VISIBLE_DEVICES": "all"}
IDLE = Container(
    name="c", requests={}, limits={}, environment=ALL, is_privileged=False, capabilities=()
)


def _host(*, is_open: bool | None = None, default: str | None = "nvidia") -> HostSettings:
    config = RuntimeConfig(
        name="containerd",
        path="/etc/containerd/config.toml",
        default_runtime=default,
        nvidia_runtimes=("nvidia",),
    )
    toolkit = ContainerToolkit(path="/etc/nvidia-container-runtime/config.toml")
    return HostSettings(
        runtime_configs=(config,), toolkit=replace(toolkit, env_when_unprivileged=is_open)
    )


@pytest.mark.parametrize("container", [IDLE, trainer(env=ALL)], ids=["no GPU", "with GPUs"])
def test_a_job_that_names_gpus_by_hand_is_found(container: Container) -> None:
    (finding,) = found("POD-008", node(pod(container), host=None))
    assert finding[1:] == ("NVIDIA_VISIBLE_DEVICES=all", "unset, and nvidia.com/gpu asked for")


@pytest.mark.parametrize("value", ["", "none", "void", "VOID"])
def test_a_job_that_names_no_gpu_is_fine(value: str) -> None:
    container = trainer(env={"NVIDIA_VISIBLE_DEVICES": value})
    assert verdict("POD-008", node(pod(container))) is Verdict.PASS


def test_a_job_that_has_every_gpu_may_name_all_of_them() -> None:
    amounts = {"nvidia.com/gpu": len(healthy().gpus)}
    whole = replace(trainer(env=ALL), requests=amounts, limits=amounts, devices=None)
    fewer = replace(whole, requests={"nvidia.com/gpu": 1}, limits={"nvidia.com/gpu": 1})
    assert verdict("POD-008", node(pod(whole), host=None)) is Verdict.PASS
    assert verdict("POD-008", node(pod(fewer), host=None)) is Verdict.WARN


@pytest.mark.parametrize("kind", ["DaemonSet", "Node", "ClusterPolicy"])
def test_an_agent_of_the_node_may_see_all_gpus(kind: str) -> None:
    agent = pod(replace(IDLE, is_privileged=True), owner_kind=kind)
    assert verdict("POD-008", node(agent)) is Verdict.PASS
    assert verdict("POD-009", node(pod(trainer(is_privileged=True), owner_kind=kind))) is (
        Verdict.PASS
    )


def test_a_variable_that_the_runtime_does_not_heed_is_fine() -> None:
    job = pod(IDLE)
    assert verdict("POD-008", node(job, host=_host(is_open=True))) is Verdict.WARN
    assert verdict("POD-008", node(job, host=_host(is_open=None))) is Verdict.WARN
    assert verdict("POD-008", node(job, host=_host(is_open=False))) is Verdict.PASS
    assert verdict("POD-008", node(job, host=_host(default="runc"))) is Verdict.PASS
    by_class = replace(job, runtime_class="nvidia")
    assert verdict("POD-008", node(by_class, host=_host(default="runc"))) is Verdict.WARN
    assert verdict("POD-008", node(job, host=_host(default=None))) is Verdict.WARN


def test_a_privileged_container_is_heeded_whatever_the_toolkit_says() -> None:
    job = pod(replace(IDLE, is_privileged=True))
    assert verdict("POD-008", node(job, host=_host(is_open=False))) is Verdict.WARN


def test_a_value_that_another_object_holds_is_missing() -> None:
    hidden = trainer(env={"NVIDIA_VISIBLE_DEVICES": None})
    assert missing("POD-008", node(pod(hidden))) == (f"value of NVIDIA_VISIBLE_DEVICES in {WHO}",)
    assert missing("POD-008", node(pod(replace(IDLE, environment=None)))) == (
        "environment of ml/job-0 container c",
    )


def test_a_privileged_container_with_some_gpus_is_found() -> None:
    assert observed("POD-009", node(pod(trainer(is_privileged=True)))) == [
        "privileged, with 4 of 8 GPUs asked for"
    ]
    every = trainer({"nvidia.com/gpu": 8}, is_privileged=True)
    assert verdict("POD-009", node(pod(every))) is Verdict.PASS
    assert missing("POD-009", node(pod(trainer(is_privileged=None)))) == (f"privilege of {WHO}",)


def test_a_pod_larger_than_the_node_is_found_resource_by_resource() -> None:
    large = trainer({"nvidia.com/gpu": 16, "cpu": 300_500, "memory": 4096 * GIB})
    assert found("POD-010", node(pod(large))) == [
        ("ml/job-0 cpu", "300.5 CPUs", "at most 224 CPUs"),
        ("ml/job-0 memory", "4096Gi", "at most 2048Gi"),
        ("ml/job-0 nvidia.com/gpu", "16", "at most 8"),
    ]


def _with(kind: ContainerKind, name: str, gpus: int) -> Container:
    return replace(trainer({"nvidia.com/gpu": gpus}), name=name, kind=kind)


@pytest.mark.parametrize(
    ("containers", "seen"),
    [
        ([_with(ContainerKind.APP, "a", 5), _with(ContainerKind.APP, "b", 5)], ["10"]),
        ([_with(ContainerKind.INIT, "a", 5), _with(ContainerKind.APP, "b", 5)], []),
        ([_with(ContainerKind.INIT, "a", 9), _with(ContainerKind.APP, "b", 5)], ["9"]),
        ([_with(ContainerKind.SIDECAR, "a", 4), _with(ContainerKind.INIT, "b", 5)], ["9"]),
        ([_with(ContainerKind.INIT, "b", 5), _with(ContainerKind.SIDECAR, "a", 4)], []),
        ([_with(ContainerKind.SIDECAR, "a", 4), _with(ContainerKind.APP, "b", 5)], ["9"]),
    ],
)
def test_containers_count_as_the_scheduler_counts_them(
    containers: list[Container], seen: list[str]
) -> None:
    assert observed("POD-010", node(pod(*containers))) == seen


def test_resources_of_the_pod_as_a_whole_replace_sums() -> None:
    whole = pod(trainer({"cpu": 300_000}), requests={"cpu": 100_000}, limits={"cpu": 100_000})
    assert verdict("POD-010", node(whole)) is Verdict.PASS
    assert observed("POD-010", node(replace(whole, requests={"cpu": 400_000}))) == ["400 CPUs"]


def test_limits_stand_for_requests_that_are_not_there() -> None:
    bare = replace(TRAINER, requests={}, limits={"nvidia.com/gpu": 9})
    assert observed("POD-010", node(pod(bare))) == ["9"]


def test_a_resource_that_nobody_offers_is_found() -> None:
    shared = trainer({"nvidia.com/gpu.shared": 1})
    assert found("POD-011", node(pod(shared))) == [
        (
            "ml/job-0",
            "nvidia.com/gpu.shared, which no plugin advertises on this node",
            "nvidia.com/gpu",
        ),
    ]


def test_many_resources_that_nobody_offers_are_counted_rather_than_listed() -> None:
    many = trainer({f"example.com/{number:03}": 1 for number in range(500)})
    (seen,) = observed("POD-011", node(pod(many)))
    assert seen.startswith("example.com/000, example.com/001, example.com/002, ")
    assert seen.endswith("example.com/004 and 495 more, which no plugin advertises on this node")


@pytest.mark.parametrize("code", ["POD-010", "POD-011"])
@pytest.mark.parametrize(
    "good",
    [
        pod(),
        pod(trainer({"nvidia.com/gpu": 64, "example.com/fpga": 1}), phase="Running"),
        pod(trainer({"nvidia.com/mig-1g.5gb": 1})),
        pod(trainer({"hugepages-2Mi": 2 << 20, "example.com/none": 0})),
        pod(replace(IDLE, requests={"example.com/fpga": 9})),
    ],
    ids=["fits", "runs", "MIG", "native", "no GPU"],
)
def test_a_pod_that_fits_or_is_not_judged_here_is_fine(code: str, good: Pod) -> None:
    assert verdict(code, node(good)) is Verdict.PASS


def test_the_kubelets_own_answer_stands_in_for_the_node_object() -> None:
    devices = tuple(
        PlacedDevice(resource="nvidia.com/gpu", id=f"GPU-{number}", numa_nodes=(0,))
        for number in range(2)
    )
    by_kubelet = node(pod(), node_status=None, offer=NodeOffer(devices=devices))
    assert observed("POD-010", by_kubelet) == ["4"]
    patched = pod(trainer({"example.com/dongle": 1, "rdma/hca": 1}))
    seen = observed("POD-011", replace(by_kubelet, pods=(patched,)))
    assert seen == ["rdma/hca, which no plugin advertises on this node"]


@pytest.mark.parametrize("code", ["POD-010", "POD-011"])
def test_unknown_resources_of_the_node_or_of_a_pod_are_missing(code: str) -> None:
    for status in (None, NodeStatus()):
        silent = node(pod(), node_status=status, offer=None)
        assert missing(code, silent) == ("resources of the node",)
    held = (AssignedDevices(resource="nvidia.com/gpu", ids=("GPU-1",)),)
    unread = Container(name="c", devices=held)
    assert missing(code, node(pod(unread))) == ("resources of ml/job-0 container c",)


def test_many_pods_that_are_not_known_are_counted_rather_than_listed() -> None:
    many = [replace(pod(Container(name="c")), name=f"p{number}") for number in range(1000)]
    assert missing("POD-010", node(*many))[0] == (
        "resources of ml/p0 container c, ml/p1 container c, ml/p2 container c, "
        "ml/p3 container c, ml/p4 container c and 995 more"
    )


@pytest.mark.parametrize("code", [f"POD-{number:03}" for number in range(1, 12)])
def test_pods_that_were_not_read_leave_every_rule_unknown(code: str) -> None:
    found_ = result(code, replace(healthy(), pods=None))
    assert (found_.verdict, found_.missing[0]) == (Verdict.UNKNOWN, "pods")
