"""KUB-011, KUB-012, KUB-013: options that give pods better CPUs."""

import pytest
from msgspec.structs import replace

from nodetopo.model.numa import CpuSet, CpuTopology
from nodetopo.model.snapshot import Snapshot
from tests.components.audit.judge import NODE, healthy
from tests.components.audit.rules.kubelet.kubelet_node import missing, node, observed, skipped

CODES = ("KUB-011", "KUB-012", "KUB-013")


def cpu() -> CpuTopology:
    found = healthy().cpu
    assert found is not None
    return found


def with_split_caches(snapshot: Snapshot) -> Snapshot:
    """Give each NUMA node of the DGX two L3 caches."""
    groups = ("0-27,112-139", "28-55,140-167", "56-83,168-195", "84-111,196-223")
    return replace(snapshot, cpu=replace(cpu(), l3_groups=tuple(map(CpuSet.parse, groups))))


def of_version(version: str | None, snapshot: Snapshot) -> Snapshot:
    return replace(snapshot, node_status=replace(NODE, kubelet_version=version))


@pytest.mark.parametrize("value", ["false", "0", "maybe"])
def test_an_option_that_is_stated_and_not_true_is_off(value: str) -> None:
    snapshot = node(cpu_manager_options={"full-pcpus-only": value})
    assert observed("KUB-011", snapshot) == ["full-pcpus-only is not on"]


@pytest.mark.parametrize("value", ["true", "1", "T", "True"])
def test_an_option_is_on_as_go_reads_truth(value: str) -> None:
    assert observed("KUB-011", node(cpu_manager_options={"full-pcpus-only": value})) == []


def test_cores_with_one_thread_cannot_be_shared() -> None:
    snapshot = replace(node(cpu_manager_options={}), cpu=replace(cpu(), smt=False))
    assert skipped("KUB-011", snapshot) == "the CPU's cores have one thread"


def test_unknown_threads_leave_shared_cores_unknown() -> None:
    snapshot = replace(node(cpu_manager_options={}), cpu=replace(cpu(), smt=None))
    assert missing("KUB-011", snapshot) == ("hardware threads of the CPU",)


def test_spreading_over_cores_is_a_choice_against_whole_cores() -> None:
    snapshot = node(cpu_manager_options={"distribute-cpus-across-cores": "true"})
    assert observed("KUB-011", snapshot) == []


@pytest.mark.parametrize("code", CODES)
def test_policy_none_has_no_use_for_options(code: str) -> None:
    snapshot = with_split_caches(node(cpu_manager_policy="none", cpu_manager_options={}))
    assert skipped(code, snapshot) == "cpuManagerPolicy is none"


def test_shared_reserved_cpus_are_remarked() -> None:
    assert observed("KUB-012", node(cpu_manager_options={})) == ["strict-cpu-reservation is not on"]


def test_a_reservation_by_amount_has_no_cpus_to_be_strict_about() -> None:
    snapshot = node(cpu_manager_options={}, reserved_system_cpus=None)
    assert skipped("KUB-012", snapshot) == "reservedSystemCPUs is not stated"


@pytest.mark.parametrize(
    ("code", "version", "reason"),
    [
        ("KUB-012", "v1.32.9", "Kubernetes 1.33 is needed"),
        ("KUB-013", "v1.33.5-gke.1", "Kubernetes 1.34 is needed"),
        ("KUB-012", "v1.33.0", None),
        ("KUB-013", "v1.34.0", None),
    ],
)
def test_an_option_is_advised_only_where_it_needs_no_alpha_gate(
    code: str, version: str, reason: str | None
) -> None:
    snapshot = of_version(version, with_split_caches(node(cpu_manager_options={})))
    assert skipped(code, snapshot) == reason


@pytest.mark.parametrize("code", ["KUB-012", "KUB-013"])
def test_an_unknown_version_leaves_the_advice_unknown(code: str) -> None:
    snapshot = of_version(None, with_split_caches(node(cpu_manager_options={})))
    assert missing(code, snapshot) == ("version of the kubelet",)


def test_the_version_of_the_settings_goes_before_the_nodes() -> None:
    settings = node(cpu_manager_options={}, version="v1.32.0")
    assert skipped("KUB-012", settings) == "Kubernetes 1.33 is needed"


def test_several_caches_of_one_numa_node_are_remarked() -> None:
    snapshot = with_split_caches(node(cpu_manager_options={}))
    assert observed("KUB-013", snapshot) == ["prefer-align-cpus-by-uncorecache is not on"]


@pytest.mark.parametrize("option", ["distribute-cpus-across-numa", "distribute-cpus-across-cores"])
def test_caches_are_not_advised_beside_options_that_exclude_them(option: str) -> None:
    snapshot = with_split_caches(node(cpu_manager_options={option: "true"}))
    assert observed("KUB-013", snapshot) == []


def test_one_cache_for_each_numa_node_needs_no_option() -> None:
    assert skipped("KUB-013", healthy()) == "each NUMA node has one L3 cache"


def test_a_virtual_machine_shows_no_true_caches() -> None:
    snapshot = replace(healthy(), cpu=replace(cpu(), l3_groups=(), is_virtual=True))
    assert skipped("KUB-013", snapshot) == "virtual machine"


def test_unlisted_caches_are_unknown() -> None:
    snapshot = replace(healthy(), cpu=replace(cpu(), l3_groups=()))
    assert missing("KUB-013", snapshot) == ("L3 caches of the CPU",)
