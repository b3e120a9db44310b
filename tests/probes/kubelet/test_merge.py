"""How the kubelet joins what it is told, where that is surprising, and who said what.

Each surprise is how kubernetes v1.36.3 behaves; tests/lab/test_kubelet_settings.py holds our merge
against it.
"""

from pathlib import Path

import pytest

from nodetopo.model.kubelet import ReservedMemory
from tests.probes.kubelet.kubelet_host import (
    CONFIG,
    DROP_INS,
    EVICTION,
    HEADER,
    origins,
    process,
    read,
    refused,
)

FILE = "--config=/var/lib/kubelet/config.yaml"
MAIN = f"/{CONFIG}"


def test_null_in_a_drop_in_leaves_no_hard_eviction(tmp_path: Path) -> None:
    files = {CONFIG: HEADER, f"{DROP_INS}/a.conf": HEADER + "evictionHard: null\n"}
    assert read(tmp_path, files).eviction_hard == {}


def test_an_empty_hard_eviction_of_the_file_alone_stays_empty(tmp_path: Path) -> None:
    assert read(tmp_path, {CONFIG: HEADER + "evictionHard: {}\n"}).eviction_hard == {}


def test_stated_thresholds_are_merged_with_the_defaults_on_request(tmp_path: Path) -> None:
    text = "mergeDefaultEvictionSettings: true\nevictionHard: {memory.available: 1Gi}\n"
    settings = read(tmp_path, {CONFIG: HEADER + text})
    assert settings.eviction_hard == {**EVICTION, "memory.available": "1Gi"}


def test_a_directory_of_drop_ins_takes_away_empty_lists_of_the_file(tmp_path: Path) -> None:
    files = {CONFIG: HEADER + "enforceNodeAllocatable: []\n"}
    assert read(tmp_path, files).enforce_node_allocatable == ()
    (tmp_path / DROP_INS).mkdir(parents=True)
    assert read(tmp_path, files).enforce_node_allocatable == ("pods",)


def test_an_empty_list_in_a_drop_in_counts(tmp_path: Path) -> None:
    files = {CONFIG: HEADER, f"{DROP_INS}/a.conf": HEADER + "enforceNodeAllocatable: []\n"}
    assert read(tmp_path, files).enforce_node_allocatable == ()


def test_a_list_of_a_drop_in_replaces_the_one_before(tmp_path: Path) -> None:
    memory = "reservedMemory: [{{numaNode: {}, limits: {{memory: 1Gi}}}}]\n"
    files = {
        CONFIG: HEADER + memory.format(0),
        f"{DROP_INS}/a.conf": HEADER + memory.format(1),
    }
    (reserved,) = read(tmp_path, files).reserved_memory or ()
    assert reserved.numa_node == 1


def test_the_case_of_a_field_counts_in_the_file_and_not_in_drop_ins(tmp_path: Path) -> None:
    wrong = HEADER + "cpumanagerpolicy: static\n"
    assert read(tmp_path, {CONFIG: wrong}).cpu_manager_policy == "none"
    files = {CONFIG: wrong, f"{DROP_INS}/README": ""}
    assert read(tmp_path, files).cpu_manager_policy == "none"
    assert read(tmp_path, {f"{DROP_INS}/a.conf": wrong}).cpu_manager_policy == "static"


def test_numbers_that_mean_nothing_are_the_defaults(tmp_path: Path) -> None:
    settings = read(tmp_path, {CONFIG: HEADER + "maxPods: 0\npodPidsLimit: -5\n"})
    assert (settings.max_pods, settings.pod_pids_limit) == (110, -1)


def test_flags_are_not_defaulted(tmp_path: Path) -> None:
    files = {CONFIG: HEADER, **process("kubelet", FILE, "--pod-max-pids=-5", "--max-pods=0")}
    settings = read(tmp_path, files)
    assert (settings.max_pods, settings.pod_pids_limit) == (0, -5)


def test_feature_gates_of_flags_and_files_are_joined(tmp_path: Path) -> None:
    files = {
        CONFIG: HEADER + "featureGates: {A: true, B: true}\n",
        **process("kubelet", FILE, "--feature-gates=B=false,C=1"),
    }
    assert read(tmp_path, files).feature_gates == {"A": True, "B": False, "C": True}
    assert origins(tmp_path, files) == {
        "featureGates.A": MAIN,
        "featureGates.B": "--feature-gates",
        "featureGates.C": "--feature-gates",
    }


