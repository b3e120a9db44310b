"""KUB-024, KUB-029: settings on disk that are not in force, or never were."""

from typing import Any

import pytest
from msgspec.structs import replace

from nodetopo.checks.rule import Finding, Verdict
from nodetopo.model.kubelet import KubeletSettings, ReservedMemory
from nodetopo.model.probe_issue import ProbeIssue
from nodetopo.model.snapshot import Snapshot
from tests.components.audit.judge import SETTINGS, healthy, result
from tests.components.audit.rules.kubelet.kubelet_node import FILE, missing, observed

DROP_IN = "/etc/kubernetes/kubelet.conf.d/20-numa.conf"


def drifted(force: dict[str, Any], disk: dict[str, Any]) -> Snapshot:
    return replace(
        healthy(),
        kubelet=replace(SETTINGS, source="configz", changed_since_start=None, **force),
        kubelet_on_disk=replace(SETTINGS, **disk),
    )


def test_a_setting_that_waits_for_a_restart_is_found_with_its_file() -> None:
    origins = {"topologyManagerPolicy": DROP_IN}
    snapshot = drifted({"topology_manager_policy": "none"}, {"origins": origins})
    (finding,) = result("KUB-024", snapshot).findings
    assert finding == Finding(
        subject=f"topologyManagerPolicy in {DROP_IN}",
        observed="in force: none",
        expected="single-numa-node, as stated",
    )


def test_a_setting_that_was_taken_away_is_found() -> None:
    snapshot = drifted({"system_reserved": {"memory": "2Gi"}}, {"system_reserved": {}})
    (finding,) = result("KUB-024", snapshot).findings
    assert (finding.observed, finding.expected) == (
        "in force: memory: 2Gi",
        "nothing, as stated",
    )


def test_of_a_map_only_what_differs_is_shown() -> None:
    now = {"memory.available": "100Mi", "nodefs.available": "10%"}
    then = {"memory.available": "1Gi", "nodefs.available": "10%"}
    snapshot = drifted({"eviction_hard": now}, {"eviction_hard": then})
    assert observed("KUB-024", snapshot) == ["in force: memory.available: 100Mi"]


@pytest.mark.parametrize(
    ("force", "disk"),
    [
        ({"system_reserved": {"memory": "2Gi"}}, {"system_reserved": {"memory": "2048Mi"}}),
        ({"reserved_system_cpus": "0,56,112,168"}, {"reserved_system_cpus": "0,56,112-112,168"}),
        ({"enforce_node_allocatable": ("pods", "a")}, {"enforce_node_allocatable": ("a", "pods")}),
        (
            {"reserved_memory": (ReservedMemory(numa_node=0, limits={"memory": "1Gi"}),)},
            {"reserved_memory": (ReservedMemory(numa_node=0, limits={"memory": "1024Mi"}),)},
        ),
        # The kubelet writes the number of reserved CPUs there itself.
        ({"system_reserved": {"memory": "2Gi", "cpu": "4"}}, {}),
        ({"kube_reserved": {}}, {"kube_reserved": {"cpu": "2"}}),
        ({"pod_pids_limit": None}, {"pod_pids_limit": 100}),
    ],
)
def test_the_same_in_other_words_or_unknown_is_no_drift(
    force: dict[str, Any], disk: dict[str, Any]
) -> None:
    assert result("KUB-024", drifted(force, disk)).findings == ()


def test_cpus_of_a_reservation_drift_where_no_list_overrides_them() -> None:
    base = {"reserved_system_cpus": ""}
    snapshot = drifted({**base, "kube_reserved": {"cpu": "1"}}, {**base})
    assert observed("KUB-024", snapshot) == ["in force: cpu: 1"]


@pytest.mark.parametrize(
    ("now", "then", "words"),
    [
        ({"cpu_cfs_quota": True}, {"cpu_cfs_quota": False}, "in force: true"),
        ({"max_pods": 110}, {"max_pods": 250}, "in force: 110"),
        ({"reserved_system_cpus": None}, {}, "in force: nothing"),
        ({"feature_gates": {"A": True}}, {}, "in force: A: true"),
        (
            {"enforce_node_allocatable": ()},
            {"enforce_node_allocatable": ("pods",)},
            "in force: nothing",
        ),
    ],
)
def test_values_read_as_in_a_file(now: dict[str, Any], then: dict[str, Any], words: str) -> None:
    assert observed("KUB-024", drifted(now, then)) == [words]


def test_without_an_answer_files_that_are_newer_than_the_kubelet_are_found() -> None:
    changed = replace(SETTINGS, changed_since_start=(FILE, DROP_IN))
    found = result("KUB-024", replace(healthy(), kubelet=changed, kubelet_on_disk=changed))
    assert [(one.subject, one.observed) for one in found.findings] == [
        (FILE, "written to after the kubelet started"),
        (DROP_IN, "written to after the kubelet started"),
    ]


def test_a_newer_file_that_says_the_same_is_no_drift() -> None:
    snapshot = drifted({}, {"changed_since_start": (FILE,)})
    assert result("KUB-024", snapshot).verdict is Verdict.PASS


def test_files_that_are_older_than_the_kubelet_are_what_it_runs_with() -> None:
    old = replace(SETTINGS, changed_since_start=())
    snapshot = replace(healthy(), kubelet=old, kubelet_on_disk=old)
    assert result("KUB-024", snapshot).verdict is Verdict.PASS
    assert result("KUB-024", replace(snapshot, kubelet=None)).verdict is Verdict.PASS


def test_a_node_whose_kubelet_is_not_known_at_all_is_unknown() -> None:
    assert missing("KUB-024", replace(healthy(), kubelet=None, kubelet_on_disk=None)) == (
        "kubelet settings on disk",
        "settings in force (configz)",
    )


def test_without_an_answer_and_a_start_it_is_unknown() -> None:
    undated = replace(SETTINGS, changed_since_start=None)
    issue = ProbeIssue(probe="kubelet", subject="/configz", reason="403")
    snapshot = replace(healthy(), kubelet=undated, kubelet_on_disk=undated, issues=(issue,))
    assert missing("KUB-024", snapshot) == ("settings in force (configz) (/configz: 403)",)


def test_an_answer_without_the_disk_is_unknown() -> None:
    snapshot = replace(drifted({}, {}), kubelet_on_disk=None)
    assert missing("KUB-024", snapshot) == ("kubelet settings on disk",)


def test_a_file_that_the_kubelet_passes_over_is_found() -> None:
    disk = replace(SETTINGS, unloaded_drop_ins=(DROP_IN,))
    found = result("KUB-029", replace(healthy(), kubelet_on_disk=disk)).findings
    assert [(one.subject, one.observed) for one in found] == [
        (DROP_IN, "not loaded by the running kubelet")
    ]


@pytest.mark.parametrize("disk", [None, replace(SETTINGS, unloaded_drop_ins=None)])
def test_without_the_running_kubelets_flags_it_is_unknown(disk: KubeletSettings | None) -> None:
    snapshot = replace(healthy(), kubelet_on_disk=disk)
    assert missing("KUB-029", snapshot) == ("flags of the running kubelet",)
