"""The rules on QoS: their wording, and where they must keep quiet."""

from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from nodetopo.checks.rule import Verdict
from nodetopo.model.kubelet import KubeletSettings
from nodetopo.model.node import NodeStatus
from nodetopo.model.numa import CpuSet
from nodetopo.model.pod import AssignedDevices, Container, ContainerKind, Pod
from nodetopo.model.snapshot import Snapshot
from tests.components.audit.judge import healthy, result

GIB = 1 << 30
FULL = {"cpu": 8000, "memory": 64 * GIB}
WITH_GPU = {**FULL, "nvidia.com/gpu": 1}
APP = Container(name="app", requests=WITH_GPU, limits=WITH_GPU)
GPU_ONLY = Container(name="app", requests={"nvidia.com/gpu": 1}, limits={"nvidia.com/gpu": 1})
RUNNING = replace(APP, id="a1", cpus=CpuSet.parse("0-7"), throttled=0)
SETTINGS = KubeletSettings(
    source="configz",
    cpu_manager_policy="static",
    topology_manager_policy="restricted",
    topology_manager_scope="container",
    feature_gates={},
)


def pod(*containers: Container, **more: Any) -> Pod:
    return Pod(namespace="ml", name="job-0", containers=containers, **more)


def node(*pods: Pod, version: str | None = "v1.36.3", **settings: Any) -> Snapshot:
    return replace(
        healthy(),
        pods=pods,
        kubelet=replace(SETTINGS, **settings),
        kubelet_on_disk=None,
        node_status=NodeStatus(kubelet_version=version),
    )


def init(cpu: int, **more: Any) -> Container:
    amounts = {"cpu": cpu, "memory": GIB, **more}
    return Container(name="fetch", kind=ContainerKind.INIT, requests=amounts, limits=amounts)


def outcome(code: str, snapshot: Snapshot) -> tuple[Verdict, tuple[str, ...]]:
    found = result(code, snapshot)
    words = [f"{each.subject}: {each.observed}" for each in found.findings]
    return found.verdict, (*words, *found.missing)


PASS = (Verdict.PASS, ())
WHOLE = {"requests": FULL, "limits": FULL}


def test_a_pod_that_is_not_guaranteed_is_named_with_what_it_lacks() -> None:
    burstable = pod(Container(name="side", requests={}, limits={}), APP)
    assert outcome("QOS-001", node(burstable)) == (
        Verdict.FAIL,
        ("ml/job-0: Burstable; side: no cpu limit; side: no memory limit",),
    )


def test_the_class_of_an_empty_field_needs_the_version() -> None:
    empty = pod(APP, requests={}, limits={})
    word = "Kubernetes version, on which the class of ml/job-0 depends"
    assert outcome("QOS-001", node(empty, version=None)) == (Verdict.UNKNOWN, (word,))
    assert outcome("QOS-004", node(empty, version=None)) == (Verdict.UNKNOWN, (word,))
    assert outcome("QOS-001", node(empty, version="v1.37.0")) == PASS


@pytest.mark.parametrize("code", ["QOS-001", "QOS-002", "QOS-003", "QOS-004", "QOS-006"])
def test_a_pod_without_gpus_or_that_has_ended_breaks_nothing(code: str) -> None:
    cpu_only = pod(Container(name="app", requests={}, limits={}))
    ended = pod(GPU_ONLY, phase="Failed", requests={}, limits={})
    assert outcome(code, node(cpu_only, ended)) == PASS


def test_a_container_without_cpus_in_a_pod_that_states_them_as_a_whole_is_another_rule_s() -> None:
    assert outcome("QOS-002", node(pod(GPU_ONLY, **WHOLE))) == PASS
    own = replace(GPU_ONLY, requests={**(GPU_ONLY.requests or {}), "cpu": 500})
    assert outcome("QOS-002", node(pod(own, **WHOLE))) == (
        Verdict.WARN,
        ("ml/job-0 container app: 500m",),
    )


@pytest.mark.parametrize(
    ("gates", "version", "expected"),
    [
        ({}, "v1.36.3", Verdict.WARN),
        ({}, "v1.37.0", Verdict.WARN),
        ({}, None, Verdict.WARN),
        ({}, "v1.38.0", Verdict.UNKNOWN),
        ({"PodLevelResourceManagers": True}, "v1.36.3", Verdict.PASS),
        ({"PodLevelResourceManagers": False}, "v1.38.0", Verdict.WARN),
        (None, "v1.36.3", Verdict.UNKNOWN),
    ],
)
def test_pod_level_resources_need_the_gate_of_the_managers(
    gates: Mapping[str, bool] | None, version: str | None, expected: Verdict
) -> None:
    stated = pod(GPU_ONLY, qos_class="Guaranteed", **WHOLE)
    assert result("QOS-003", node(stated, version=version, feature_gates=gates)).verdict is expected


def test_a_pod_that_is_not_guaranteed_loses_nothing_by_the_gate() -> None:
    stated = pod(GPU_ONLY, requests={"cpu": 1000}, limits={})
    assert outcome("QOS-003", node(stated)) == PASS


