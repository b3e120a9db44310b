"""Answers of a kubelet's ``/configz``, and of something else."""

import json
from typing import Any

import pytest

from nodetopo.errors import DecodeError
from nodetopo.model.kubelet import KubeletSettings, ReservedMemory
from nodetopo.probes.kubelet.api import settings_from_configz

ANSWER = {
    "kubeletconfig": {
        "kind": "KubeletConfiguration",
        "cgroupDriver": "systemd",
        "cpuManagerPolicy": "static",
        "cpuManagerPolicyOptions": {"full-pcpus-only": "true"},
        "memoryManagerPolicy": "Static",
        "topologyManagerPolicy": "restricted",
        "topologyManagerScope": "pod",
        "maxPods": 110,
        "podPidsLimit": -1,
        "cpuCFSQuota": True,
        "evictionHard": {"memory.available": "100Mi"},
        "featureGates": {"MemoryQoS": True},
        "failSwapOn": False,
        "memorySwap": {},
        "systemReserved": {"cpu": "2", "memory": "500Mi"},
        "reservedSystemCPUs": "0-1",
        "reservedMemory": [{"numaNode": 0, "limits": {"memory": "600Mi"}}],
        "enforceNodeAllocatable": ["pods"],
        "logging": {"verbosity": 0},
    }
}


def refused(text: str) -> DecodeError:
    with pytest.raises(DecodeError) as caught:
        settings_from_configz(text)
    return caught.value


def test_an_answer_is_read_whole() -> None:
    assert settings_from_configz(json.dumps(ANSWER)) == KubeletSettings(
        source="configz",
        cpu_manager_policy="static",
        cpu_manager_options={"full-pcpus-only": "true"},
        memory_manager_policy="Static",
        topology_manager_policy="restricted",
        topology_manager_scope="pod",
        topology_manager_options={},
        reserved_system_cpus="0-1",
        system_reserved={"cpu": "2", "memory": "500Mi"},
        kube_reserved={},
        eviction_hard={"memory.available": "100Mi"},
        reserved_memory=(ReservedMemory(numa_node=0, limits={"memory": "600Mi"}),),
        feature_gates={"MemoryQoS": True},
        enforce_node_allocatable=("pods",),
        system_reserved_cgroup="",
        kube_reserved_cgroup="",
        cgroup_driver="systemd",
        cpu_cfs_quota=True,
        fail_swap_on=False,
        swap_behavior="",
        pod_pids_limit=-1,
        max_pods=110,
    )


def test_an_older_kubelet_leaves_fields_unknown() -> None:
    found = settings_from_configz('{"kubeletconfig": {"cpuManagerPolicy": "none"}}')
    assert (found.max_pods, found.fail_swap_on) == (None, None)


@pytest.mark.parametrize(
    "text",
    ["{}", "[]", '{"kubeletconfig": []}', '{"kubeletconfig": {}}', '{"kubeproxy": {}}'],
)
def test_the_answer_of_another_program_is_refused(text: str) -> None:
    error = refused(text)
    assert (error.path, error.problem) == ("kubeletconfig", "no configuration of a kubelet")


@pytest.mark.parametrize("text", ["", "<html>", "[" * 100_000, '{"a": NaN}'])
def test_an_answer_that_is_not_json_is_refused(text: str) -> None:
    assert refused(text).path == ""


@pytest.mark.parametrize(
    ("field", "value", "path"),
    [
        ("cpuManagerPolicy", 5, "cpuManagerPolicy"),
        ("featureGates", {"A": "true"}, "featureGates.A"),
        ("systemReserved", {"cpu": 1}, "systemReserved.cpu"),
        ("reservedMemory", {}, "reservedMemory"),
        ("reservedMemory", [1], "reservedMemory[0]"),
        ("reservedMemory", [{"numaNode": 0.5}], "reservedMemory[0].numaNode"),
        ("reservedMemory", [{"limits": {"memory": {}}}], "reservedMemory[0].limits.memory"),
        ("enforceNodeAllocatable", ["pods", {}], "enforceNodeAllocatable[1]"),
        ("enforceNodeAllocatable", ["pods"] * 5000, "enforceNodeAllocatable"),
        ("maxPods", True, "maxPods"),
        ("maxPods", 1.5, "maxPods"),
        ("memorySwap", "x", "memorySwap"),
    ],
)
def test_a_field_of_the_wrong_kind_is_refused_with_its_place(
    field: str, value: Any, path: str
) -> None:
    config = {**ANSWER["kubeletconfig"], field: value}
    text = json.dumps({"kubeletconfig": config})
    assert refused(text).path == f"kubeletconfig.{path}"
