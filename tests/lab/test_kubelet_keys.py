"""Which keys of its files the kubelet passes over, by its own log and by our rules."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from nodetopo.checks.engine import evaluate
from nodetopo.components.audit.catalogue import rule
from nodetopo.model.kubelet_keys import KEYS, SINCE, Keys
from nodetopo.model.node import NodeStatus
from nodetopo.model.snapshot import Snapshot
from nodetopo.probes.kubelet.api import settings_from_configz
from nodetopo.probes.kubelet.config import read_kubelet_settings
from tests.lab.build import kubernetes_version
from tests.lab.lone_kubelet import LoneKubelet
from tests.lab.release import chosen
from tests.lab.test_kubelet_settings import plain

pytestmark = pytest.mark.lab

HEADER = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}
MAIN, DROP_IN = "config.yaml", "conf.d/a.conf"
FILE = "--config=/var/lib/kubelet/config.yaml"
FOLDER = "--config-dir=/var/lib/kubelet/conf.d"
NOTHING = "--enforce-node-allocatable="
LISTS = ("registerWithTaints", "reservedMemory", "shutdownGracePeriodByPodPriority")
DURATION = re.compile(
    "(?!evictionSoft|evictionMax).*(Age|CriticalPods|Frequency|Interval|Period|TTL|Timeout)"
)
"""Keys whose value may not be null."""

ONE_NUMA, BEST = "single-numa-node", "best-effort"
NEAREST = {"prefer-closest-numa-nodes": "true"}


@pytest.fixture(scope="module")
def lone(namespaces: None) -> Iterator[LoneKubelet]:
    """Return a machine for one kubelet after another."""
    del namespaces
    machine = LoneKubelet()
    yield machine
    machine.close()


def started(lone: LoneKubelet, files: Mapping[str, str]) -> tuple[bool, str]:
    """Return whether a kubelet lives on *files*, and what it wrote."""
    flags = (FILE, FOLDER) if DROP_IN in files else (FILE,)
    before = _written(lone)
    return lone.start(files, (*flags, NOTHING)), _written(lone)[len(before) :]


def _written(lone: LoneKubelet) -> str:
    try:
        return lone.log()
    except FileNotFoundError:
        return ""


def unknown_to_the_kubelet(log: str) -> set[str]:
    """Return the keys that a kubelet's log names as unknown."""
    return set(re.findall(r'unknown field \\"([^"]*)\\"', log))


def found(lone: LoneKubelet, code: str) -> list[str]:
    """Return the keys that the rule *code* finds in the files of the last kubelet."""
    status = NodeStatus(kubelet_version=kubernetes_version())
    judged = Snapshot(kubelet_on_disk=lone.our_view(), node_status=status)
    (result,) = evaluate(judged, (rule(code),)).results
    assert result.missing == ()
    return [finding.subject.partition(" in ")[0] for finding in result.findings]


def text(**settings: Any) -> str:
    return json.dumps({**HEADER, **settings})


def _without_values(known: Keys) -> dict[str, Any]:
    stated: dict[str, Any] = {}
    for name, inner in known.items():
        empty = "0s" if DURATION.fullmatch(name) else None
        value = _without_values(inner) if inner else empty
        stated[name] = [value] if name in LISTS else value
    return stated


def test_the_kubelet_knows_each_key_of_our_table_that_its_release_has(lone: LoneKubelet) -> None:
    _, log = started(lone, {MAIN: text(**{**_without_values(KEYS), **HEADER})})
    release = chosen().kubelet
    later = {name for name, since in SINCE.items() if since > release}
    assert bool(later) == (release < max(SINCE.values()))
    assert unknown_to_the_kubelet(log) == later


def test_our_table_has_each_key_that_the_kubelet_tells(lone: LoneKubelet) -> None:
    lives, _ = started(lone, {MAIN: text()})
    assert lives
    assert json.loads(lone.api.configz())["kubeletconfig"].keys() <= KEYS.keys()


ODD: dict[str, Any] = {
    "topologyManagerPolcy": ONE_NUMA,
    "cpumanagerPolicy": "static",
    "cpuManagerPolicyOption": {"full-pcpus-only": "true"},
    "memory-manager-policy": "Static",
    "reservedCPUs": "0,56",
    "authentication": {"topologyManagerPolicy": ONE_NUMA},
    "memorySwap": {"swapbehavior": "NoSwap"},
    "reservedMemory": [{"numanode": 1, "limits": {"memory": "1Gi"}}],
    "memorySwap.swapBehavior": "NoSwap",
    "metadata": {"name": "x"},
    "7": "x",
}
LATER: dict[str, Any] = {"defaultPodSysctls": {"kernel.shm_rmid_forced": "1"}}
"""What only newer kubelets know; they take it by a gate."""
DECIDING = {
    "topologyManagerPolcy",
    "cpumanagerPolicy",
    "cpuManagerPolicyOption",
    "memory-manager-policy",
    "reservedCPUs",
    "authentication.topologyManagerPolicy",
    "reservedMemory[0].numanode",
}


def test_what_the_kubelet_does_not_know_in_its_file_is_what_our_rules_find(
    lone: LoneKubelet,
) -> None:
    later = LATER if chosen().kubelet < (1, 37) else {}
    lives, log = started(lone, {MAIN: text(**ODD, **later)})
    assert lives
    config = json.loads(lone.api.configz())["kubeletconfig"]
    policies = ("cpuManagerPolicy", "memoryManagerPolicy", "topologyManagerPolicy")
    assert [config[name] for name in policies] == ["none", "None", "none"]
    misspelt, others = found(lone, "KUB-030"), found(lone, "KUB-031")
    assert set(misspelt) == DECIDING
    assert {*misspelt, *others} == unknown_to_the_kubelet(log)


