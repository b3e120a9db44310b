"""Why something is apart: the rule that explains it, or a word."""

import pytest
from msgspec.structs import replace

from nodetopo.components.audit import catalogue
from nodetopo.components.audit.alignment.record import Part
from nodetopo.components.audit.alignment.verdict import KNOWN
from nodetopo.model.kubelet_state import (
    CpuState,
    DeviceState,
    HeldDevices,
    KubeletState,
    MemoryState,
)
from nodetopo.model.node import NodeOffer, PlacedDevice
from nodetopo.model.numa import CpuSet
from nodetopo.model.pod import Container
from nodetopo.model.snapshot import Snapshot
from tests.components.audit.alignment.alignment_nodes import (
    GIB,
    GPU,
    NONE,
    STATIC,
    apart,
    node,
    placed,
    row,
    worker,
)
from tests.components.audit.judge import with_gpu

POOL = KubeletState(cpu=CpuState(policy="static", default=CpuSet.parse("0-223")))
H100 = replace(node(), kubelet_state=POOL)
SHARING = worker(H100, [0])
ELSEWHERE = worker(H100, [0], cpus="56-60", memory={0: GIB})
AMOUNTS = {"cpu": 1_500, "memory": GIB, GPU: 1}
FRACTION = replace(SHARING, requests=AMOUNTS, limits=AMOUNTS)


def with_policy(name: str) -> Snapshot:
    return replace(H100, kubelet=replace(STATIC, topology_manager_policy=name))


@pytest.mark.parametrize(
    ("container", "fields", "codes"),
    [
        (SHARING, {"qos_class": "Burstable"}, ("QOS-001",)),
        (FRACTION, {}, ("QOS-002",)),
        (FRACTION, {"qos_class": "Burstable"}, ("QOS-001", "QOS-002")),
        (SHARING, {"requests": AMOUNTS, "limits": AMOUNTS}, ("QOS-003",)),
        (replace(SHARING, requests=None, limits=None), {"qos_class": None}, ("shared-cpus",)),
        (replace(SHARING, requests=None), {"qos_class": "BestEffort"}, ("QOS-001",)),
        (SHARING, {}, ("unexplained",)),
    ],
    ids=["burstable", "fraction", "both", "pod level", "unclear", "class only", "none of them"],
)
def test_shared_cpus_are_explained_by_the_pod(
    container: Container, fields: dict[str, object], codes: tuple[str, ...]
) -> None:
    assert apart(placed(H100, container, **fields))[Part.CPUS] == codes


def test_the_class_is_worked_out_where_the_status_does_not_tell() -> None:
    fewer = replace(SHARING, limits={**AMOUNTS, "cpu": 20_000})
    assert apart(placed(H100, fewer, qos_class=None))[Part.CPUS] == ("QOS-001",)


def test_without_a_cpu_manager_no_pod_has_cpus_of_its_own() -> None:
    bare = placed(node(settings=NONE), SHARING)
    assert apart(bare) == {Part.CPUS: ("KUB-001",), Part.MEMORY: ("KUB-004",)}
    burstable = placed(node(settings=NONE), SHARING, qos_class="Burstable")
    assert apart(burstable) == {
        Part.CPUS: ("KUB-001", "QOS-001"),
        Part.MEMORY: ("KUB-004", "QOS-001"),
    }


def test_what_the_managers_wrote_down_counts_more_than_the_settings() -> None:
    state = KubeletState(cpu=CpuState(policy="none"), memory=MemoryState(policy="None"))
    found = apart(placed(replace(H100, kubelet_state=state), SHARING))
    assert found == {Part.CPUS: ("KUB-001",), Part.MEMORY: ("KUB-004",)}