def test_reserved_cpus_take_the_place_of_reserved_amounts(tmp_path: Path) -> None:
    text = (
        "reservedSystemCPUs: 0-3\n"
        "kubeReserved: {cpu: 500m, memory: 1Gi}\n"
        "systemReserved: {memory: 2Gi}\n"
    )
    settings = read(tmp_path, {CONFIG: HEADER + text})
    assert settings.kube_reserved == {"memory": "1Gi"}
    assert settings.system_reserved == {"cpu": "4", "memory": "2Gi"}


def test_reserved_cpus_that_are_none_change_nothing(tmp_path: Path) -> None:
    text = HEADER + "reservedSystemCPUs: zero\nkubeReserved: {cpu: 500m}\n"
    assert read(tmp_path, {CONFIG: text}).kube_reserved == {"cpu": "500m"}


def test_each_field_has_its_last_origin(tmp_path: Path) -> None:
    files = {
        CONFIG: HEADER
        + "cpuManagerPolicy: static\n"
        + "topologyManagerPolicy: restricted\n"
        + "topologyManagerScope: ''\n"
        + "memorySwap: {swapBehavior: NoSwap}\n"
        + "systemReserved: {cpu: '1', memory: 1Gi}\n"
        + "kubeReserved: {cpu: '1'}\n",
        f"{DROP_INS}/10.conf": HEADER
        + "topologyManagerPolicy: best-effort\n"
        + "systemReserved: {memory: 2Gi}\n"
        + "kubeReserved: null\n",
        f"{DROP_INS}/20/x.conf": HEADER + "cpumanagerpolicy: none\n",
        **process("kubelet", FILE, f"--config-dir=/{DROP_INS}", "--max-pods=9"),
    }
    assert origins(tmp_path, files) == {
        "cpuManagerPolicy": f"/{DROP_INS}/20/x.conf",
        "maxPods": "--max-pods",
        "memorySwap.swapBehavior": MAIN,
        "systemReserved.cpu": MAIN,
        "systemReserved.memory": f"/{DROP_INS}/10.conf",
        "topologyManagerPolicy": f"/{DROP_INS}/10.conf",
    }


def test_the_count_of_reserved_cpus_is_from_where_they_are_named(tmp_path: Path) -> None:
    files = {
        CONFIG: HEADER + "systemReserved: {cpu: '1'}\n",
        **process("kubelet", FILE, "--reserved-cpus=0-1"),
    }
    assert origins(tmp_path, files) == {
        "reservedSystemCPUs": "--reserved-cpus",
        "systemReserved.cpu": "--reserved-cpus",
    }


@pytest.mark.parametrize("field", ["maxPods: x", "featureGates: {A: 'true'}", "cpuCFSQuota: 1"])
def test_what_the_kubelet_would_refuse_is_an_issue_of_the_file_that_has_it(
    tmp_path: Path, field: str
) -> None:
    issue = refused(tmp_path, {CONFIG: HEADER, f"{DROP_INS}/a.conf": HEADER + field})
    assert issue.subject == f"/{DROP_INS}/a.conf"
    assert issue.reason.startswith(field.partition(":")[0])


def test_a_linked_directory_is_not_walked_without_a_slash(tmp_path: Path) -> None:
    files = {CONFIG: HEADER, "opt/real/a.conf": HEADER + "maxPods: 9\n"}
    (tmp_path / "opt/real").mkdir(parents=True)
    (tmp_path / "opt/link").symlink_to("real")
    plain = {**files, **process("kubelet", FILE, "--config-dir=/opt/link")}
    assert read(tmp_path, plain).max_pods == 110
    slash = {**files, **process("kubelet", FILE, "--config-dir=/opt/link/")}
    assert read(tmp_path, slash).max_pods == 9


def test_a_linked_folder_inside_is_taken_for_a_file(tmp_path: Path) -> None:
    (tmp_path / DROP_INS).mkdir(parents=True)
    (tmp_path / DROP_INS / "x.conf").symlink_to(".")
    assert refused(tmp_path, {CONFIG: HEADER}).reason == "not a regular file"


