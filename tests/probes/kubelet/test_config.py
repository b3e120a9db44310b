"""The kubelet's settings from a directory that stands for a host."""

import json
import os
import re
from pathlib import Path

import pytest
import yaml
from msgspec.structs import replace

from nodetopo.model.kubelet import ReservedMemory
from nodetopo.model.probe_issue import ProbeIssue
from nodetopo.probes.kubelet.config import read_kubelet_settings
from nodetopo.probes.kubelet.file import MAX_BYTES
from tests.probes.kubelet.kubelet_host import (
    CONFIG,
    DEFAULTS,
    DROP_INS,
    EVICTION,
    HEADER,
    process,
    read,
    refused,
    write,
)


def test_what_a_file_leaves_out_has_the_kubelets_default(tmp_path: Path) -> None:
    assert read(tmp_path, {CONFIG: HEADER}) == DEFAULTS


@pytest.mark.parametrize("more", ["---\n", "---\nkind: Other\n", "x: !foo 1\n", "---\n{[\n"])
def test_a_file_is_read_as_far_as_the_kubelet_reads_it(tmp_path: Path, more: str) -> None:
    found = read(tmp_path, {CONFIG: f"{HEADER}topologyManagerPolicy: restricted\n{more}"})
    assert replace(found, odd_keys=DEFAULTS.odd_keys) == replace(
        DEFAULTS, topology_manager_policy="restricted"
    )


def test_a_file_is_read_whole(tmp_path: Path) -> None:
    text = HEADER + (
        "cpuManagerPolicy: static\n"
        'cpuManagerPolicyOptions: {full-pcpus-only: "true"}\n'
        "memoryManagerPolicy: Static\n"
        "topologyManagerPolicy: restricted\n"
        "topologyManagerScope: pod\n"
        'topologyManagerPolicyOptions: {max-allowable-numa-nodes: "34"}\n'
        "reservedSystemCPUs: 0,56\n"
        "systemReserved: {memory: 500Mi}\n"
        "kubeReserved: {cpu: 100m}\n"
        "evictionHard: {memory.available: 1Gi}\n"
        "reservedMemory:\n"
        "- {numaNode: 0, limits: {memory: 1Gi}}\n"
        "- {numaNode: 1, limits: {memory: 1073741824}}\n"
        "featureGates: {MemoryQoS: true}\n"
        "enforceNodeAllocatable: [pods, kube-reserved]\n"
        "systemReservedCgroup: /system\n"
        "kubeReservedCgroup: /kube\n"
        "cgroupDriver: systemd\n"
        "cpuCFSQuota: false\n"
        "failSwapOn: false\n"
        "memorySwap: {swapBehavior: LimitedSwap}\n"
        "podPidsLimit: 4096\n"
        "maxPods: 250.0\n"
    )
    assert read(tmp_path, {CONFIG: text}) == replace(
        DEFAULTS,
        cpu_manager_policy="static",
        cpu_manager_options={"full-pcpus-only": "true"},
        memory_manager_policy="Static",
        topology_manager_policy="restricted",
        topology_manager_scope="pod",
        topology_manager_options={"max-allowable-numa-nodes": "34"},
        reserved_system_cpus="0,56",
        system_reserved={"cpu": "2", "memory": "500Mi"},
        kube_reserved={},
        eviction_hard={"memory.available": "1Gi"},
        reserved_memory=(
            ReservedMemory(numa_node=0, limits={"memory": "1Gi"}),
            ReservedMemory(numa_node=1, limits={"memory": "1073741824"}),
        ),
        feature_gates={"MemoryQoS": True},
        enforce_node_allocatable=("pods", "kube-reserved"),
        system_reserved_cgroup="/system",
        kube_reserved_cgroup="/kube",
        cgroup_driver="systemd",
        cpu_cfs_quota=False,
        fail_swap_on=False,
        swap_behavior="LimitedSwap",
        pod_pids_limit=4096,
        max_pods=250,
    )