def test_a_file_that_the_kubelet_decodes_strictly_passes(lone: LoneKubelet) -> None:
    lives, log = started(lone, {MAIN: text(topologyManagerPolicy=ONE_NUMA, crashLoopBackOff={})})
    assert lives
    assert "strict decoding" not in log
    assert json.loads(lone.api.configz())["kubeletconfig"]["topologyManagerPolicy"] == ONE_NUMA
    assert found(lone, "KUB-030") + found(lone, "KUB-031") == []


@pytest.mark.parametrize(
    ("drop_in", "in_force", "code"),
    [
        ({"topologyManagerPolcy": ONE_NUMA}, {"topologyManagerPolicy": "none"}, "KUB-030"),
        ({"TopologyManagerPolicy": ONE_NUMA}, {"topologyManagerPolicy": "none"}, "KUB-030"),
        ({"topologymanagerpolicy": ONE_NUMA}, {"topologyManagerPolicy": ONE_NUMA}, "KUB-031"),
        (
            {"topologyManagerPolicy": BEST, "TopologyManagerPolicyOptions": NEAREST},
            {"topologyManagerPolicyOptions": NEAREST},
            "KUB-031",
        ),
        (
            {"SystemReserved": {"memory": "2Gi", "pid": "100"}},
            {"systemReserved": {"memory": "1Gi", "pid": "100"}},
            "KUB-030",
        ),
        (
            {"systemreserved": {"memory": "2Gi", "pid": "100"}},
            {"systemReserved": {"memory": "2Gi", "pid": "100"}},
            "KUB-031",
        ),
        (
            {"memorySwap": {"SwapBehavior": "NoSwap"}},
            {"memorySwap": {"swapBehavior": "NoSwap"}},
            "KUB-031",
        ),
    ],
)
def test_the_case_of_a_key_in_a_drop_in_decides_whether_it_counts(
    lone: LoneKubelet, drop_in: dict[str, Any], in_force: dict[str, Any], code: str
) -> None:
    files = {MAIN: text(systemReserved={"memory": "1Gi"}), DROP_IN: text(**drop_in)}
    lives, log = started(lone, files)
    assert lives
    assert "strict decoding" not in log
    config = json.loads(lone.api.configz())["kubeletconfig"]
    assert {name: config[name] for name in in_force} == in_force
    assert plain(lone.our_view()) == plain(settings_from_configz(lone.api.configz()))
    assert [each for each in ("KUB-030", "KUB-031") if found(lone, each)] == [code]


TWICE = (
    "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
    "maxPods: 33\nmaxPods: 44\n"
)


def test_of_a_key_that_a_file_has_twice_the_last_counts(lone: LoneKubelet) -> None:
    lives, log = started(lone, {MAIN: TWICE})
    assert lives
    assert "strict decoding" in log
    assert json.loads(lone.api.configz())["kubeletconfig"]["maxPods"] == 44
    assert lone.our_view().max_pods == 44
    assert found(lone, "KUB-031") == ["maxPods"]


def test_a_kubelet_does_not_start_with_a_key_that_a_drop_in_has_twice(lone: LoneKubelet) -> None:
    lives, _ = started(lone, {MAIN: text(), DROP_IN: TWICE})
    settings, (issue,) = read_kubelet_settings(lone.host, lone.host / "proc")
    assert (lives, settings) == (False, None)
    assert issue.reason == "maxPods is stated twice in this drop-in"


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        ({"kind": "KubeletConfiguration"}, "apiVersion is not kubelet.config.k8s.io/v1beta1"),
        (
            {**HEADER, "apiVersion": "kubelet.config.k8s.io/v1"},
            "apiVersion is not kubelet.config.k8s.io/v1beta1",
        ),
        ({"apiVersion": HEADER["apiVersion"]}, "not a KubeletConfiguration"),
        ({**HEADER, "kind": "KubeletConfig"}, "not a KubeletConfiguration"),
    ],
)
@pytest.mark.parametrize("name", [MAIN, DROP_IN])
def test_a_kubelet_does_not_start_with_another_kind_or_version(
    lone: LoneKubelet, name: str, header: dict[str, str], reason: str
) -> None:
    lives, _ = started(lone, {MAIN: text(), name: json.dumps(header)})
    settings, (issue,) = read_kubelet_settings(lone.host, lone.host / "proc")
    assert (lives, settings) == (False, None)
    assert (issue.subject, issue.reason) == (f"/var/lib/kubelet/{name}", reason)


def test_each_finding_names_the_file_and_the_key_that_was_meant(lone: LoneKubelet) -> None:
    lives, _ = started(lone, {MAIN: text(), DROP_IN: text(topologyManagerPolcy=ONE_NUMA)})
    assert lives
    judged = Snapshot(kubelet_on_disk=lone.our_view())
    (result,) = evaluate(judged, (rule("KUB-030"),)).results
    (finding,) = result.findings
    assert finding.subject == f"topologyManagerPolcy in /var/lib/kubelet/{DROP_IN}"
    assert finding.expected == "topologyManagerPolicy"