def test_hundreds_of_drop_ins_are_an_issue(tmp_path: Path) -> None:
    files = {f"{DROP_INS}/{number}.conf": HEADER for number in range(65)}
    found = refused(tmp_path, {CONFIG: HEADER, **files})
    assert found.reason == "more than 64 drop-ins or 1024 names"


def test_a_directory_of_drop_ins_that_is_any_large_directory_is_an_issue(tmp_path: Path) -> None:
    files = {f"{DROP_INS}/{number % 7}/{number}": "" for number in range(1018)}
    found = refused(tmp_path, {CONFIG: HEADER, **files})
    assert found.reason == "more than 64 drop-ins or 1024 names"


def test_files_that_are_large_together_are_an_issue(tmp_path: Path) -> None:
    comment = f"# {'x' * 600_000}\n"
    files = {CONFIG: HEADER + comment, f"{DROP_INS}/a.conf": HEADER + comment}
    found = refused(tmp_path, files)
    assert (found.subject, found.reason) == (
        f"/{DROP_INS}/a.conf",
        "larger than 1 MiB together with the files before it",
    )


def test_folders_in_folders_are_followed_so_far(tmp_path: Path) -> None:
    deep = f"{DROP_INS}/{'x/' * 18}a.conf"
    issue = refused(tmp_path, {CONFIG: HEADER, deep: HEADER})
    assert issue.reason == "nested more than 16 deep"


@pytest.mark.parametrize(
    ("main", "drop_in", "field", "value"),
    [
        ("", "TopologyManagerPolicy: restricted\n", "topology_manager_policy", "none"),
        ("", "topologymanagerpolicy: restricted\n", "topology_manager_policy", "restricted"),
        (
            "",
            "topologymanagerpolicy: restricted\ntopologyManagerPolicy: best-effort\n",
            "topology_manager_policy",
            "restricted",
        ),
        ("", "ReservedSystemCPUs: '0-1'\n", "reserved_system_cpus", "0-1"),
        (
            "systemReserved: {cpu: '1', memory: 1Gi}\n",
            "SystemReserved: {memory: 2Gi, pid: '9'}\n",
            "system_reserved",
            {"cpu": "1", "memory": "1Gi", "pid": "9"},
        ),
        (
            "systemReserved: {cpu: '1', memory: 1Gi}\n",
            "systemreserved: {memory: 2Gi, pid: '9'}\n",
            "system_reserved",
            {"cpu": "1", "memory": "2Gi", "pid": "9"},
        ),
        ("", "memorySwap: {SWAPBEHAVIOR: NoSwap}\n", "swap_behavior", "NoSwap"),
        (
            "",
            "reservedMemory: [{NumaNode: 1, LIMITS: {memory: 1Gi}, other: 1}]\n",
            "reserved_memory",
            (ReservedMemory(numa_node=1, limits={"memory": "1Gi"}),),
        ),
    ],
)
def test_in_drop_ins_keys_are_taken_in_any_case_in_the_order_of_their_bytes(
    tmp_path: Path, main: str, drop_in: str, field: str, value: object
) -> None:
    files = {CONFIG: HEADER + main, f"{DROP_INS}/a.conf": HEADER + drop_in}
    assert getattr(read(tmp_path, files), field) == value


def test_in_the_file_keys_are_taken_in_their_own_case_only(tmp_path: Path) -> None:
    text = HEADER + "topologymanagerpolicy: restricted\nmemorySwap: {swapbehavior: NoSwap}\n"
    settings = read(tmp_path, {CONFIG: text})
    assert (settings.topology_manager_policy, settings.swap_behavior) == ("none", "")


def test_a_key_in_another_case_has_the_drop_in_that_counts_as_its_origin(tmp_path: Path) -> None:
    files = {
        CONFIG: HEADER + "systemReserved: {memory: 1Gi}\n",
        f"{DROP_INS}/a.conf": HEADER
        + "SystemReserved: {memory: 2Gi, pid: '9'}\n"
        + "TopologyManagerPolicy: restricted\n"
        + "memorySwap: {SwapBehavior: NoSwap}\n",
    }
    assert origins(tmp_path, files) == {
        "memorySwap.swapBehavior": f"/{DROP_INS}/a.conf",
        "systemReserved.memory": MAIN,
        "systemReserved.pid": f"/{DROP_INS}/a.conf",
    }