def test_json_indented_with_tabs_is_read(tmp_path: Path) -> None:
    text = json.dumps({**yaml.safe_load(HEADER), "cpuManagerPolicy": "static"}, indent="\t")
    assert read(tmp_path, {CONFIG: text}).cpu_manager_policy == "static"


def test_an_empty_or_null_policy_is_the_default(tmp_path: Path) -> None:
    text = HEADER + 'cpuManagerPolicy: ""\ntopologyManagerPolicy: null\n'
    assert read(tmp_path, {CONFIG: text}) == DEFAULTS


def test_drop_ins_merge_in_lexical_order_through_subdirectories(tmp_path: Path) -> None:
    files = {
        CONFIG: HEADER + 'cpuManagerPolicy: none\nkubeReserved: {cpu: "1", pid: "9"}\n',
        f"{DROP_INS}/10-a.conf": HEADER + 'cpuManagerPolicy: static\nkubeReserved: {cpu: "2"}\n',
        f"{DROP_INS}/20-b/x.conf": HEADER + "topologyManagerPolicy: restricted\n",
        f"{DROP_INS}/30-c.conf": HEADER + "topologyManagerPolicy: best-effort\n",
        f"{DROP_INS}/40-d.yaml": HEADER + "topologyManagerPolicy: none\n",
    }
    assert read(tmp_path, files) == replace(
        DEFAULTS,
        source="/var/lib/kubelet/config.yaml + 3 drop-ins in /etc/kubernetes/kubelet.conf.d",
        cpu_manager_policy="static",
        topology_manager_policy="best-effort",
        kube_reserved={"cpu": "2", "pid": "9"},
    )


def test_the_last_drop_in_by_name_wins(tmp_path: Path) -> None:
    files = {
        f"{DROP_INS}/{name}.conf": HEADER + f"reservedSystemCPUs: '{name}'\n"
        for name in ("10", "9", "40", "30", "80", "20", "70", "60", "50")
    }
    assert read(tmp_path, {CONFIG: HEADER, **files}).reserved_system_cpus == "9"


def test_null_in_a_drop_in_brings_the_default_back(tmp_path: Path) -> None:
    files = {
        CONFIG: HEADER + 'cpuManagerPolicy: static\nkubeReserved: {cpu: "1", pid: "9"}\n',
        f"{DROP_INS}/a.conf": HEADER + "cpuManagerPolicy: null\nkubeReserved: {pid: null}\n",
    }
    settings = read(tmp_path, files)
    assert (settings.cpu_manager_policy, settings.kube_reserved) == ("none", {"cpu": "1"})


def test_a_drop_in_adds_to_the_default_eviction_thresholds(tmp_path: Path) -> None:
    files = {
        CONFIG: HEADER,
        f"{DROP_INS}/a.conf": HEADER + "evictionHard: {memory.available: 2Gi}\n",
    }
    assert read(tmp_path, files).eviction_hard == {**EVICTION, "memory.available": "2Gi"}


def test_no_file_is_an_issue(tmp_path: Path) -> None:
    assert refused(tmp_path, {}) == ProbeIssue(
        probe="kubelet",
        subject="/var/lib/kubelet/config.yaml",
        reason="no such file, and no kubelet process was seen",
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not a KubeletConfiguration"),
        ("- a list", "not a KubeletConfiguration"),
        ("kind: KubeletConfig", "not a KubeletConfiguration"),
        ("kind: KubeletConfiguration", "apiVersion is not kubelet.config.k8s.io/v1beta1"),
        ("a: [", "not YAML: did not find expected node content in line 2"),
        (
            "a: !!python/object:os.system x",
            (
                "not YAML: could not determine a constructor for the tag "
                "'tag:yaml.org,2002:python/object:os.system' in line 1"
            ),
        ),
        ('a: !!int ""', "not YAML: not a whole number in line 1"),
        ("[" * 50_000, "nested more than 64 deep in line 1"),
        (HEADER + "cpuManagerPolicy: [static]", "cpuManagerPolicy: expected a text, found list"),
        (HEADER + "systemReserved: 5", "systemReserved: expected an object, found int"),
        (HEADER + "systemReserved: {cpu: 1}", "systemReserved.cpu: expected a text, found int"),
        (HEADER + "#" * MAX_BYTES, "larger than 1 MiB"),
    ],
    ids=range(12),
)
def test_a_malformed_file_is_an_issue_that_names_it(tmp_path: Path, text: str, reason: str) -> None:
    assert refused(tmp_path, {CONFIG: text}) == ProbeIssue(
        probe="kubelet", subject="/var/lib/kubelet/config.yaml", reason=reason
    )


