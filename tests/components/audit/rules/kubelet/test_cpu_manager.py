"""KUB-002, KUB-014, KUB-015: the CPUs that the kubelet keeps for the system."""

from typing import Any

import pytest
from msgspec.structs import replace

from nodetopo.checks.rule import Finding
from tests.components.audit.judge import healthy, result
from tests.components.audit.rules.kubelet.kubelet_node import FILE, missing, node, observed, skipped

SMALL: dict[str, Any] = {"reserved_system_cpus": ""}


def test_no_reserved_cpu_is_found_with_the_fields_that_could_state_one() -> None:
    (finding,) = result("KUB-002", node(**SMALL)).findings
    assert finding == Finding(
        subject=f"systemReserved in {FILE} and kubeReserved in {FILE}",
        observed="no CPU reserved",
        expected="CPUs in reservedSystemCPUs, systemReserved or kubeReserved",
    )


@pytest.mark.parametrize(
    "reserved", [{"system_reserved": {"cpu": "500m"}}, {"kube_reserved": {"cpu": "1"}}]
)
def test_an_amount_in_either_reservation_is_enough(reserved: dict[str, Any]) -> None:
    assert observed("KUB-002", node(**SMALL, **reserved)) == []


def test_more_cpus_than_are_online_cannot_be_reserved() -> None:
    found = observed("KUB-002", node(**SMALL, kube_reserved={"cpu": "224.5"}))
    assert found == ["224500m of 224 CPUs"]


def test_as_many_cpus_as_are_online_can_be_reserved() -> None:
    assert observed("KUB-002", node(**SMALL, kube_reserved={"cpu": "223.5"})) == []


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        ("0,224-225", "0,224-225, of which 224-225 are not online"),
        ("0-", "0-"),
        ("3-1", "3-1"),
        ("0, 1", "0, 1"),
        ("0-99999999", "0-99999999"),
    ],
)
def test_reserved_cpus_that_the_kubelet_refuses_are_found(text: str, finding: str) -> None:
    assert observed("KUB-002", node(reserved_system_cpus=text)) == [finding]


def test_reserved_cpus_exclude_cgroups_for_the_reservation() -> None:
    (finding,) = result("KUB-002", node(kube_reserved_cgroup="/kube.slice")).findings
    assert (finding.subject, finding.observed) == (f"kubeReservedCgroup in {FILE}", "/kube.slice")


def test_a_reservation_that_is_no_quantity_is_found() -> None:
    (finding,) = result("KUB-002", node(**SMALL, kube_reserved={"cpu": "one"})).findings
    assert (finding.observed, finding.expected) == ("cpu: one", "a quantity")


def test_policy_none_needs_no_reservation() -> None:
    snapshot = node(**SMALL, cpu_manager_policy="none")
    assert skipped("KUB-002", snapshot) == "cpuManagerPolicy is none"


def test_the_settings_on_disk_are_those_that_stop_the_next_start() -> None:
    snapshot = replace(node(**SMALL), kubelet=healthy().kubelet)
    assert observed("KUB-002", snapshot) == ["no CPU reserved"]


def test_without_settings_on_disk_those_in_force_are_judged() -> None:
    snapshot = replace(node(**SMALL), kubelet_on_disk=None)
    assert observed("KUB-002", snapshot) == ["no CPU reserved"]


def test_a_reservation_needs_the_settings_and_the_online_cpus() -> None:
    assert missing("KUB-002", node(system_reserved=None)) == ("systemReserved",)
    assert missing("KUB-002", replace(healthy(), cpu=None)) == ("online CPUs",)


def test_half_a_core_in_the_list_is_found_with_the_other_threads() -> None:
    found = observed("KUB-014", node(reserved_system_cpus="0-1,112"))
    assert found == ["0-1,112, without the other threads 113"]


def test_whole_cores_in_the_list_are_fine() -> None:
    assert observed("KUB-014", node(reserved_system_cpus="0-1,112-113")) == []


def test_half_a_core_in_an_amount_is_found() -> None:
    snapshot = node(**SMALL, kube_reserved={"cpu": "2500m"})
    assert observed("KUB-014", snapshot) == ["3 CPUs, with 2 to a core"]


def test_whole_cores_in_an_amount_are_fine() -> None:
    assert observed("KUB-014", node(**SMALL, kube_reserved={"cpu": "3500m"})) == []


def test_whole_cores_need_the_cores() -> None:
    cpu = healthy().cpu
    assert cpu is not None
    assert missing("KUB-014", replace(healthy(), cpu=replace(cpu, cores=()))) == ("CPU cores",)


def test_a_reservation_on_one_node_with_gpus_is_remarked_with_what_is_left() -> None:
    assert observed("KUB-015", node(reserved_system_cpus="0-3,112-115")) == [
        "0-3,112-115, all on NUMA node 0; CPUs left for pods: 104 on node 0, 112 on node 1"
    ]


def test_a_reservation_on_both_nodes_is_spread() -> None:
    assert observed("KUB-015", node(reserved_system_cpus="0-3,56")) == []


def test_gpus_on_one_node_leave_nothing_to_spread() -> None:
    whole = healthy()
    gpus = tuple(replace(gpu, numa_node=0) for gpu in whole.gpus)
    assert skipped("KUB-015", replace(whole, gpus=gpus)) == "all GPUs have one NUMA node"


def test_a_spread_needs_the_gpus_nodes() -> None:
    whole = healthy()
    gpus = (replace(whole.gpus[0], numa_node=None), *whole.gpus[1:])
    assert missing("KUB-015", replace(whole, gpus=gpus)) == ("NUMA node of GPU0",)