@pytest.mark.parametrize(
    ("policy", "code"),
    [
        ("none", "KUB-003"),
        ("best-effort", "fragmented"),
        ("restricted", "unexplained"),
        ("single-numa-node", "unexplained"),
    ],
)
@pytest.mark.parametrize(
    ("container", "part"),
    [
        (ELSEWHERE, Part.CPUS),
        (worker(H100, [0], cpus="0-4", memory={1: GIB}), Part.MEMORY),
        (worker(H100, [0], hcas=["mlx5_7"], cpus="0-4", memory={0: GIB}), Part.HCAS),
        (worker(H100, [0, 4], cpus="0-4,56", memory={0: GIB, 1: GIB}), Part.GPUS),
    ],
    ids=["cpus", "memory", "hcas", "gpus"],
)
def test_what_the_topology_manager_is_to_bring_together_is_explained_by_its_policy(
    policy: str, code: str, container: Container, part: Part
) -> None:
    assert apart(placed(with_policy(policy), container)) == {part: (code,)}


def test_without_settings_the_policy_is_not_known() -> None:
    assert apart(placed(replace(H100, kubelet=None), ELSEWHERE)) == {Part.CPUS: ("unknown-policy",)}


def test_cpus_that_fit_one_numa_node_are_packed_there() -> None:
    packed = worker(H100, range(8), cpus="0-19", memory={0: GIB, 1: GIB})
    assert apart(placed(H100, packed)) == {Part.CPUS: ("packed",)}
    assert apart(placed(with_policy("none"), packed)) == {Part.CPUS: ("KUB-003",)}


def test_a_gpu_without_a_numa_node_explains_what_the_kubelet_could_not_know() -> None:
    blind = with_gpu(H100, 0, lambda gpu: replace(gpu, numa_node=None))
    assert apart(placed(blind, ELSEWHERE)) == {Part.CPUS: ("NUM-001",)}


@pytest.mark.parametrize("policy", ["none", "best-effort", "restricted"])
def test_a_device_without_a_node_is_what_its_plugin_kept_to_itself(policy: str) -> None:
    uuid = H100.gpus[0].id
    offer = NodeOffer(devices=(PlacedDevice(resource=GPU, id=uuid, numa_nodes=()),))
    silent = replace(with_policy(policy), offer=offer)
    causes = apart(placed(silent, ELSEWHERE))[Part.CPUS]
    assert causes == (*(("KUB-003",) if policy == "none" else ()), "device-without-node")


def test_the_kubelets_checkpoint_tells_the_same_of_a_device() -> None:
    held = HeldDevices(
        pod_uid="u",
        container="c",
        resource=GPU,
        ids={"-1": (H100.gpus[0].id,), "9" * 5000: ("GPU-x",)},
    )
    state = replace(POOL, devices=DeviceState(held=(held,)))
    found = apart(placed(replace(with_policy("restricted"), kubelet_state=state), ELSEWHERE))
    assert found == {Part.CPUS: ("device-without-node",)}


def test_a_cgroup_that_is_wider_than_the_own_cpus_was_changed_by_something_else() -> None:
    pinned = worker(H100, [0], cpus="0-4", memory={0: GIB})
    wide = replace(pinned, cpuset=CpuSet.parse("0-223"))
    assert apart(placed(with_policy("none"), wide))[Part.CPUS] == ("unexplained",)
    elsewhere = replace(SHARING, cpus=CpuSet.parse("0-4"), memory_nodes=(1,))
    assert apart(placed(with_policy("none"), elsewhere)) == {Part.MEMORY: ("unexplained",)}


def test_causes_are_told_once_the_one_to_begin_with_first() -> None:
    found = row(placed(node(settings=NONE), SHARING, qos_class="Burstable"))
    assert [cause.code for cause in found.causes] == ["KUB-001", "QOS-001", "KUB-004"]


def test_every_cause_that_looks_like_a_rule_is_one() -> None:
    codes = {rule.code for rule in catalogue.RULES}
    assert {one.code for one in KNOWN if one.code[0].isupper()} - codes <= {"QOS-003"}
    assert len({one.code for one in KNOWN}) == len(KNOWN)