def test_a_malformed_drop_in_is_an_issue_that_names_it(tmp_path: Path) -> None:
    issue = refused(tmp_path, {CONFIG: HEADER, f"{DROP_INS}/a.conf": "kind: Wrong"})
    assert issue.subject == "/etc/kubernetes/kubelet.conf.d/a.conf"


def test_a_drop_in_directory_that_is_not_there_is_an_issue(tmp_path: Path) -> None:
    flags = ("--config=/var/lib/kubelet/config.yaml", "--config-dir=/etc/none")
    issue = refused(tmp_path, {CONFIG: HEADER, **process("kubelet", *flags)})
    assert issue == ProbeIssue(
        probe="kubelet", subject="/etc/none", reason="No such file or directory"
    )


def test_bytes_that_are_no_text_are_an_issue(tmp_path: Path) -> None:
    write(tmp_path, {CONFIG: ""})
    (tmp_path / CONFIG).write_bytes(b"\xff\xfe")
    assert refused(tmp_path, {}).reason == "not UTF-8"


def test_a_pipe_in_place_of_the_file_does_not_block(tmp_path: Path) -> None:
    (tmp_path / CONFIG).parent.mkdir(parents=True)
    os.mkfifo(tmp_path / CONFIG)
    assert refused(tmp_path, {}).reason == "not a regular file"


def test_a_file_that_was_replaced_on_the_host_is_an_issue(tmp_path: Path) -> None:
    with (tmp_path / "before").open("w+") as mounted:
        mounted.write(HEADER)
        mounted.flush()
        (tmp_path / "before").unlink()
        (tmp_path / CONFIG).parent.mkdir(parents=True)
        (tmp_path / CONFIG).symlink_to(f"/proc/self/fd/{mounted.fileno()}")
        issue = refused(tmp_path, process("kubelet", f"--config=/{CONFIG}"))
    assert issue.reason == "replaced since it was mounted here; restart this pod"


def test_an_alias_that_contains_itself_is_an_issue(tmp_path: Path) -> None:
    files = {CONFIG: HEADER, f"{DROP_INS}/a.conf": HEADER + "kubeReserved: &a {x: *a}\n"}
    assert refused(tmp_path, files).reason == "an alias inside what it stands for in line 3"


def corpus() -> list[Path]:
    directory = os.environ.get("NODETOPO_CORPUS")
    return sorted(Path(directory, "kubelet").iterdir()) if directory else []


@pytest.mark.skipif(not corpus(), reason="NODETOPO_CORPUS names no directory of captures")
@pytest.mark.parametrize("path", corpus(), ids=lambda path: path.name)
def test_captured_configurations_are_read_and_other_files_refused(
    tmp_path: Path, path: Path
) -> None:
    text = path.read_text("utf-8")
    write(tmp_path, {CONFIG: text})
    settings, _ = read_kubelet_settings(tmp_path, tmp_path / "proc")
    policy = re.search(r"cpuManagerPolicy\W+(\w+)", text)
    is_configuration = re.search(r"\bkind\W+KubeletConfiguration\b", text)
    assert (settings.cpu_manager_policy if settings else None) == (
        (policy[1] if policy else "none") if is_configuration else None
    )