@pytest.mark.parametrize(
    ("stated", "version", "is_lost"),
    [
        ({}, "v1.36.3", True),
        ({}, "v1.37.0", False),
        ({}, "v1.33.0", False),
        ({"hugepages-2Mi": 1}, "v1.37.0", True),
        ({"hugepages-2Mi": 1, "cpu": 1}, "v1.37.0", False),
    ],
)
def test_a_class_lost_to_a_field_without_limits_is_told(
    stated: Mapping[str, int], version: str, is_lost: bool
) -> None:
    found = result("QOS-004", node(pod(APP, requests=stated, limits=stated), version=version))
    words = "BestEffort by a spec.resources without limits of CPU and memory"
    assert [each.observed for each in found.findings] == [words] * is_lost


def test_a_class_that_pod_level_resources_raise_is_not_lost() -> None:
    raised = pod(GPU_ONLY, requests={"cpu": 1}, limits={})
    assert outcome("QOS-004", node(raised)) == PASS


def test_a_pinned_container_that_its_quota_stops_is_named() -> None:
    throttled = pod(replace(RUNNING, throttled=412), uid="u")
    assert outcome("QOS-005", node(throttled)) == (
        Verdict.WARN,
        ("ml/job-0 container app: exclusive CPUs 0-7, stopped by its quota in 412 periods",),
    )


@pytest.mark.parametrize(
    ("container", "expected"),
    [
        (replace(RUNNING, cpus=CpuSet(), throttled=9), PASS),
        (replace(RUNNING, cpus=CpuSet(), throttled=None), PASS),
        (replace(RUNNING, id=None, throttled=None), PASS),
        (
            replace(RUNNING, throttled=None),
            (Verdict.UNKNOWN, ("cgroup of ml/job-0 container app",)),
        ),
        (
            replace(RUNNING, cpus=None),
            (Verdict.UNKNOWN, ("exclusive CPUs of ml/job-0 container app",)),
        ),
        (replace(RUNNING, cpus=None, kind=ContainerKind.INIT), PASS),
    ],
    ids=["shared", "shared, no cgroup", "not running", "no cgroup", "no CPUs", "init"],
)
def test_only_running_containers_with_cpus_of_their_own_are_judged(
    container: Container, expected: tuple[Verdict, tuple[str, ...]]
) -> None:
    assert outcome("QOS-005", node(pod(container, uid="u"))) == expected


def test_a_container_that_only_the_kubelet_knows_is_judged() -> None:
    listed = Container(
        name="app",
        cpus=CpuSet.parse("0-1"),
        devices=(AssignedDevices(resource="nvidia.com/gpu", ids=("g",)),),
        throttled=1,
    )
    assert result("QOS-005", node(pod(listed))).verdict is Verdict.WARN


TRAP = pod(init(2000), APP)
REMARK = (
    "ml/job-0 container fetch: an init container with 2 CPUs for itself, chosen without "
    "the GPUs, which fixes the NUMA nodes of the other containers"
)


def test_an_init_container_that_is_placed_before_the_gpus_is_remarked() -> None:
    assert outcome("QOS-006", node(TRAP)) == (Verdict.PASS, (REMARK,))


@pytest.mark.parametrize(
    "settings",
    [
        {"topology_manager_scope": "pod"},
        {"topology_manager_policy": "none"},
        {"cpu_manager_policy": "none"},
    ],
)
def test_an_init_container_traps_nobody_under_other_settings(settings: Mapping[str, str]) -> None:
    assert outcome("QOS-006", node(TRAP, **settings)) == PASS


@pytest.mark.parametrize(
    "harmless",
    [
        pytest.param(pod(init(1500), APP), id="a part of a CPU"),
        pytest.param(pod(init(2000, **{"nvidia.com/gpu": 1}), APP), id="with the GPUs"),
        pytest.param(pod(replace(init(2000), kind=ContainerKind.SIDECAR), APP), id="a sidecar"),
        pytest.param(pod(init(2000), APP, qos_class="Burstable"), id="not Guaranteed"),
        pytest.param(pod(init(2000), GPU_ONLY), id="GPUs without CPUs"),
        pytest.param(pod(init(2000), APP, **WHOLE), id="pod-level resources"),
    ],
)
def test_an_init_container_that_leaves_the_choice_is_no_trap(harmless: Pod) -> None:
    assert outcome("QOS-006", node(harmless)) == PASS


def test_the_trap_needs_the_kubelet_s_settings_and_the_numa_nodes() -> None:
    blind = replace(node(TRAP, topology_manager_scope=None), numa_nodes=None)
    assert outcome("QOS-006", blind) == (Verdict.UNKNOWN, ("NUMA nodes", "topologyManagerScope"))


def test_the_gpu_operators_trial_of_a_node_is_no_job() -> None:
    trial = pod(GPU_ONLY, owner_kind="ClusterPolicy")
    assert result("QOS-001", node(trial)).verdict is Verdict.PASS
    assert result("QOS-002", node(trial)).verdict is Verdict.PASS
    assert result("QOS-001", node(replace(trial, owner_kind="Job"))).verdict is Verdict.FAIL
