"""Flags as the kubelet's own parser reads them."""

from pathlib import Path

import pytest

from nodetopo.model.kubelet import ReservedMemory
from tests.probes.kubelet.kubelet_host import origins, process, read, refused


def test_a_switch_takes_no_word_after_it(tmp_path: Path) -> None:
    settings = read(tmp_path, process("kubelet", "--cpu-cfs-quota", "--fail-swap-on=F"))
    assert (settings.cpu_cfs_quota, settings.fail_swap_on) == (True, False)


def test_a_flag_with_a_value_takes_the_next_word_whatever_it_is(tmp_path: Path) -> None:
    words = ("--topology-manager-scope", "--cpu-manager-policy=static")
    settings = read(tmp_path, process("kubelet", *words))
    assert settings.topology_manager_scope == "--cpu-manager-policy=static"
    assert settings.cpu_manager_policy == "none"


def test_the_last_of_two_texts_wins_and_two_maps_are_joined(tmp_path: Path) -> None:
    words = (
        "--cpu-manager-policy=static",
        "--cpu-manager-policy=none",
        "--kube-reserved=cpu=1, pid = 9 ,",
        "--kube-reserved=memory=1Gi",
    )
    settings = read(tmp_path, process("kubelet", *words))
    assert settings.cpu_manager_policy == "none"
    assert settings.kube_reserved == {"cpu": "1", "memory": "1Gi", "pid": "9"}


def test_policy_options_of_the_cpu_manager_are_one_a_flag(tmp_path: Path) -> None:
    words = ("--cpu-manager-policy-options=full-pcpus-only=true,x=1",)
    settings = read(tmp_path, process("kubelet", *words))
    assert settings.cpu_manager_options == {"full-pcpus-only": "true,x=1"}


def test_reserved_memory_is_read_by_node(tmp_path: Path) -> None:
    words = ("--reserved-memory=0:memory=1Gi,hugepages-1Gi=2Gi;1:memory=3Gi",)
    assert read(tmp_path, process("kubelet", *words)).reserved_memory == (
        ReservedMemory(numa_node=0, limits={"hugepages-1Gi": "2Gi", "memory": "1Gi"}),
        ReservedMemory(numa_node=1, limits={"memory": "3Gi"}),
    )


def test_an_empty_list_enforces_nothing(tmp_path: Path) -> None:
    words = ("--enforce-node-allocatable=",)
    assert read(tmp_path, process("kubelet", *words)).enforce_node_allocatable == ()


def test_flags_that_are_not_asked_for_are_passed_over(tmp_path: Path) -> None:
    words = ("--v=2", "--node-labels=a=b", "-v", "4", "--pod-max-pids=0x10")
    files = process("kubelet", *words)
    assert read(tmp_path, files).pod_pids_limit == 16
    assert origins(tmp_path, files) == {"podPidsLimit": "--pod-max-pids"}


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("--cpu-cfs-quota=yes", "neither true nor false: 'yes'"),
        ("--max-pods=many", "not a whole number: 'many'"),
        ("--kube-reserved=cpu", "not a list of key=value: 'cpu'"),
        ("--eviction-hard=memory.available=1Gi", "not a list of key<value: 'memory.available=1Gi'"),
        ("--feature-gates=A=maybe", "neither true nor false: 'maybe'"),
        ("--reserved-memory=memory=1Gi", "not of the form node:type=quantity: 'memory=1Gi'"),
    ],
)
def test_a_value_that_the_kubelet_refuses_is_an_issue_of_the_flag(
    tmp_path: Path, word: str, reason: str
) -> None:
    issue = refused(tmp_path, process("kubelet", word))
    assert (issue.subject, issue.reason) == (word.partition("=")[0], reason)
